"""A sensor's stream: lines of text become instants, and instants become windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from onesigma.errors import DataError
from onesigma.tables.files import Array, Columns, choose_columns, is_number

Instant: TypeAlias = Array  # one number per channel

LONGEST_LINE = 1 << 16  # a sender that never ends a line must not fill the memory


def windows(
    instants: Iterable[Sequence[float] | Instant], length: int, hop: int
) -> Iterator[tuple[int, Array]]:
    """Every ``hop`` instants the last ``length`` of them (instants, channels), and their end."""
    recent: deque[Sequence[float] | Instant] = deque(maxlen=length)
    for end, instant in enumerate(instants, start=1):
        recent.append(instant)
        if end >= length and (end - length) % hop == 0:
            yield end, np.array(recent, dtype=np.float32)


def lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a text that comes piece by piece; the last one, too, if nothing ends it."""
    pending = b""
    for piece in pieces:
        *whole, pending = (pending + piece).split(b"\n")
        yield from map(_decode, whole)
        if len(pending) > LONGEST_LINE:
            yield _decode(pending)
            pending = b"?"  # so that the rest of that line is not taken for a line of its own
    if pending:
        yield _decode(pending)


def _decode(line: bytes) -> str:
    # Some files begin with a byte order mark.
    return line.decode("utf-8", errors="replace").lstrip("\ufeff").strip()


class Lines:
    """Reads instants from lines: numbers between commas, semicolons or blanks, one per channel.

    A line that holds no instant is counted and left out. A first line without a number is a header.

    Attributes:
        bad: how many lines held no instant.
        header: the names in the first line, or None.
    """

    def __init__(self, channels: int, columns: Columns = None) -> None:
        """``columns`` says which to read, see ``choose_columns``; default: all."""
        self.bad = 0
        self.header: list[str] | None = None
        self._channels = channels
        self._columns = columns

    @property
    def names(self) -> list[str] | None:
        """What the header calls the channels, or None."""
        return None if self.header is None else self._choose(self.header)

    def instants(self, text: Iterable[str]) -> Iterator[Instant]:
        first = True
        for line in text:
            if not line.strip():
                continue
            cells = _split(line)
            if first and not any(map(is_number, cells)):
                self.header = cells
            elif (instant := _parse(self._choose(cells))) is not None:
                yield instant
            else:
                self.bad += 1
            first = False

    def _choose(self, cells: list[str]) -> list[str] | None:
        """The cells that hold the channels; None if there are more or fewer."""
        try:
            places = choose_columns(self._columns, self.header, len(cells), "The line")
        except DataError:
            return None
        return [cells[place] for place in places] if len(places) == self._channels else None


def _split(line: str) -> list[str]:
    separator = next((sign for sign in ";," if sign in line), None)  # None: blanks
    cells = [cell.strip(" \t\r\n\"'") for cell in line.split(separator)]
    return [cell.replace(",", ".") for cell in cells]  # after semicolons, 0,5 is a half


def _parse(cells: list[str] | None) -> Instant | None:
    """None unless all are finite numbers, because a gap in a recording is no measurement."""
    try:
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused below
            instant = np.array([float(cell) for cell in cells or ()]).astype(np.float32)
    except ValueError:
        return None
    return instant if len(instant) and np.isfinite(instant).all() else None
