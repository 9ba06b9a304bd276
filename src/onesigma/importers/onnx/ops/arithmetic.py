"""Sums, products, comparisons, reductions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma.importers.onnx.ops.table import (
    Numbers,
    Operand,
    as_tensor,
    axes_of,
    covers,
    onnx_op,
)


def _pair(a: Operand, b: Operand) -> tuple[Any, Any]:
    """A single number as a Python number, for which rules are simplest; else two tensors."""
    numbers = (isinstance(a, np.ndarray), isinstance(b, np.ndarray))
    if numbers == (False, False):
        return a, b
    tensor, number = (b, a) if numbers[0] else (a, b)
    assert isinstance(tensor, Tensor)
    assert isinstance(number, np.ndarray)
    # A single number of more dimensions than the tensor would add some.
    single = number.size == 1 and number.ndim <= tensor.dim()
    plain: Any = number.item() if single else as_tensor(number, tensor.device)
    return (plain, tensor) if numbers[0] else (tensor, plain)


_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "And": torch.logical_and,
    "Equal": lambda a, b: a == b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Mul": lambda a, b: a * b,
    "Or": torch.logical_or,
    "Sub": lambda a, b: a - b,
}


def _of_two(function: Callable[[Any, Any], Any]) -> Callable[[Operand, Operand], Tensor]:
    def apply(a: Operand, b: Operand, /) -> Tensor:
        result: Tensor = function(*_pair(a, b))
        return result

    return apply


for _name, _function in _OF_TWO.items():
    onnx_op(_name)(_of_two(_function))


@onnx_op("Div")
def div(a: Operand, b: Operand, /) -> Tensor:
    top, bottom = _pair(a, b)
    whole = isinstance(top, Tensor) and not top.is_floating_point()
    result: Tensor = torch.div(top, bottom, rounding_mode="trunc") if whole else top / bottom
    return result


@onnx_op("Pow")
def power(x: Tensor, exponent: Operand, /) -> Tensor:
    base, plain = _pair(x, exponent)
    result: Tensor = base**plain
    return result


def _extreme(clamp: Callable[..., Tensor], of_two: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def of_both(a: Operand, b: Operand) -> Tensor:
        x, y = _pair(a, b)
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return of_two(x, y)
        return clamp(x, y) if isinstance(x, Tensor) else clamp(y, x)

    def apply(*values: Operand) -> Tensor:
        return _joined(of_both, values)

    return apply


def _joined(function: Callable[[Any, Any], Any], values: Sequence[Any]) -> Tensor:
    covers(values, "no operand")
    result: Tensor = reduce(function, values)
    return result


onnx_op("Max")(_extreme(torch.clamp_min, torch.maximum))
# A minimum of two uncertain values has no rule of its own; a maximum has.
onnx_op("Min")(_extreme(torch.clamp_max, lambda a, b: -torch.maximum(-a, -b)))


@onnx_op("Sum")
def total(*values: Operand) -> Tensor:
    return _joined(lambda a, b: operator.add(*_pair(a, b)), values)


@onnx_op("Mean")
def mean(*values: Operand) -> Tensor:
    result: Tensor = total(*values) / len(values)
    return result


@onnx_op("Where")
def where(condition: Tensor, a: Tensor, b: Tensor, /) -> Tensor:
    return torch.where(condition, a, b)


def _reduction(function: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[..., Tensor]:
    def apply(
        x: Tensor,
        listed: Numbers | None = None,
        /,
        *,
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        dims = axes_of(listed, axes) or []
        if not dims and noop_with_empty_axes:
            return x
        return function(x, dims or list(range(x.dim())), keepdims == 1)

    return apply


_REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceL2": lambda x, dims, keep: (x * x).sum(dims, keep).sqrt(),
    "ReduceMax": torch.amax,
    "ReduceMean": lambda x, dims, keep: x.mean(dims, keep),
    "ReduceMin": lambda x, dims, keep: -torch.amax(-x, dims, keep),
    "ReduceSum": lambda x, dims, keep: x.sum(dims, keep),
    "ReduceSumSquare": lambda x, dims, keep: (x * x).sum(dims, keep),
}
for _kind, _reduce in _REDUCTIONS.items():
    onnx_op(_kind)(_reduction(_reduce))
