"""Batches of samples for a model from a file of any size: rows as samples, or windows of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onesigma.errors import DataError, InputError
from onesigma.tables.columns import Columns
from onesigma.tables.rows import Array, rows
from onesigma.tables.scaling import Scaling


def samples(
    path: Path,
    *,
    window: int | None = None,
    hop: int | None = None,
    columns: Columns = None,
    batch: int = 64,
    shape: Sequence[int] | None = None,
    scaling: Scaling | None = None,
    channels_last: bool = False,
    header: bool | None = None,
) -> Iterator[Tensor]:
    """Batches of float32 samples; at no time is more than a piece of the file in memory.

    Args:
        path: a ``.csv``, ``.npy``, ``.parquet`` or ``.wav`` file, see ``rows``.
        window: None makes every row (every entry of an array, all of a sound) one sample. A number
            takes rows for instants and cuts them into windows (channels, window); a last one that
            is not full is left out.
        hop: from the start of a window to that of the next; by default the window's length.
        columns: which columns, see ``rows``.
        batch: samples at a time.
        shape: of one sample, in place of the row's or window's own.
        scaling: to apply to every sample.
        channels_last: windows (window, channels) in place of (channels, window).
        header: see ``rows``.

    Raises:
        DataError: nothing of this can be read there; names the file, the row and the column.
    """
    for name, number in {"window": window, "hop": hop, "batch": batch}.items():
        if number is not None and number < 1:
            raise InputError(f"{name}={number}: at least 1.")
    if window is None and (hop is not None or channels_last):
        raise InputError("hop and channels_last are for windows: give window, too.")
    pieces = rows(path, columns, header=header)
    if window is not None:
        parts = _windows(pieces, window, hop or window, path.name)
    else:
        parts = _whole(pieces) if path.suffix.lower() == ".wav" else pieces
    finished = (
        _finished(x, shape, scaling, channels_last, path.name) for x in batches(parts, batch)
    )
    return _at_least_one(finished, path.name, window)


def _windows(pieces: Iterable[Array], window: int, hop: int, file: str) -> Iterator[Array]:
    """(k, channels) in pieces → (n, channels, window) in parts, views as far as possible."""
    held, skip = None, 0  # rows not yet used up; how many of them lie between windows
    for piece in pieces:
        if piece.ndim > 2:
            raise DataError(f"{file} holds samples of shape {piece.shape[1:]} already: no window.")
        piece = piece.reshape(len(piece), -1)
        held = piece if held is None else np.concatenate([held, piece])
        held, skip = held[skip:], max(0, skip - len(held))
        count = (len(held) - window) // hop + 1
        if count > 0:
            yield np.lib.stride_tricks.sliding_window_view(held, window, 0)[: count * hop : hop]
            held, skip = held[count * hop :], max(0, count * hop - len(held))


def _whole(pieces: Iterable[Array]) -> Iterator[Array]:
    """All instants as one sample (1, channels, instants)."""
    yield np.concatenate(list(pieces)).T[None]


def batches(parts: Iterable[Array], size: int) -> Iterator[Array]:
    """The same entries, ``size`` at a time. Overlapping windows are copied here and not before."""
    held: list[Array] = []
    count = 0
    for part in parts:
        start = 0
        while start < len(part):
            taken = part[start : start + size - count]
            held.append(np.array(taken))
            count, start = count + len(taken), start + len(taken)
            if count == size:
                yield np.concatenate(held)
                held, count = [], 0
    if held:
        yield np.concatenate(held)


def _finished(
    x: Array, shape: Sequence[int] | None, scaling: Scaling | None, channels_last: bool, file: str
) -> Tensor:
    if x.ndim == 1:
        raise DataError(f"{file} holds single numbers: give a window to make samples of them.")
    if shape is not None:
        if prod(shape) != x[0].size:
            raise DataError(
                f"{file}: samples of shape {x.shape[1:]} cannot take shape {tuple(shape)}."
            )
        x = x.reshape(len(x), *shape)
    x = x if scaling is None else scaling.apply(x)
    return torch.from_numpy(x.swapaxes(1, 2).copy() if channels_last else x)


def _at_least_one(found: Iterator[Tensor], file: str, window: int | None) -> Iterator[Tensor]:
    none = True
    for x in found:
        none = False
        yield x
    if none:
        few = "no rows" if window is None else f"fewer rows than one window of {window}"
        raise DataError(f"{file} has {few}.")


def fitted(x: Tensor, input_shape: Sequence[int | None] | None, file: str) -> Tensor:
    """The samples in the shape that the model takes, where that can only mean one thing.

    That is a flat row of as many numbers, or windows of the right length whose channels the model
    has in several dimensions, as three axes of two sensors.

    Raises:
        DataError: they do not fit.
    """
    if input_shape is None:
        return x
    given, wanted = tuple(x.shape[1:]), tuple(input_shape[1:])
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
