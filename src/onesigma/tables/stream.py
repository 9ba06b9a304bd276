"""A sensor's stream: lines of text become instants, instants become windows. Needs no PyTorch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.tables.columns import Columns, chosen
from onesigma.tables.csv_rows import is_number

Instant = npt.NDArray[np.float32]  # one number per channel

# A sender that never ends a line must not fill the memory.
_LONGEST_LINE = 1 << 16


def windows(
    instants: Iterable[Sequence[float] | Instant], length: int, hop: int
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """Every ``hop`` instants the last ``length`` of them (instants, channels), and their end."""
    recent: deque[Sequence[float] | Instant] = deque(maxlen=length)
    for end, instant in enumerate(instants, start=1):
        recent.append(instant)
        if end >= length and (end - length) % hop == 0:
            yield end, np.array(recent, dtype=np.float32)


def lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a text that comes piece by piece, the last one too if nothing ends it."""
    pending = b""
    for piece in pieces:
        *whole, pending = (pending + piece).split(b"\n")
        yield from (_text(line) for line in whole)
        if len(pending) > _LONGEST_LINE:
            yield _text(pending)
            pending = b"?"  # so that the rest of that line does not pass for one of its own
    if pending:
        yield _text(pending)


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").lstrip("\ufeff").strip()  # some files begin so


class Lines:
    """Reads instants from lines: numbers between commas, semicolons or blanks, one per channel.

    A line that is none is counted and left out. A first line without any number is a header.

    Attributes:
        bad: how many lines were no instant.
        header: the first line's names, or None.
    """

    def __init__(self, channels: int, columns: Columns = None) -> None:
        """``columns`` are the ones to take, see ``data.columns``; by default all there are."""
        self.bad = 0
        self.header: list[str] | None = None
        self._channels = channels
        self._columns = columns

    @property
    def names(self) -> list[str] | None:
        """What the header calls the channels, or None."""
        return None if self.header is None else self._chosen(self.header)

    def instants(self, text: Iterable[str]) -> Iterator[Instant]:
        first = True
        for line in text:
            if not line.strip():
                continue
            cells = _cells(line)
            if first and not any(map(is_number, cells)):
                self.header = cells
            elif (instant := _numbers(self._chosen(cells))) is not None:
                yield instant
            else:
                self.bad += 1
            first = False

    def _chosen(self, cells: list[str]) -> list[str] | None:
        """The cells that hold the channels; None if they are not as many."""
        try:
            places = chosen(self._columns, self.header, len(cells), "The line")
        except DataError:
            return None
        return [cells[place] for place in places] if len(places) == self._channels else None


def _cells(line: str) -> list[str]:
    separator = next((sign for sign in ";," if sign in line), None)  # else blanks
    return [cell.strip(" \t\r\n\"'") for cell in line.split(separator)]


def _numbers(cells: list[str] | None) -> Instant | None:
    """None unless all are finite: a gap in a recording is no measurement."""
    if cells is None:
        return None
    try:
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused below
            instant = np.array([float(cell) for cell in cells]).astype(np.float32)
    except ValueError:
        return None
    return instant if np.isfinite(instant).all() else None
