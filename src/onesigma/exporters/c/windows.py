"""Readers of pools, resizing and the like: windows are one more way to look at the input."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import numpy as np

from onesigma.exporters.c.builder import Builder
from onesigma.exporters.c.graph import known, reads
from onesigma.exporters.c.shapes import gathered, padded
from onesigma.exporters.c.values import Array, Value

Sizes = Sequence[int]


def _windows(
    b: Builder,
    x: Value,
    kernel: Sizes,
    strides: Sizes,
    pads: Sizes,
    dilations: Sizes,
    ceil: bool,
    around: float,
) -> Value:
    """x as (…, places, inside of a window), with ``around`` where a window leaves the input."""
    dims = len(kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    counts, zeros = [], {}
    for i in range(dims):
        room = x.shape[2 + i] + pads[i] + pads[i + dims] - reach[i]
        count = (-(-room // strides[i]) if ceil else room // strides[i]) + 1
        # A window that would begin behind the input and its first padding is left out.
        if ceil and (count - 1) * strides[i] >= x.shape[2 + i] + pads[i]:
            count -= 1
        counts.append(count)
        needed = (count - 1) * strides[i] + reach[i]
        zeros[2 + i] = (pads[i], max(0, needed - x.shape[2 + i] - pads[i]))
    if any(sum(pair) for pair in zeros.values()):
        x = padded(b, x, zeros, around)
    for i in range(dims):
        x = x.windowed(2 + i, counts[i], strides[i], kernel[i], dilations[i])
    return x


@reads("MaxPool")
def _max_pool(
    b: Builder,
    x: Value,
    kernel_shape: Sizes,
    strides: Sizes | None = None,
    pads: Sizes | None = None,
    dilations: Sizes | None = None,
    ceil_mode: int = 0,
    auto_pad: str = "NOTSET",
    storage_order: int = 0,
) -> Value:
    known(auto_pad in ("NOTSET", "VALID"), f"MaxPool with auto_pad {auto_pad}")
    dims, ones = len(kernel_shape), [1] * len(kernel_shape)
    options = (strides or ones, pads or [0] * 2 * dims, dilations or ones, bool(ceil_mode))
    windows = _windows(b, x, kernel_shape, *options, -inf)
    return b.reduced("ReduceMax", windows, range(-dims, 0), False)


@reads("AveragePool")
def _average_pool(
    b: Builder,
    x: Value,
    kernel_shape: Sizes,
    strides: Sizes | None = None,
    pads: Sizes | None = None,
    dilations: Sizes | None = None,
    ceil_mode: int = 0,
    auto_pad: str = "NOTSET",
    count_include_pad: int = 0,
) -> Value:
    known(auto_pad in ("NOTSET", "VALID"), f"AveragePool with auto_pad {auto_pad}")
    dims, ones = len(kernel_shape), [1] * len(kernel_shape)
    known(not (ceil_mode and count_include_pad), "AveragePool that counts padding beyond its own")
    pads = pads or [0] * 2 * dims
    options = (strides or ones, pads, dilations or ones)
    windows = _windows(b, x, kernel_shape, *options, bool(ceil_mode), 0.0)
    total = b.reduced("ReduceSum", windows, range(-dims, 0), False)
    if count_include_pad or (not any(pads) and not ceil_mode):
        return b.elementwise("Mul", total, 1 / prod(kernel_shape))
    inside = _inside(x.shape[2:], total.shape[2:], kernel_shape, *options)
    return b.elementwise("Mul", total, 1 / inside)


def _inside(
    sizes: Sizes, counts: Sizes, kernel: Sizes, strides: Sizes, pads: Sizes, dilations: Sizes
) -> Array:
    """How many elements of each window are the input's own."""
    axes = []
    for i, size in enumerate(sizes):
        starts = np.arange(counts[i])[:, None] * strides[i] - pads[i]
        taps = starts + np.arange(kernel[i]) * dilations[i]
        axes.append(((taps >= 0) & (taps < size)).sum(1))
    return np.asarray(prod(np.ix_(*axes)), dtype=np.float64)


@reads("Resize")
def _resize(
    b: Builder,
    x: Value,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    **_: object,
) -> Value:
    """Along one axis after another: the nearest element, or two of them mixed."""
    known(mode in ("nearest", "linear"), f"Resize by mode {mode}")
    grid = coordinate_transformation_mode
    known(grid in ("half_pixel", "asymmetric"), f"Resize with {grid} coordinates")
    for axis, n in enumerate(x.shape):
        scale = float(scales[axis]) if scales is not None and scales.size else 0.0
        out = int(n * scale) if scale else int(sizes[axis])  # type: ignore[index]
        scale = scale or out / n
        if out == n and scale == 1:
            continue
        at = (
            np.arange(out) / scale if grid == "asymmetric" else (np.arange(out) + 0.5) / scale - 0.5
        )
        x = _nearest(b, x, axis, at, nearest_mode) if mode == "nearest" else _mixed(b, x, axis, at)
    return x


def _nearest(b: Builder, x: Value, axis: int, at: Array, rounding: str) -> Value:
    half = {"floor": 0.0, "ceil": 0.0, "round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}
    up = rounding in ("ceil", "round_prefer_floor")
    rounded = (np.ceil if up else np.floor)(at + half[rounding])
    return gathered(b, x, rounded.clip(0, x.shape[axis] - 1).astype(np.int64), axis)


def _mixed(b: Builder, x: Value, axis: int, at: Array) -> Value:
    left = np.floor(at)
    share = (at - left).reshape(-1, *[1] * (len(x.shape) - axis - 1))
    last = x.shape[axis] - 1
    low, high = (gathered(b, x, i.clip(0, last).astype(np.int64), axis) for i in (left, left + 1))
    return b.elementwise(
        "Add", b.elementwise("Mul", low, 1 - share), b.elementwise("Mul", high, share)
    )


@reads("ArgMax")
def _argmax(
    b: Builder, x: Value, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Value:
    known(not select_last_index, "ArgMax that takes the last of equals")
    axis %= len(x.shape)
    moved = x.transposed([i for i in range(len(x.shape)) if i != axis] + [axis])
    outer = moved.shape[:-1]
    found = b.add("ArgMax", [b.dense(moved)], outer)
    kept = [1 if i == axis else n for i, n in enumerate(x.shape)]
    return b.reshape(found, kept if keepdims else list(outer))
