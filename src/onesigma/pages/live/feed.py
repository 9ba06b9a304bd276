"""Where instants come from: standard input, a device, UDP on this machine, or a recording."""

import os
import socket
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from onesigma.errors import DataError, InputError
from onesigma.tables.files import Columns, read_rows
from onesigma.tables.stream import Instant, Lines, lines

_PIECE = 1 << 16
_TABLES = (".npy", ".npz", ".parquet", ".wav", ".gz")


@dataclass(frozen=True)
class Feed:
    """Instants, and what is known about them."""

    title: str
    instants: Iterator[Instant]  # one number per channel
    recorded: bool = False  # it waits for a viewer, and is played at a given speed
    lines: Lines | None = None  # who reads them, if they are read from text
    rate: float | None = None  # instants per second, if the source says so
    names: Sequence[str] | None = None  # of the channels, unless the lines say so
    notes: Sequence[tuple[int, str]] = ()  # what begins at which instant, in order, if known


def open_feed(source: str, channels: int, *, columns: Columns = None, baud: int = 115200) -> Feed:
    """``-``, ``udp:PORT``, a device file or pipe, or a recording: a table, or lines of text.

    Raises:
        DataError: there is no such file, or it is no recording of that many channels.
        InputError: no such UDP port.
    """
    path = Path(source)
    if path.suffix.lower() in _TABLES:
        feed = _begin(Feed(path.name, _read_table(path, channels, columns)), channels)
        if path.suffix.lower() != ".wav":
            return feed
        with wave.open(source, "rb") as file:
            return replace(feed, rate=file.getframerate())
    if source == "-":
        title, pieces = "standard input", _read(0)
    elif source.startswith("udp:"):
        title, pieces = _listen(source)
    elif path.exists() and not path.is_dir():
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOCTTY", 0))
        _set_baud(handle, baud)
        title, pieces = path.name, _read(handle)
    else:
        raise DataError(f"{source}: there is no such file or device.")
    reader = Lines(channels, columns)
    feed = Feed(title, reader.instants(lines(pieces)), lines=reader)
    return _begin(feed, channels) if path.is_file() else feed


def _begin(feed: Feed, channels: int) -> Feed:
    """Read the first instant of a recording: a file that does not fit is refused at once."""
    first = next(feed.instants, None)
    if first is None:
        raise DataError(
            f"{feed.title} has no line of {channels} numbers, one per channel of the model. "
            "Choose columns with --columns."
        )
    return replace(feed, instants=chain([first], feed.instants), recorded=True)


def _read(handle: int) -> Iterator[bytes]:
    # Not by a file object: at exit, the interpreter would wait for a thread that holds its lock.
    while piece := os.read(handle, _PIECE):
        yield piece


def _listen(source: str) -> tuple[str, Iterator[bytes]]:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        receiver.bind(("127.0.0.1", int(source.removeprefix("udp:"))))
    except (ValueError, OverflowError, OSError) as error:
        receiver.close()
        raise InputError(f"{source}: this port cannot be listened on ({error}).") from error

    def datagrams() -> Iterator[bytes]:
        with receiver:
            while True:
                yield receiver.recv(_PIECE) + b"\n"

    return f"UDP port {receiver.getsockname()[1]}", datagrams()


def _set_baud(handle: int, baud: int) -> None:
    """If the file is a serial line: bytes as they come, at that rate."""
    if not os.isatty(handle):
        return
    import termios  # not on Windows, which has no such files
    import tty

    tty.setraw(handle)
    speed = getattr(termios, f"B{baud}", None)
    if speed is None:
        raise InputError(f"--baud {baud} is no rate of a serial line; 115200 and 9600 are usual.")
    settings = termios.tcgetattr(handle)
    settings[4] = settings[5] = speed  # in and out
    termios.tcsetattr(handle, termios.TCSANOW, settings)


def _read_table(path: Path, channels: int, columns: Columns) -> Iterator[Instant]:
    """The rows of a file that is not text."""
    for piece in read_rows(path, columns):
        if piece.ndim != 2 or piece.shape[1] != channels:
            raise DataError(
                f"{path.name}: expected rows of {channels} channels, one per instant, found "
                f"{piece.shape[1:]}. Choose columns with --columns."
            )
        yield from piece
