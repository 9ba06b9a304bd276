"""Samples for a model from a file of any size: each row is one, or windows of rows are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError, FileError, InputError
from onesigma.tables.files import Array, Columns, read_rows

SAMPLES = 128  # of a file at a time


@dataclass(frozen=True)
class Scaling:
    """(x − mean) / std; one number, or one per channel: along the first dimensions of a sample."""

    mean: Array
    std: Array

    @staticmethod
    def read(path: Path) -> Scaling:
        """From a JSON file such as ``{"mean": [0.1, 9.8], "std": [1, 2.5]}``."""
        if not path.is_file():
            raise FileError(f"{path}: there is no such file.")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            with np.errstate(over="ignore"):  # too large is infinite, and refused below
                mean, std = (np.array(content[key], np.float32) for key in ("mean", "std"))
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise DataError(
                f"{path.name} does not hold a mean and a std as JSON: {error!r}"
            ) from error
        finite = np.isfinite(mean).all() and np.isfinite(std).all()
        if mean.shape != std.shape or not finite or not (std > 0).all():
            raise DataError(
                f"{path.name} must hold as many stds as means, all finite, every std above 0."
            )
        return Scaling(mean, std)

    def apply(self, x: Array) -> Array:
        if self.mean.ndim and self.mean.shape != x.shape[1 : 1 + self.mean.ndim]:
            raise DataError(
                f"There are {self.mean.shape} means for samples of shape {x.shape[1:]}: one number "
                "is needed, or one per channel."
            )
        along = (1, *self.mean.shape, *[1] * (x.ndim - 1 - self.mean.ndim))
        with np.errstate(over="ignore"):  # infinite input is not answered: see ``Answer``
            return np.asarray((x - self.mean.reshape(along)) / self.std.reshape(along), np.float32)


def read_samples(
    path: Path,
    *,
    window: int | None = None,
    hop: int | None = None,
    columns: Columns = None,
    batch: int = SAMPLES,
    shape: Sequence[int] | None = None,
    scaling: Scaling | None = None,
    channels_last: bool = False,
    header: bool | None = None,
) -> Iterator[Array]:
    """Batches of float32 samples; only a piece of the file is in memory at any time.

    Args:
        path: a ``.csv``, ``.npy``, ``.parquet`` or ``.wav`` file, see ``read_rows``.
        window: None makes every row (every entry of an array, all of a sound) one sample. With a
            number, rows are instants, and windows (channels, window) are cut from them; a last
            window that is not full is left out.
        hop: rows from the start of one window to the start of the next; default: ``window``.
        columns: which columns, see ``read_rows``.
        batch: samples at a time.
        shape: of one sample, in place of the shape that the row or window has.
        scaling: is applied to every sample.
        channels_last: windows (window, channels) in place of (channels, window).
        header: see ``read_rows``.

    Raises:
        DataError: there are no such samples in the file; names the file, the row and the column.
    """
    for name, number in {"window": window, "hop": hop, "batch": batch}.items():
        if number is not None and number < 1:
            raise InputError(f"{name}={number}: at least 1 is needed.")
    if window is None and (hop is not None or channels_last):
        raise InputError("hop and channels_last are for windows: give window, too.")
    pieces = read_rows(path, columns, header=header)
    if window is not None:
        pieces = _cut(pieces, window, hop or window, path.name)
    elif path.suffix.lower() == ".wav":
        pieces = _join(pieces)
    empty = True
    for x in rebatch(pieces, batch):
        yield to_samples(x.copy(), path.name, shape, scaling, channels_last=channels_last)
        empty = False
    if empty:
        few = "no rows" if window is None else f"fewer rows than one window of {window}"
        raise DataError(f"{path.name} has {few}.")


def to_samples(
    x: Array,
    file: str,
    shape: Sequence[int] | None,
    scaling: Scaling | None,
    *,
    channels_last: bool,
) -> Array:
    """Rows or windows as a network takes them; for the arguments see ``read_samples``."""
    x = _reshape(x, shape, file)
    x = x if scaling is None else scaling.apply(x)
    return x.swapaxes(1, 2).copy() if channels_last else x


def _cut(pieces: Iterable[Array], window: int, hop: int, file: str) -> Iterator[Array]:
    """(k, channels) in pieces → (n, channels, window) in parts; views as far as possible."""
    held, skip = None, 0  # rows that are still needed; how many of them lie between windows
    for piece in pieces:
        if piece.ndim > 2:
            raise DataError(
                f"{file} holds samples of shape {piece.shape[1:]} already: leave out the window."
            )
        piece = piece.reshape(len(piece), -1)
        held = piece if held is None else np.concatenate([held, piece])
        held, skip = held[skip:], max(0, skip - len(held))
        found = slide(held.T, window, hop)
        if len(found):
            yield found
            used = len(found) * hop
            held, skip = held[used:], max(0, used - len(held))


def slide(rows: npt.NDArray[Any], window: int, hop: int) -> npt.NDArray[Any]:
    """(channels, k) → views (n, channels, window); n may be 0."""
    if rows.shape[1] < window:
        return np.empty((0, len(rows), window), rows.dtype)
    return np.lib.stride_tricks.sliding_window_view(rows, window, 1)[:, ::hop].swapaxes(0, 1)


def _join(pieces: Iterable[Array]) -> Iterator[Array]:
    """All instants as one sample (1, channels, instants)."""
    if found := list(pieces):
        yield np.concatenate(found).T[None]


def rebatch(parts: Iterable[Array], size: int, many: int = 1) -> Iterator[Array]:
    """The same entries, ``size`` at a time; ``many`` times as many where they lie in one part.

    They are copied only where a batch holds some of two parts.
    """
    batch, count = np.empty(0, np.float32), 0
    for part in parts:
        start = 0
        while start < len(part):
            whole = size * min(many, (len(part) - start) // size)
            if whole and not count:
                yield part[start : start + whole]
                start += whole
                continue
            taken = part[start : start + size - count]
            if not count:
                batch = np.empty((size, *part.shape[1:]), part.dtype)
            batch[count : count + len(taken)] = taken
            count, start = (count + len(taken)) % size, start + len(taken)
            if not count:
                yield batch
    if count:
        yield batch[:count]


def _reshape(x: Array, shape: Sequence[int] | None, file: str) -> Array:
    if x.ndim == 1:
        raise DataError(f"{file} holds single numbers: give a window to make samples of them.")
    if shape is None:
        return x
    if prod(shape) != x[0].size:
        raise DataError(f"{file}: samples of shape {x.shape[1:]} cannot take shape {tuple(shape)}.")
    return x.reshape(len(x), *shape)


def fit_to_model(x: Array, input_shape: Sequence[int | None] | None, file: str) -> Array:
    """The samples in the shape that the model takes, where that can mean one thing only.

    A flat row of as many numbers fits. So does a window of the right length, if the model only
    spreads its channels over several dimensions, as three axes of two sensors.

    Raises:
        DataError: they do not fit.
    """
    if input_shape is None:
        return x
    given, wanted = x.shape[1:], tuple(input_shape[1:])
    if len(given) == len(wanted) and all(
        n in (None, m) for n, m in zip(wanted, given, strict=True)
    ):
        return x
    known = [n for n in wanted if n is not None]
    same_size = len(known) == len(wanted) and prod(known) == prod(given)
    if same_size and (len(given) == 1 or given[-1] == known[-1]):
        return x.reshape(len(x), *known)
    shown = ", ".join("any" if n is None else str(n) for n in wanted)
    raise DataError(
        f"{file} gives samples of shape ({', '.join(map(str, given))}), the model takes ({shown}). "
        "See --columns, --window, --shape."
    )


def find_window(
    width: int, input_shape: Sequence[int | None] | None, *, channels_last: bool = False
) -> tuple[int, bool] | None:
    """How rows of ``width`` numbers become inputs: of how many, and whether channels come last.

    None if a row is an input itself, or if the shape does not tell.
    """
    sizes = [n for n in (input_shape or ())[1:] if n is not None]
    if len(sizes) < 2 or len(sizes) != len(input_shape or ()) - 1 or width == prod(sizes):
        return None
    if len(sizes) > 2 and sizes[0] == 1:  # of an image with one channel, which has rows and columns
        sizes = sizes[1:]
    if width == prod(sizes[:-1]) and not channels_last:
        return sizes[-1], False
    return (sizes[0], True) if width == prod(sizes[1:]) else None


def thin(batches: Iterable[Array], most: int) -> tuple[Array, int, int]:
    """Every k-th sample, at most ``most``, at least half of that if there are so many; k; of all.

    The first samples would not do, because recordings lie in the order they were made. When too
    many are kept, every second is dropped, so memory holds no more than ``most`` and a batch.
    """
    kept: list[Array] = []
    step, seen = 1, 0
    for batch in batches:
        kept.append(batch[-seen % step :: step].copy())
        seen += len(batch)
        while sum(map(len, kept)) > most:
            kept, step = [np.concatenate(kept)[::2].copy()], 2 * step
    return np.concatenate(kept), step, seen
