"""Readers of ops with weights or windows; each becomes one node that renders itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onesigma.exporters.c.builder import Builder
from onesigma.exporters.c.conv import Geometry
from onesigma.exporters.c.graph import Known, known, reads
from onesigma.exporters.c.shapes import padded
from onesigma.exporters.c.values import Array, Storage, Value, whole

Sizes = Sequence[int]
# A product with many rows and few columns, as quadratures have, is computed as sums.
_MANY_ROWS, _FEW_OUTPUTS = 8, 8


@reads("Conv")
def _conv(
    b: Builder,
    x: Value,
    weight: Array,
    bias: Array | None = None,
    kernel_shape: Sizes | None = None,
    strides: Sizes | None = None,
    pads: Sizes | None = None,
    dilations: Sizes | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Value:
    known(
        isinstance(weight, np.ndarray) and not isinstance(bias, Value), "Conv by computed weights"
    )
    known(auto_pad in ("NOTSET", "VALID"), f"Conv with auto_pad {auto_pad}")
    dims = len(x.shape) - 2
    known(dims in (1, 2), f"Conv of {dims} dimensions")
    around = list(pads or [0] * 2 * dims)
    if x in b.unpadded and set(b.unpadded[x][1]) <= _with_padding(b, x):
        x, zeros = b.unpadded[x]
        for axis, (before, after) in zeros.items():
            if axis >= 2:
                around[axis - 2] += before
                around[axis - 2 + dims] += after
    return convolved(
        b, x, weight, bias, strides or [1] * dims, around, dilations or [1] * dims, group
    )


def _with_padding(b: Builder, x: Value) -> set[int]:
    """The axes along which a convolution pads, and those that were padded by nothing."""
    spatial = set(range(2, len(x.shape)))
    return spatial | {axis for axis, pad in b.unpadded[x][1].items() if pad == (0, 0)}


def convolved(
    b: Builder,
    x: Value,
    weight: Array,
    bias: Array | None,
    strides: Sizes,
    pads: Sizes,
    dilations: Sizes,
    groups: int,
) -> Value:
    sizes, kernel, dims = x.shape[2:], weight.shape[2:], len(x.shape) - 2
    if set(kernel) == set(strides) == {1} and not any(pads):
        filters, depth = weight.shape[:2]
        if filters == 1 or (depth == 1 and x.shape[1] in (1, filters)):
            return _pointwise(b, x, weight, bias)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [(n + pads[i] + pads[i + dims] - reach[i]) // strides[i] + 1 for i, n in enumerate(sizes)]
    flat = dims == 1
    geometry = Geometry(
        channels=x.shape[1],
        filters=weight.shape[0],
        groups=groups,
        size=_pair(sizes, flat, 1),
        kernel=_pair(kernel, flat, 1),
        stride=_pair(strides, flat, 1),
        dilation=_pair(dilations, flat, 1),
        before=_pair(pads[:dims], flat, 0),
        out=_pair(out, flat, 1),
    ).simplest(padded=any(pads))
    return _weighted(b, "Conv", b.dense(x), weight, bias, geometry, (1, weight.shape[0], *out))


def _pointwise(b: Builder, x: Value, weight: Array, bias: Array | None) -> Value:
    """One number per channel: a product, for which a loop has room, and perhaps a sum."""
    result = b.elementwise("Mul", x, weight.reshape(-1, *weight.shape[2:]))
    if weight.shape[0] == 1:
        result = b.reduced("ReduceSum", result, [1], True)
    shape = (-1, *[1] * (len(x.shape) - 2))
    return result if bias is None else b.elementwise("Add", result, bias.reshape(shape))


def _pair(sizes: Sizes, flat: bool, first: int) -> tuple[int, int]:
    return (first, int(sizes[0])) if flat else (int(sizes[0]), int(sizes[1]))


def _weighted(
    b: Builder,
    kind: str,
    x: Value,
    weight: Array,
    bias: Array | None,
    geometry: Any,
    shape: tuple[int, ...],
) -> Value:
    weight = np.ascontiguousarray(weight.reshape(weight.shape[0], -1), dtype=np.float32)
    attributes = {"weight": weight, "bias": bias, "geometry": geometry, "power": 1, "factor": None}
    return b.add(kind, [x], shape, attributes)


@reads("ConvTranspose")
def _conv_transpose(
    b: Builder,
    x: Value,
    weight: Array,
    bias: Array | None = None,
    kernel_shape: Sizes | None = None,
    strides: Sizes | None = None,
    pads: Sizes | None = None,
    dilations: Sizes | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_padding: Sizes | None = None,
    output_shape: Sizes | None = None,
) -> Value:
    """A convolution by the flipped kernel over the input with zeros between its elements."""
    known(isinstance(weight, np.ndarray), "ConvTranspose by computed weights")
    known(auto_pad == "NOTSET" and output_shape is None, "ConvTranspose by its output's shape")
    dims = len(x.shape) - 2
    known(dims in (1, 2), f"ConvTranspose of {dims} dimensions")
    strides, dilations = strides or [1] * dims, dilations or [1] * dims
    pads, extra = pads or [0] * 2 * dims, output_padding or [0] * dims
    around = {}
    for i in range(dims):
        reach = (weight.shape[2 + i] - 1) * dilations[i]
        around[2 + i] = (reach - pads[i], reach - pads[i + dims] + extra[i])
    spread = padded(b, x, around, 0.0, list(strides))
    inputs, outputs, *kernel = weight.shape
    split = weight.reshape(group, inputs // group, outputs, *kernel).swapaxes(1, 2)
    flipped = np.flip(
        split.reshape(group * outputs, inputs // group, *kernel), tuple(range(2, 2 + dims))
    )
    return convolved(b, spread, flipped, bias, [1] * dims, [0] * 2 * dims, dilations, group)


@reads("Gemm")
def _gemm(
    b: Builder,
    x: Value,
    weight: Known,
    bias: Known | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's own names)
    transB: int = 0,  # noqa: N803
) -> Value:
    rows = x.transposed([1, 0]) if transA else x
    if isinstance(weight, Value) or not isinstance(x, Value):
        right = b.value(weight)
        product = _product(b, rows, right.transposed([1, 0]) if transB else right)
        scaled = b.elementwise("Mul", product, alpha)
        return scaled if bias is None else b.elementwise("Add", scaled, b.value(bias))
    by_output = alpha * (weight if transB else weight.T)
    if isinstance(bias, np.ndarray) and bias.size == by_output.shape[0]:
        return _dense(b, rows, by_output, beta * bias.ravel())
    result = _dense(b, rows, by_output, None)
    if bias is None:
        return result
    return b.elementwise("Add", result, b.elementwise("Mul", b.value(bias), beta))


def _dense(b: Builder, x: Value, weight: Array, bias: Array | None) -> Value:
    rows = prod(x.shape[:-1])
    if rows >= _MANY_ROWS and len(weight) <= _FEW_OUTPUTS and bias is None:
        return _sums(b, x, weight)
    shape = (*x.shape[:-1], weight.shape[0])
    return _weighted(b, "Dense", b.dense(x), weight, bias, rows, shape)


def _sums(b: Builder, x: Value, weight: Array) -> Value:
    """Each output as a sum of products: the loop that computes x can sum, and need not store x."""
    result = whole(Storage(b.name, (*x.shape[:-1], len(weight))))
    for i, row in enumerate(weight):
        total = b.reduced("ReduceSum", b.elementwise("Mul", x, row), [-1], True)
        b.copy(total, result.sliced(len(x.shape) - 1, i, 1))
    return result


@reads("MatMul")
def _matmul(b: Builder, left: Known, right: Known) -> Value:
    if isinstance(left, Value) and isinstance(right, np.ndarray) and right.ndim == 2:
        return _dense(b, left, right.T, None)
    return _product(b, b.value(left), b.value(right))


def _product(b: Builder, left: Value, right: Value) -> Value:
    """Two arrays that are both computed: a sum of products with a dimension more."""
    known(len(left.shape) > 1 and len(right.shape) > 1, "MatMul of a vector")
    *batch, m, k = left.shape
    *others, _, n = right.shape
    joint = tuple(np.broadcast_shapes(tuple(batch), tuple(others)))
    a = b.reshape(left, [*batch, m, 1, k]).broadcast((*joint, m, n, k))
    swapped = right.transposed([*range(len(others)), len(others) + 1, len(others)])
    c = b.reshape(swapped, [*others, 1, n, k]).broadcast((*joint, m, n, k))
    return b.reduced("ReduceSum", b.elementwise("Mul", a, c), [-1], False)
