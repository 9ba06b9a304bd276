"""Ops that move elements: reshape, permute, slice, join, pad. Mean and variance move alike."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch

from onesigma.errors import UnsupportedOp
from onesigma.rules.arithmetic import full_var, mean_of
from onesigma.rules.table import RULES, Op, Reach, Rule, RuleFunction, passthrough, rule
from onesigma.values.gaussian import Gaussian, Uncertain, Value

aten = torch.ops.aten

passthrough(
    *(aten.reshape.default, aten.flatten.using_ints, aten.unflatten.int),
    *(aten.permute.default, aten.transpose.int, aten.t.default, aten.movedim.int),
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default),
    *(aten.slice.Tensor, aten.narrow.default, aten.select.int),
    *(aten.flip.default, aten.roll.default, aten.rot90.default),
    *(aten.contiguous.default, aten.clone.default, aten.alias.default, aten.detach.default),
    *(aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.channel_shuffle.default),
    *(aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int),
    *(aten.unsafe_split.Tensor, aten.diagonal.default, aten._unsafe_view.default),
)
passthrough(
    *(aten.expand.default, aten.repeat.default),
    *(aten.reflection_pad1d.default, aten.reflection_pad2d.default),
    *(aten.replication_pad1d.default, aten.replication_pad2d.default),
    *(aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec),
    *(aten._upsample_nearest_exact1d.vec, aten._upsample_nearest_exact2d.vec),
    aten._upsample_nearest_exact3d.vec,
    *(aten.index.Tensor, aten.index_select.default, aten.gather.default),
    copies=True,
)


@rule(aten._to_copy.default, family="passthrough", reach=Reach.EACH, moves_only=True)
def cast(x: Uncertain, *, dtype: torch.dtype | None = None, **rest: object) -> Gaussian:
    """Another precision. An integer or a truth value of something uncertain is refused."""
    if dtype is not None and not dtype.is_floating_point:
        raise UnsupportedOp(
            f"a cast to {str(dtype).removeprefix('torch.')} cuts an uncertain value into steps. "
            "Cast before the dropout, or leave the cast out of the model."
        )
    full = x.expanded()
    return Gaussian(full.mean.to(dtype=dtype), full.var.to(dtype=dtype))


@rule(aten.nan_to_num.default, family="passthrough", reach=Reach.EACH)
def nan_to_num(x: Uncertain, *numbers: float | None) -> Gaussian:
    """What is put in the place of NaN or infinity is certain, the rest stays. Exact."""
    mean = aten.nan_to_num.default(x.mean, *numbers)
    return Gaussian(mean, torch.where(torch.isfinite(x.mean), x.var, 0.0))


@rule(aten.view.default, family="passthrough", reach=Reach.MOVES, moves_only=True)
def view(x: Uncertain, shape: list[int]) -> Gaussian:
    """A view of the mean need not be one of the variance, whose batch may be expanded from 1."""
    return Gaussian(aten.view.default(x.mean, shape), aten.reshape.default(x.expanded().var, shape))


@rule(operator.getitem, family="passthrough", reach=Reach.MOVES, moves_only=True)
def getitem(values: Sequence[Value], index: int) -> Value:
    """Take one of several outputs (split, chunk, unbind)."""
    return values[index]


def _of_the_shape(op: Op) -> RuleFunction:
    """What depends on the shape alone is certain."""
    return lambda x, *args, **kwargs: op(x.mean, *args, **kwargs)


for _op in (
    *(aten.sym_size.int, aten.sym_numel.default),
    *(aten.zeros_like.default, aten.ones_like.default, aten.full_like.default),
    *(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
):
    RULES.add(_op)(Rule(_of_the_shape(_op), "passthrough", certain=True))


def _join(op: Op) -> RuleFunction:
    """Join along a dimension. Parts that are certain get zeros: there is no other way."""

    def apply(values: Sequence[Value], dim: int = 0) -> Gaussian:
        return Gaussian(op([*map(mean_of, values)], dim), op([*map(full_var, values)], dim))

    return apply


for _op in (aten.cat.default, aten.stack.default):
    RULES.add(_op)(Rule(_join(_op), "passthrough", reach=Reach.MOVES, moves_only=True))


def _reach_of_pad(x: object, pad: object, mode: str = "constant", value: object = None) -> Reach:
    # What is added depends on nothing.
    return Reach.GROUPS if mode == "constant" else Reach.COPIES


@rule(aten.pad.default, family="passthrough", reach=_reach_of_pad, moves_only=True)
def pad(x: Uncertain, pad: list[int], mode: str = "constant", value: float | None = None) -> Value:
    """Constant padding adds certain values; the other modes copy elements. Exact."""
    var = x.expanded().var if len(pad) == 2 * x.mean.dim() else x.var  # the batch itself is padded
    mean = aten.pad.default(x.mean, pad, mode, value)
    return Gaussian(mean, aten.pad.default(var, pad, mode, None))
