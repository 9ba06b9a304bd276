"""Rows of numbers from a CSV file, in pieces."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.tables.columns import Columns, chosen

_BYTES_AT_ONCE = 1 << 20
_LARGEST = float(np.finfo(np.float32).max)


def csv_rows(
    path: Path, columns: Columns = None, header: bool | None = None
) -> Iterator[npt.NDArray[np.float32]]:
    """Pieces (k, columns) of a file separated by commas, semicolons or tabs.

    Args:
        path: the file.
        columns: see ``columns.chosen``.
        header: whether the first line names the columns; None looks whether it holds any number.

    Raises:
        DataError: absent, not UTF-8, ragged, or not all numbers; names the line and the column.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = file.readline()
            layout = _Layout.of(first, columns, header, path.name)
            lines, number = ([], 2) if layout.header else ([first], 1)
            while lines := lines + file.readlines(_BYTES_AT_ONCE):
                if any(map(str.strip, lines)):
                    yield layout.parse(lines, number)
                number, lines = number + len(lines), []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name} cannot be read as CSV: {error}") from error


@dataclass(frozen=True)
class _Layout:
    """How the lines of one file are to be read."""

    file: str
    delimiter: str
    header: list[str] | None
    width: int
    places: list[int]

    @staticmethod
    def of(first: str, columns: Columns, header: bool | None, file: str) -> _Layout:
        if not first.strip():
            raise DataError(f"{file} is empty, or begins with an empty line.")
        delimiter = max(",;\t", key=first.count)
        fields = [field.strip() for field in next(csv.reader([first], delimiter=delimiter))]
        # Columns without names are written as 0, 1, 2 … by some.
        numbered = len(fields) > 2 and fields == [str(i) for i in range(len(fields))]
        named = numbered or not any(map(is_number, fields)) if header is None else header
        names = fields if named else None
        return _Layout(
            file, delimiter, names, len(fields), chosen(columns, names, len(fields), file)
        )

    def parse(self, lines: Sequence[str], number: int) -> npt.NDArray[np.float32]:
        """The numbers of some lines, the first of them line ``number`` of the file."""
        if all(line.count(self.delimiter) == self.width - 1 for line in lines):
            try:
                values: npt.NDArray[np.float32] = np.loadtxt(
                    *(lines, np.float32, None, self.delimiter),
                    usecols=self.places,
                    ndmin=2,
                    quotechar='"',
                )
                if np.isfinite(values).all():
                    return values
            except ValueError:
                pass
        return self._parse_slowly(lines, number)

    def _parse_slowly(self, lines: Sequence[str], number: int) -> npt.NDArray[np.float32]:
        """The same, field by field: it finds what is wrong, if something is."""
        found = []
        for offset, line in enumerate(lines):
            if not line.strip():
                continue
            fields, at = next(csv.reader([line], delimiter=self.delimiter)), number + offset
            if len(fields) != self.width:
                raise DataError(
                    f"{self.file}, line {at}: {len(fields)} fields, where line 1 has {self.width}."
                )
            found.append([self._number(fields[place], at, place) for place in self.places])
        return np.array(found, np.float32)

    def _number(self, field: str, line: int, place: int) -> float:
        # False for NaN, too.
        if is_number(field) and abs(float(field)) <= _LARGEST:
            return float(field)
        column = repr(self.header[place]) if self.header else f"{place} (counted from 0)"
        what = f"{field.strip()!r} is no number to compute with" if field.strip() else "empty"
        raise DataError(
            f"{self.file}, line {line}, column {column}: {what}. "
            "Mend the file, or choose columns with --columns."
        )


def is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
