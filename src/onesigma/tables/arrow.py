"""Between numpy and pyarrow, without pandas.

pyarrow loads pandas where it is installed, even to make an array of numbers. That takes a second in
every process, so columns are made from their memory here.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import PackageError, install
from onesigma.tables.words import Words


@cache
def import_pyarrow() -> tuple[Any, Any]:
    """pyarrow, and its part for Parquet.

    Raises:
        PackageError: it is not installed.
    """
    # Its allocator gives memory back after 10 ms. While a network runs that is often, and reading a
    # batch then took five times as long on a virtual machine, to have the same pages again.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise PackageError(f"Parquet files need pyarrow: {install('predict')}") from error


def to_numpy(column: Any) -> npt.NDArray[Any]:
    """A column of pyarrow; its memory, not a copy, where all of it are numbers."""
    types = import_pyarrow()[0].types
    if not column.null_count and (types.is_integer(column.type) or types.is_floating(column.type)):
        return np.from_dlpack(column)
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def to_arrow(column: npt.NDArray[Any] | Words) -> Any:
    """A column of numbers or of words."""
    pyarrow, _ = import_pyarrow()
    buffer, count = pyarrow.py_buffer, len(column)
    if column.dtype == object and not isinstance(column, Words):
        column = Words.of(column.tolist())
    if not isinstance(column, Words):
        kind = pyarrow.from_numpy_dtype(column.dtype)
        held = [None, buffer(np.ascontiguousarray(column))]
        return pyarrow.Array.from_buffers(kind, count, held)
    texts = [word.encode() for word in column.words]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    different = pyarrow.StringArray.from_buffers(len(texts), buffer(ends), buffer(b"".join(texts)))
    places = to_arrow(column.codes.astype(np.int32, copy=False))
    return pyarrow.DictionaryArray.from_arrays(places, different).cast("string")
