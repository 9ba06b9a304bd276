"""Which columns of a table are wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from onesigma.errors import DataError

Columns: TypeAlias = Sequence[str | int] | None
_RANGE = re.compile(r"(\d+)-(\d+)")


def chosen(columns: Columns, header: Sequence[str] | None, width: int, file: str) -> list[int]:
    """The positions of the columns: by name, by number from 0, or "2-7" for several; None: all.

    Raises:
        DataError: there is no such column; the message says which there are.
    """
    if columns is None:
        return list(range(width))
    if not columns:
        raise DataError(f"{file}: choose at least one column, or None for all.")
    return [place for column in columns for place in _places(column, header, width, file)]


def _places(column: str | int, header: Sequence[str] | None, width: int, file: str) -> list[int]:
    if header is not None and column in header:
        return [list(header).index(str(column))]
    span = _RANGE.fullmatch(str(column))
    first, last = span.groups() if span else (str(column), str(column))
    if first.isdecimal() and last.isdecimal() and int(first) <= int(last) < width:
        return list(range(int(first), int(last) + 1))
    has = ", ".join(header) if header else f"columns 0 to {width - 1}"
    raise DataError(f"{file} has no column {column!r}; it has {has}.")
