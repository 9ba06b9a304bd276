"""Linear interpolation: each output is a fixed weighted sum, so the weights are squared for var."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onesigma.rules.table import RULES, Op, RuleFunction, linear_rule
from onesigma.values.gaussian import Gaussian, Uncertain

aten = torch.ops.aten


def _interpolation(op: Op, dims: int) -> RuleFunction:
    """Interpolation is separable: one matrix of weights per axis, found by resizing unit vectors.

        E[y] = op(m),   Var[y] = v with each axis multiplied by its squared weights
    Exact if the elements of the input are independent.
    """

    def apply(x: Uncertain, *args: Any) -> Gaussian:
        var = x.var
        for axis in range(dims):
            weights = _axis_weights(op, x.mean, axis, dims, args)
            moved = var.movedim(2 + axis, -1)
            var = (moved @ (weights * weights)).movedim(-1, 2 + axis)
        return Gaussian(op(x.mean, *args), var)

    return apply


def _axis_weights(op: Op, like: Tensor, axis: int, dims: int, args: tuple[Any, ...]) -> Tensor:
    """The (in, out) matrix of one axis: unit vectors as channels, the other axes of size one."""
    size = like.shape[2 + axis]
    shape = [1, size] + [size if d == axis else 1 for d in range(dims)]
    # From a list, so that it is a constant that .to() moves; torch.eye would fix its dtype.
    rows = [[float(i == j) for j in range(size)] for i in range(size)]
    unit = torch.tensor(rows, dtype=like.dtype, device=like.device).reshape(shape)
    output_size, align_corners, scales = args
    # The other axes stay of size one: a scale below one would leave nothing of them.
    if output_size is not None:
        output_size = [n if d == axis else 1 for d, n in enumerate(output_size)]
    if scales is not None:
        scales = [s if d == axis else 1.0 for d, s in enumerate(scales)]
    resized: Tensor = op(unit, output_size, align_corners, scales)
    return resized.reshape(size, -1)


for _dims, _op in enumerate(
    (
        aten.upsample_linear1d.vec,
        aten.upsample_bilinear2d.vec,
        aten.upsample_trilinear3d.vec,
    ),
    1,
):
    RULES.add(_op)(linear_rule(_interpolation(_op, _dims)))
