"""Readers of ops that move elements: most are another look at the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onesigma.exporters.c.builder import Builder
from onesigma.exporters.c.graph import Known, known, reads
from onesigma.exporters.c.values import Array, Storage, Value, whole


@reads("Identity")
def _identity(b: Builder, x: Value) -> Value:
    return x


@reads("Dropout")
def _dropout(b: Builder, x: Value, rate: Any = None, training: Any = None, **_: Any) -> Value:
    known(training is None or not np.any(training), "Dropout in training mode")
    return x


@reads("Reshape")
def _reshape(b: Builder, x: Value, sizes: Array, allowzero: int = 0) -> Value:
    shape = [x.shape[i] if n == 0 and not allowzero else int(n) for i, n in enumerate(sizes)]
    if -1 in shape:
        shape[shape.index(-1)] = x.size // -prod(shape)
    return b.reshape(x, shape)


@reads("Flatten")
def _flatten(b: Builder, x: Value, axis: int = 1) -> Value:
    return b.reshape(x, [prod(x.shape[:axis]), prod(x.shape[axis:])])


@reads("Unsqueeze")
def _unsqueeze(b: Builder, x: Value, axes: Array) -> Value:
    rank = len(x.shape) + len(axes)
    new, old = {int(axis) % rank for axis in axes}, iter(x.shape)
    return b.reshape(x, [1 if i in new else next(old) for i in range(rank)])


@reads("Squeeze")
def _squeeze(b: Builder, x: Value, axes: Array | None = None) -> Value:
    gone = [i for i, n in enumerate(x.shape) if n == 1] if axes is None else [int(a) for a in axes]
    gone = [axis % len(x.shape) for axis in gone]
    return b.reshape(x, [n for i, n in enumerate(x.shape) if i not in gone])


@reads("Transpose")
def _transpose(b: Builder, x: Value, perm: Sequence[int] | None = None) -> Value:
    return x.transposed(perm or range(len(x.shape))[::-1])


@reads("Expand")
def _expand(b: Builder, x: Value, sizes: Array) -> Value:
    return x.broadcast(tuple(np.broadcast_shapes(x.shape, tuple(int(n) for n in sizes))))


@reads("Slice")
def _slice(
    b: Builder,
    x: Value,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Value:
    known(all(isinstance(a, np.ndarray) for a in (starts, ends)), "a computed Slice")
    chosen = range(len(starts)) if axes is None else (int(a) % len(x.shape) for a in axes)
    strides = [1] * len(starts) if steps is None else [int(step) for step in steps]
    for axis, start, end, step in zip(chosen, starts, ends, strides, strict=True):
        span = range(x.shape[axis])[int(start) : int(end) : step]
        if step < 0 and int(end) < -x.shape[axis]:
            span = range(x.shape[axis])[int(start) :: step]
        x = x.sliced(axis, span[0] if span else 0, len(span), step)
    return x


@reads("Split")
def _split(
    b: Builder, x: Value, sizes: Array | None = None, axis: int = 0, num_outputs: int = 0
) -> tuple[Value, ...]:
    if sizes is None:
        known(num_outputs, "a Split into parts whose number is not given")
        each = -(-x.shape[axis] // num_outputs)
        sizes = np.array([min(each, x.shape[axis] - i * each) for i in range(num_outputs)])
    ends = np.cumsum(sizes)
    pairs = zip(ends - sizes, sizes, strict=True)
    return tuple(x.sliced(axis, int(start), int(count)) for start, count in pairs)


@reads("Gather")
def gathered(b: Builder, x: Known, index: Known, axis: int = 0) -> Value:
    known(isinstance(index, np.ndarray), "Gather by a computed index")
    assert isinstance(x, Value)
    assert isinstance(index, np.ndarray)
    axis %= len(x.shape)
    picked = [int(i) % x.shape[axis] for i in index.flat]
    shape = [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]]
    steps = set(np.diff(picked).tolist()) or {1}
    if len(steps) == 1:  # evenly spaced, as a single one always is
        return b.reshape(x.sliced(axis, picked[0], len(picked), steps.pop()), shape)
    moved = [*x.shape[:axis], len(picked), *x.shape[axis + 1 :]]
    table = {"axis": axis, "places": np.array(picked)}
    return b.reshape(b.add("Take", [b.dense(x)], tuple(moved), table), shape)


@reads("Concat")
def _concat(b: Builder, *parts: Known, axis: int) -> Value:
    """Each part is copied to its place, by the loop that computes it if there is one."""
    values = [b.value(x) for x in parts]
    axis %= len(values[0].shape)
    shape = list(values[0].shape)
    shape[axis] = sum(x.shape[axis] for x in values)
    result, start = whole(Storage(b.name, tuple(shape)), truth=values[0].truth), 0
    for x in values:
        b.copy(x, result.sliced(axis, start, x.shape[axis]))
        start += x.shape[axis]
    return result


@reads("Pad")
def _pad(
    b: Builder,
    x: Value,
    pads: Array,
    fill: Array | None = None,
    axes: Array | None = None,
    mode: str = "constant",
) -> Value:
    known(isinstance(pads, np.ndarray), "a computed Pad")
    chosen = list(range(len(x.shape))) if axes is None else [int(a) % len(x.shape) for a in axes]
    before, after = pads[: len(chosen)], pads[len(chosen) :]
    if mode == "constant":
        each = zip(chosen, before, after, strict=True)
        around = {axis: (int(first), int(last)) for axis, first, last in each}
        return padded(b, x, around, 0.0 if fill is None else float(fill))
    for axis, first, last in zip(chosen, before, after, strict=True):
        if first or last:
            places = np.pad(np.arange(x.shape[axis]), (int(first), int(last)), mode=mode)  # type: ignore[call-overload]
            x = gathered(b, x, places, axis)
    return x


def padded(
    b: Builder, x: Value, pads: dict[int, tuple[int, int]], number: float, steps: Sequence[int] = ()
) -> Value:
    """A number around x and, with ``steps``, between its elements along the padded axes."""
    shape, places = list(x.shape), []
    for i, (axis, (before, after)) in enumerate(pads.items()):
        known(before >= 0 and after >= 0, "a Pad that cuts off")
        step = steps[i] if steps else 1
        shape[axis] = (x.shape[axis] - 1) * step + 1 + before + after
        places.append((axis, before, x.shape[axis], step))
    result = target = whole(Storage(b.name, tuple(shape)))
    b.copy(b.constant(number), result)
    for place in places:
        target = target.sliced(*place)
    b.copy(x, target)
    if number == 0 and set(steps) <= {1}:
        b.unpadded[result] = (x, pads)
    return result
