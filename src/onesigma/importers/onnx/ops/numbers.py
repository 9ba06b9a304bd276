"""Arithmetic on shapes, and on constants, in numpy.

Sizes that depend on the batch are symbols in an array of objects, for which numpy calls Python's
own operators; so the batch stays open through a chain such as Shape, Gather, Concat, Reshape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma.errors import ModelError
from onesigma.importers.onnx.file import numpy_dtype
from onesigma.importers.onnx.ops.table import Numbers, as_tensor, axes_of, sizes

# No constant of a real network comes near; a file that asks for more is after the memory.
MAX_ELEMENTS = 2**28

NUMBERS: dict[str, Callable[..., Any]] = {
    "Identity": lambda x: x,
    "Shape": lambda x, start=0, end=None: np.array(x.shape[start:end]),
    "Transpose": lambda x, perm=None: np.transpose(x, perm),
}
_OF_EACH_ELEMENT: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Ceil": np.ceil,
    "Equal": lambda a, b: np.asarray(a == b),
    "Floor": np.floor,
    "Max": lambda *values: reduce(np.maximum, values),
    "Min": lambda *values: reduce(np.minimum, values),
    "Mul": lambda a, b: a * b,
    "Neg": np.negative,
    "Sub": lambda a, b: a - b,
    "Where": lambda condition, a, b: np.where(condition.astype(bool), a, b),
}


def numbers(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function that of an ONNX op whose inputs are all numbers."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in NUMBERS, f"{name} has a function already"
        NUMBERS[name] = function
        return function

    return register


def bounded(shape: Sequence[Any]) -> list[Any]:
    """A shape to fill, refused if that would take the memory away."""
    if prod(n for n in shape if isinstance(n, int)) > MAX_ELEMENTS:
        raise ModelError(f"a constant of shape {tuple(shape)} is more than any network needs")
    return list(shape)


def _of_each_element(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*values: Numbers) -> Any:
        bounded(np.broadcast_shapes(*(value.shape for value in values)))
        return function(*values)

    return apply


for _name, _function in _OF_EACH_ELEMENT.items():
    numbers(_name)(_of_each_element(_function))


@numbers("Concat")
def concat(*parts: Numbers, axis: int) -> Numbers:
    bounded([sum(part.size for part in parts)])
    return np.concatenate(parts, axis)


@numbers("Gather")
def gather(x: Numbers, indices: Numbers, *, axis: int = 0) -> Numbers:
    bounded([indices.size, x.size // max(1, x.shape[axis])])
    return np.asarray(np.take(x, indices.astype(np.int64), axis))


@numbers("Cast")
def cast(x: Numbers, *, to: int, saturate: int = 1) -> Numbers:
    dtype = numpy_dtype(to, "the result of a Cast")
    return x if x.dtype == object and dtype[0] in "iu" else x.astype(dtype)


@numbers("Reshape")
def reshape(x: Numbers, shape: Numbers, *, allowzero: int = 0) -> Numbers:
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(sizes(shape))])


@numbers("Squeeze")
def squeeze(
    x: Numbers, listed: Numbers | None = None, *, axes: Sequence[int] | None = None
) -> Numbers:
    dims = axes_of(listed, axes)
    return np.squeeze(x, None if dims is None else tuple(dims))


@numbers("Unsqueeze")
def unsqueeze(
    x: Numbers, listed: Numbers | None = None, *, axes: Sequence[int] | None = None
) -> Numbers:
    return np.expand_dims(x, axes_of(listed, axes) or [])


@numbers("Slice")
def slice_of(
    x: Numbers,
    first: Numbers | None = None,
    last: Numbers | None = None,
    listed: Numbers | None = None,
    steps: Numbers | None = None,
    *,
    starts: Sequence[int] = (),
    ends: Sequence[int] = (),
    axes: Sequence[int] | None = None,
) -> Numbers:
    begin, end = axes_of(first, starts) or [], axes_of(last, ends) or []
    dims = axes_of(listed, axes) or list(range(len(begin)))
    strides = sizes(steps) if steps is not None else [1] * len(begin)
    for dim, *edges in zip(dims, begin, end, strides, strict=True):
        x = x[(np.s_[:],) * (dim % x.ndim) + (np.s_[edges[0] : edges[1] : edges[2]],)]
    return x


@numbers("ReduceProd")
def reduce_prod(
    x: Numbers, listed: Numbers | None = None, *, axes: Any = None, keepdims: int = 1
) -> Numbers:
    dims = axes_of(listed, axes)
    return np.asarray(np.prod(x, tuple(dims) if dims else None, keepdims=bool(keepdims)))


@numbers("Div")
def div(a: Numbers, b: Numbers) -> Numbers:
    """Whole numbers are cut towards zero; sizes that are symbols are never below it."""
    bounded(np.broadcast_shapes(a.shape, b.shape))
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    if object in (a.dtype, b.dtype):
        return np.asarray(a // b)
    return np.asarray(np.sign(a) * np.sign(b) * (abs(a) // abs(b)))


@numbers("ConstantOfShape")
def constant_of_shape(shape: Numbers, *, value: Numbers | None = None) -> Tensor | Numbers:
    number = np.zeros(1, np.float32) if value is None else value
    wanted = bounded(sizes(shape))
    if not all(isinstance(n, int) for n in wanted):
        return torch.full(wanted, number.item(), dtype=as_tensor(number).dtype)
    return np.full(wanted, number.reshape(()), number.dtype)


@numbers("Range")
def arange(start: Numbers, limit: Numbers, delta: Numbers) -> Numbers:
    count = max(0, -(-(limit.item() - start.item()) // delta.item()))
    return np.asarray(start + np.arange(bounded([int(count)])[0], dtype=start.dtype) * delta)


@numbers("Expand")
def expand(x: Numbers, shape: Numbers) -> Tensor | Numbers:
    wanted = bounded(sizes(shape))
    if not all(isinstance(n, int) for n in wanted):
        return as_tensor(x).expand(wanted)
    return np.broadcast_to(x, bounded(np.broadcast_shapes(x.shape, tuple(wanted)))).copy()


@numbers("Tile")
def tile(x: Numbers, repeats: Numbers) -> Numbers:
    bounded([n * m for n, m in zip(x.shape, sizes(repeats), strict=True)])
    return np.tile(x, sizes(repeats))
