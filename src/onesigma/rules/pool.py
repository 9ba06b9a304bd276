"""Pooling and resizing. Averages and interpolation are linear; maxima take Clark's formula."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import ceil, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onesigma.moments.piecewise import maximum
from onesigma.rules.corrections import UNCORRELATED, MaximumCorrelation
from onesigma.rules.table import (
    ALWAYS_APPROXIMATE,
    INDEPENDENT,
    NORMAL,
    RULES,
    Op,
    Reach,
    RuleFunction,
    RuleOptions,
    linear_rule,
    rule,
)
from onesigma.values.gaussian import Gaussian, Uncertain

aten = torch.ops.aten

_MAXIMUM: RuleOptions = {
    "family": "maximum",
    "assumes": (INDEPENDENT, NORMAL, ALWAYS_APPROXIMATE),  # exact for two members alone
    "note": "maximum member by member, each result taken as normal (Clark 1961); members that "
    "share noise as correlated by 0.5 until calibrated",
    "accepts": (MaximumCorrelation,),
    "is_maximum": True,
    "bends": True,
}
_MAXIMUM_OVER: RuleOptions = {**_MAXIMUM, "reach": Reach.GROUPS}
# Stands for −∞ in padding: no std comes near it, and unlike −∞ it subtracts from itself.
_VERY_LOW = -1e30


def _sizes(value: Sequence[int], dims: int) -> list[int]:
    return list(value) * dims if len(value) == 1 else list(value)


def _average_pool(op: Op, dims: int) -> RuleFunction:
    """Average over a window of n:  E[y] = avg(m),  Var[y] = avg(v) / n. Exact if independent.

    At a padded border n is the divisor used there, found by pooling ones.
    """

    def apply(
        x: Uncertain,
        kernel_size: list[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Gaussian:
        args = [kernel_size, list(stride), list(padding), ceil_mode, count_include_pad]
        if dims > 1:
            args.append(divisor_override)
        mean, var = op(x.mean, *args), op(x.var, *args)
        if divisor_override is None and not any(padding) and not ceil_mode:
            return Gaussian(mean, var / prod(_sizes(kernel_size, dims)))
        # One sample, one channel; (batch, size) without channels is a valid input too.
        shape = [1] * (var.dim() - dims) + list(x.mean.shape[-dims:])
        ones = torch.ones(shape, dtype=var.dtype, device=var.device)
        cells = _window_count(ones, kernel_size, list(stride), list(padding), ceil_mode, dims)
        return Gaussian(mean, var * (op(ones, *args) / cells))

    return apply


def _window_count(
    ones: Tensor, kernel: list[int], stride: list[int], pad: list[int], ceil_mode: bool, dims: int
) -> Tensor:
    """How many real cells each window holds. Only the 2-d and 3-d ops can count (divisor 1)."""
    if dims > 1:
        pool = F.avg_pool2d if dims == 2 else F.avg_pool3d
        return pool(ones, kernel, stride or None, pad, ceil_mode, True, 1)
    wide, step, margin = [1, *kernel], [1, *(stride or kernel)], [0, *pad]
    return F.avg_pool2d(ones.unsqueeze(-2), wide, step, margin, ceil_mode, True, 1).squeeze(-2)


def _adaptive_average_pool(op: Op, dims: int) -> RuleFunction:
    """As ``_average_pool``; the windows may differ in size when the sizes do not divide."""

    def apply(x: Uncertain, output_size: list[int]) -> Gaussian:
        mean, var = op(x.mean, output_size), op(x.var, output_size)
        for axis in range(-dims, 0):
            low, high = _adaptive_windows(x.mean.shape[axis], mean.shape[axis])
            shares = torch.tensor(
                [1 / (b - a) for a, b in zip(low, high, strict=True)], dtype=var.dtype
            )
            var = var * shares.to(var.device).reshape([-1] + [1] * (-axis - 1))
        return Gaussian(mean, var)

    return apply


def _adaptive_windows(size: int, windows: int) -> tuple[list[int], list[int]]:
    low = [i * size // windows for i in range(windows)]
    return low, [ceil((i + 1) * size / windows) for i in range(windows)]


def _max_pool(op: Op, dims: int) -> RuleFunction:
    """Maximum over a window, member by member. Exact for one pair of normals."""

    def apply(
        x: Uncertain,
        kernel_size: list[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
        *,
        correlation: MaximumCorrelation = UNCORRELATED,
    ) -> Gaussian:
        kernel, step = _sizes(kernel_size, dims), _sizes(stride or kernel_size, dims)
        pad, spacing = _sizes(padding, dims), _sizes(dilation, dims)
        like = op(x.mean, kernel_size, list(stride), list(padding), list(dilation), ceil_mode)
        out = like.shape[-dims:]
        reach = [
            (o - 1) * s + (k - 1) * d + 1
            for o, s, k, d in zip(out, step, kernel, spacing, strict=True)
        ]
        sizes = list(zip(reach, x.mean.shape[-dims:], pad, strict=True))[::-1]
        margins = [
            n for need, size, before in sizes for n in (before, max(0, need - size - before))
        ]
        x = x.expanded()
        mean, var = F.pad(x.mean, margins, value=_VERY_LOW), F.pad(x.var, margins)
        members = []
        for offset in product(*(range(k) for k in kernel)):
            window: tuple[Any, ...] = tuple(
                slice(o * d, o * d + (n - 1) * s + 1, s)
                for o, d, n, s in zip(offset, spacing, out, step, strict=True)
            )
            members.append((mean[(..., *window)], var[(..., *window)]))
        return Gaussian(*maximum_of(members, correlation.value))

    return apply


def maximum_of(
    members: list[tuple[Tensor, Tensor]], correlation: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The largest of several, one after the other, each two of them equally correlated.

    A chain, and not a tree of pairs: each new member is truly normal, so only one side of a pair
    is an approximation. Of 64 equal normals the chain's std is 0.84 of the true one, a tree's 0.59;
    sorting the members first gains nothing (docs/how-it-works.md).
    """
    return reduce(lambda top, new: maximum(top[0], top[1], new[0], new[1], correlation), members)


def _adaptive_max_pool(op: Op, dims: int) -> RuleFunction:
    """Maximum over adaptive windows; returns (values, indices) as the op does."""

    def apply(
        x: Uncertain, output_size: list[int], *, correlation: MaximumCorrelation = UNCORRELATED
    ) -> list[Any]:
        _, indices = op(x.mean, output_size)
        value = x.expanded()
        for axis, windows in zip(range(-dims, 0), _sizes(output_size, dims), strict=True):
            low, high = _adaptive_windows(value.mean.shape[axis], windows)
            parts = [
                _maximum_along(value, axis, start, stop, correlation.value)
                for start, stop in zip(low, high, strict=True)
            ]
            value = Gaussian(
                torch.cat([p.mean for p in parts], axis), torch.cat([p.var for p in parts], axis)
            )
        return [value, indices]

    return apply


def _maximum_along(x: Uncertain, axis: int, start: int, stop: int, correlation: float) -> Gaussian:
    members = [(x.mean.narrow(axis, i, 1), x.var.narrow(axis, i, 1)) for i in range(start, stop)]
    return Gaussian(*maximum_of(members, correlation))


@rule(aten.amax.default, **_MAXIMUM_OVER)
def amax(
    x: Uncertain,
    dim: Sequence[int] = (),
    keepdim: bool = False,
    *,
    correlation: MaximumCorrelation = UNCORRELATED,
) -> Gaussian:
    """The largest over whole dims (global max pooling)."""
    value, rank = x.expanded(), x.mean.dim()
    for axis in sorted((d % rank for d in dim or range(rank)), reverse=True):  # no dims means all
        value = _maximum_along(value, axis, 0, value.mean.shape[axis], correlation.value)
        if not keepdim:
            value = Gaussian(value.mean.squeeze(axis), value.var.squeeze(axis))
    return value


def _windows_apart(
    x: object, kernel: Sequence[int], stride: Sequence[int] = (), *rest: object, **more: object
) -> Reach:
    """Windows that do not overlap are groups of their own."""
    dims = max(len(kernel), len(stride))
    pairs = zip(_sizes(stride or kernel, dims), _sizes(kernel, dims), strict=True)
    apart = all(step >= size for step, size in pairs)
    return Reach.GROUPS if apart and not more and len(rest) < 2 else Reach.MIXES


_MAX_POOL: RuleOptions = {**_MAXIMUM, "reach": _windows_apart}
for _dims in (1, 2, 3):
    _op = getattr(aten, f"avg_pool{_dims}d").default
    RULES.add(_op)(linear_rule(_average_pool(_op, _dims), reach=_windows_apart))
    _op = getattr(aten, f"adaptive_avg_pool{_dims}d").default
    RULES.add(_op)(linear_rule(_adaptive_average_pool(_op, _dims)))
    _op = getattr(aten, f"max_pool{_dims}d").default
    rule(_op, **_MAX_POOL)(_max_pool(_op, _dims))
    _op = getattr(aten, f"adaptive_max_pool{_dims}d").default
    rule(_op, **_MAXIMUM)(_adaptive_max_pool(_op, _dims))


@rule(
    aten.topk.default,
    family="maximum",
    assumes=(ALWAYS_APPROXIMATE,),
    note="which ones are the largest is taken as certain, at the means",
    bends=True,
)
def topk(
    x: Uncertain, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Any]:
    """The k largest: those of the largest means, with their own variances. v → 0 gives the op.

    Good where the means are further apart than the stds; of five equal normals the largest comes
    out 1.16 deviations too low, its std 1.5 times too large.
    """
    values, index = aten.topk.default(x.mean, k, dim, largest, sorted)
    return [Gaussian(values, x.expanded().var.gather(dim, index)), index]


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


for _op, _dims in (
    (aten.upsample_linear1d.vec, 1),
    (aten.upsample_bilinear2d.vec, 2),
    (aten.upsample_bicubic2d.vec, 2),
    (aten.upsample_trilinear3d.vec, 3),
):
    RULES.add(_op)(linear_rule(_interpolation(_op, _dims)))
