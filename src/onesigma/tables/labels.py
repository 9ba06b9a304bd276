"""What is known of each sample, as a column of a file: its true class, or whose it is."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.tables.files import (
    UNREADABLE,
    find_delimiter,
    is_number,
    is_text,
    open_array,
    open_text,
    read_array,
)


def read_labels(path: Path, class_names: Sequence[str] = ()) -> npt.NDArray[Any]:
    """A class number for each sample, from 0; or, without classes, a true value.

    The file is a ``.npy`` or ``.npz`` array, or a ``.csv`` with a line for each sample: one column,
    or one that is called label. Names of classes become their numbers.

    Raises:
        DataError: absent, damaged, several columns, or a name that is no class; says which.
    """
    values = _read_column(path, "label")
    if isinstance(values, np.ndarray):
        return values
    places = {name: place for place, name in enumerate(class_names)}
    if not places.keys() & {*values}:
        header = int(not is_number(values[0]))
        if all(map(is_number, values[header:])):
            numbers = np.array([float(value) for value in values[header:]])
            whole = numbers.astype(np.int64)
            return whole if (whole == numbers).all() else numbers.astype(np.float32)
        if not class_names:
            raise DataError(
                f"{path.name} holds names such as {values[-1]!r}: say with --class-names which "
                "class each of them is, in the order of the network's outputs."
            )
    values = values if values[0] in places else values[1:]
    if unknown := [value for value in values if value not in places]:
        known = ", ".join(class_names)
        raise DataError(f"{path.name}: {unknown[0]!r} is no class; the classes are {known}.")
    return np.array([places[value] for value in values])


def read_groups(path: Path) -> npt.NDArray[np.int64]:
    """A number for each sample, such as that of a person; names get one each, too.

    Raises:
        DataError: absent, damaged, or it has several columns and none is called group.
    """
    values = _read_column(path, "group")
    if not isinstance(values, np.ndarray):
        numbered = all(map(is_number, values[1:])) and not is_number(values[0])
        values = np.array(values[1:] if numbered or values[0] not in values[1:] else values)
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _read_column(path: Path, name: str) -> npt.NDArray[Any] | list[str]:
    """Numbers of an array; or texts, the first of which may be a header."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    if not is_text(path):
        array = open_array(path)
        texts = array.dtype.kind == "U" and array.ndim == 1 and len(array) > 0
        return array.tolist() if texts else read_array(path)
    try:
        with open_text(path) as file:
            first = file.readline()
            rows = [*csv.reader([first, *file], delimiter=find_delimiter(first))]
    except UNREADABLE as error:
        raise DataError(f"{path.name} cannot be read as CSV: {error}") from error
    rows = [[field.strip() for field in row] for row in rows if any(map(str.strip, row))]
    if not rows:
        raise DataError(f"{path.name} is empty: give a line for each sample.")
    titles = [title.lower() for title in rows[0]]
    if len(titles) > 1 and name not in titles:
        raise DataError(
            f"{path.name} has {len(titles)} columns ({', '.join(rows[0])}): call the one that is "
            f"meant {name!r}, or leave the others out."
        )
    place = titles.index(name) if name in titles else 0
    if short := next((at for at, row in enumerate(rows, 1) if len(row) <= place), None):
        raise DataError(f"{path.name}, line {short}: there is no column {place}, as in line 1.")
    return [row[place] for row in rows]
