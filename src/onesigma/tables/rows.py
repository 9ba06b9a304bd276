"""Rows of numbers from CSV, NPY, Parquet and WAV files, in pieces: a file may exceed the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError, PackageError
from onesigma.tables.arrays import DAMAGE
from onesigma.tables.columns import Columns, chosen
from onesigma.tables.csv_rows import csv_rows
from onesigma.tables.wav import wav_pieces

Array = npt.NDArray[np.float32]
SUFFIXES = (".csv", ".tsv", ".txt", ".npy", ".parquet", ".wav")

_NUMBERS_AT_ONCE = 1 << 18
_FROM_0 = "(counted from 0)"


def rows(path: Path, columns: Columns = None, *, header: bool | None = None) -> Iterator[Array]:
    """The file's rows, in order, some at a time: finite float32 numbers, (k, columns) or (k, …).

    Args:
        path: ``.csv`` (``.tsv``, ``.txt``), ``.npy``, ``.parquet``, or ``.wav``, whose rows are
            instants, from −1 to 1.
        columns: which, and in which order: names, numbers from 0, or "2-7" for several; None: all.
        header: for CSV, whether the first line names the columns; None looks at it.

    Raises:
        DataError: absent, damaged, or not all numbers; names the file, the row and the column.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    match path.suffix.lower():
        case ".csv" | ".tsv" | ".txt":
            return csv_rows(path, columns, header)
        case ".npy":
            return _npy(path, columns)
        case ".parquet":
            return _parquet(path, columns)
        case ".wav":
            return _wav(path, columns)
    raise DataError(f"{path.name}: data are read from {', '.join(SUFFIXES)} files.")


def _npy(path: Path, columns: Columns) -> Iterator[Array]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGE as error:
        raise DataError(f"{path.name} cannot be read as a .npy array: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "fiub":
        raise DataError(f"{path.name} must hold one array of numbers.")
    if columns is not None and array.ndim != 2:
        raise DataError(f"{path.name} has shape {array.shape}: only a table has columns.")
    places = chosen(columns, None, array.shape[1], path.name) if columns is not None else None
    step = max(1, _NUMBERS_AT_ONCE // max(1, array[:1].size))
    for start in range(0, len(array), step):
        piece = array[start : start + step]
        piece = piece if places is None else piece[:, places]
        yield _finite(piece, path.name, start, None)


def _parquet(path: Path, columns: Columns) -> Iterator[Array]:
    pyarrow, parquet = arrow()
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            places = chosen(columns, schema.names, len(schema.names), path.name)
            names = [schema.names[place] for place in places]
            _require_numbers(pyarrow.types, schema, names, path.name)
            step, start = max(1, _NUMBERS_AT_ONCE // max(1, len(names))), 0
            for batch in file.iter_batches(step, columns=list(dict.fromkeys(names))):
                table = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
                piece = np.stack(table, axis=1)
                yield _finite(piece, path.name, start, names)
                start += len(piece)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path.name} cannot be read as Parquet: {error}") from error


def arrow() -> tuple[Any, Any]:
    """pyarrow and its part for Parquet.

    Raises:
        PackageError: it is not installed.
    """
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise PackageError(
            "Parquet files need pyarrow. Install it with: pip install 'onesigma[predict]'"
        ) from error


def _require_numbers(types: Any, schema: Any, names: Sequence[str], file: str) -> None:
    kinds: list[Callable[[Any], bool]] = [types.is_integer, types.is_floating, types.is_boolean]
    for name in names:
        held = schema.field(name).type
        if not any(is_kind(held) for is_kind in kinds):
            raise DataError(
                f"{file}, column {name!r} holds {held}, no numbers. Choose columns with --columns."
            )


def _wav(path: Path, columns: Columns) -> Iterator[Array]:
    for piece in wav_pieces(path, _NUMBERS_AT_ONCE):
        yield piece[:, chosen(columns, None, piece.shape[1], path.name)]


def _finite(given: npt.NDArray[Any], file: str, start: int, names: Sequence[str] | None) -> Array:
    """The values as float32; the first that is NaN, infinite or too large is an error."""
    with np.errstate(over="ignore"):
        values = given.astype(np.float32)
    good = np.isfinite(values)
    if good.all():
        return values
    row, *place = (int(i) for i in np.argwhere(~good)[0])
    element = f", column {place[0]}" if len(place) == 1 else f", element {place}" if place else ""
    column = f", column {names[place[0]]!r}" if names else element
    raise DataError(
        f"{file}, row {start + row}{column} {_FROM_0}: {given[(row, *place)]} is no number to "
        "compute with."
    )
