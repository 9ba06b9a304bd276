"""Readers of ops that are made of simpler ones: reductions, softmax, normalisation, clips."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod, sqrt
from typing import Any

import numpy as np
import onnx

from onesigma.exporters.c.builder import Builder
from onesigma.exporters.c.graph import Known, known, reads
from onesigma.exporters.c.values import Array, Value


def _reduction(
    kind: str,
    b: Builder,
    x: Value,
    axes: Array | Sequence[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    chosen = [] if axes is None else [int(axis) for axis in axes]
    return x if not chosen and noop_with_empty_axes else b.reduced(kind, x, chosen, bool(keepdims))


for _kind in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
    reads(_kind)(partial(_reduction, _kind))


@reads("ReduceMean")
def _mean(b: Builder, x: Value, axes: Any = None, keepdims: int = 1, **options: int) -> Value:
    total = _reduction("ReduceSum", b, x, axes, keepdims, **options)
    return b.elementwise("Mul", total, total.size / x.size)


@reads("ReduceSumSquare")
def _sum_square(b: Builder, x: Value, *rest: Any, **options: Any) -> Value:
    return _reduction("ReduceSum", b, b.elementwise("Mul", x, x), *rest, **options)


@reads("ReduceL2")
def _norm(b: Builder, x: Value, *rest: Any, **options: Any) -> Value:
    return b.elementwise("Sqrt", _sum_square(b, x, *rest, **options))


@reads("GlobalAveragePool")
def _global_average(b: Builder, x: Value) -> Value:
    return _mean(b, x, range(2, len(x.shape)))


@reads("GlobalMaxPool")
def _global_max(b: Builder, x: Value) -> Value:
    return b.reduced("ReduceMax", x, range(2, len(x.shape)), True)


def _exponentials(b: Builder, x: Value, axis: int) -> tuple[Value, Value, Value]:
    """x less its largest, e to that, and the sum of those."""
    centred = b.elementwise("Sub", x, b.reduced("ReduceMax", x, [axis], True))
    powers = b.elementwise("Exp", centred)
    return centred, powers, b.reduced("ReduceSum", powers, [axis], True)


@reads("Softmax")
def _softmax(b: Builder, x: Value, axis: int = -1) -> Value:
    _, powers, total = _exponentials(b, x, axis)
    return b.elementwise("Div", powers, total)


@reads("LogSoftmax")
def _log_softmax(b: Builder, x: Value, axis: int = -1) -> Value:
    centred, _, total = _exponentials(b, x, axis)
    return b.elementwise("Sub", centred, b.elementwise("Log", total))


@reads("BatchNormalization")
def _batch_norm(
    b: Builder,
    x: Value,
    scale: Array,
    shift: Array,
    mean: Array,
    var: Array,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Value:
    known(not training_mode, "BatchNormalization in training mode")
    known(all(isinstance(a, np.ndarray) for a in (scale, shift, mean, var)), "computed statistics")
    shape = (-1, *[1] * (len(x.shape) - 2))
    factor = scale.astype(np.float64) / np.sqrt(var.astype(np.float64) + epsilon)
    offset = shift - mean * factor
    scaled = b.elementwise("Mul", x, factor.reshape(shape))
    return b.elementwise("Add", scaled, offset.reshape(shape))


@reads("LayerNormalization")
def _layer_norm(
    b: Builder,
    x: Value,
    scale: Known,
    shift: Known | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    axes = list(range(axis % len(x.shape), len(x.shape)))
    count = prod(x.shape[i] for i in axes)
    centred = b.elementwise("Sub", x, _mean(b, x, axes))
    squares = b.reduced("ReduceSum", b.elementwise("Mul", centred, centred), axes, True)
    var = b.elementwise("Add", b.elementwise("Mul", squares, 1 / count), epsilon)
    normal = b.elementwise("Div", centred, b.elementwise("Sqrt", var))
    scaled = b.elementwise("Mul", normal, scale)
    return scaled if shift is None else b.elementwise("Add", scaled, shift)


def _folded(kind: str, b: Builder, *operands: Known) -> Value:
    first, *rest = (b.value(x) for x in operands)
    return reduce(partial(b.elementwise, kind), rest, first)


for _kind, _pairwise in (("Max", "Max"), ("Min", "Min"), ("Sum", "Add")):
    reads(_kind)(partial(_folded, _pairwise))


@reads("Clip")
def _clip(b: Builder, x: Value, low: Known | None = None, high: Known | None = None) -> Value:
    x = x if low is None else b.elementwise("Max", x, low)
    return x if high is None else b.elementwise("Min", x, high)


@reads("Pow")
def _pow(b: Builder, x: Known, exponent: Known) -> Value:
    number = (
        float(exponent.flat[0]) if isinstance(exponent, np.ndarray) and exponent.size == 1 else 0.0
    )
    if number == 2:
        return b.elementwise("Mul", x, x)
    if number in (0.5, -1):
        return b.elementwise("Sqrt" if number == 0.5 else "Reciprocal", x)
    return b.elementwise("Pow", x, exponent)


@reads("Gelu")
def _gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    known(approximate == "none", "Gelu by tanh")
    twice = b.elementwise("Add", b.elementwise("Erf", b.elementwise("Mul", x, sqrt(0.5))), 1.0)
    return b.elementwise("Mul", b.elementwise("Mul", x, 0.5), twice)


@reads("Cast")
def _cast(b: Builder, x: Value, to: int, **_: Any) -> Value:
    if to == onnx.TensorProto.BOOL:
        return x if x.truth else b.elementwise("Truth", x)
    if x.truth:
        return b.elementwise("UnTruth", x)
    real = to in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    return x if real else b.elementwise("Truncate", x)
