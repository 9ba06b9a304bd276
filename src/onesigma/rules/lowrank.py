"""Low rank: the variance of a layer as one field, and one number for each filter.

w² is not negative, so the product of its sums is its best rank-1 approximation (in generalised
KL), and keeps the sum of each filter:

    w²[k, c, u] ≈ a_k · b_c · g_u        a sums over c and u, b and g likewise, of total 1
    Var[y_k] = a_k · s,   s = g ∗ Σ_c b_c v_c

One field s in place of one per filter: the variance costs 1/filters of the mean. These rules are
merged over the common table; an op that has none here sees the variance in full.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from onesigma.rules.corrections import Gain, Parts
from onesigma.rules.dropout import UNCORRECTED, dropout
from onesigma.rules.table import (
    ALWAYS_APPROXIMATE,
    INDEPENDENT,
    NORMAL,
    RULES,
    Op,
    Reach,
    Rule,
    RuleFunction,
)
from onesigma.values.factored import Factored, Flattened, factored
from onesigma.values.gaussian import Uncertain, Value

aten = torch.ops.aten

_NOTE = "low rank: w² as a product of sums over filters, channels and kernel"
_GROUPS = 4  # where it stands among what follows the weight: bias, stride, padding, dilation
_CONVOLUTIONS = {
    1: (aten.conv1d.default, aten.conv1d.padding),
    2: (aten.conv2d.default, aten.conv2d.padding),
    3: (aten.conv3d.default, aten.conv3d.padding),
}
# What the share of mean² is raised by. Moments of a uniform are differences: with a spread of less
# than a hundredth of the layer's inputs, they would lose their digits.
_LEAST_SQUARE = 1e-4
HALF_WIDTH = math.sqrt(3)


def rank_one(weight: Tensor, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """a (filters), b (groups × channels in one) and g (groups × kernel) of the squared weight."""
    squared = (weight * weight).reshape(groups, -1, *weight.shape[1:])
    kernel = tuple(range(3, squared.dim()))
    filters = squared.sum((2, *kernel))
    total = filters.sum(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    channels = squared.sum((1, *kernel)) / total
    taps = squared.sum((1, 2)) / total.reshape(-1, *[1] * len(kernel))
    return filters.flatten(), channels, taps


def _convolution(op: Op, dims: int) -> RuleFunction:
    def apply(x: Uncertain, weight: Tensor, *rest: Any) -> Uncertain:
        groups = rest[_GROUPS] if len(rest) > _GROUPS else 1
        if weight.shape[1] == 1:  # one channel for each filter: there is nothing to sum
            return RULES[op].apply((x, weight, *rest), {})  # type: ignore[no-any-return]
        filters, channels, taps = rank_one(weight, groups)
        field = channel_sum(factored(x), channels)
        position = op(field, taps.unsqueeze(1), None, *rest[1:_GROUPS], *rest[_GROUPS:])
        mean, scale = op(x.mean, weight, *rest), filters.reshape(-1, *[1] * dims)
        if groups == 1:
            return Factored(mean, scale, position)
        # Each group's field once for each of its filters.
        copies = [-1, -1, len(weight) // groups, *[-1] * dims]
        return Factored(mean, scale, gate=position.unsqueeze(2).expand(copies).flatten(1, 2))

    return apply


def _linear(x: Uncertain, weight: Tensor, bias: Tensor | None = None) -> Uncertain:
    """As a convolution whose inputs are all channels, or, if they were flattened, with positions:

    b[c, i] ≈ b_c · g_i
    """
    filters, channels, _ = rank_one(weight, 1)
    if isinstance(x, Flattened):
        inside = channels.reshape(x.inside.mean.shape[1], -1)
        field = channel_sum(x.inside, inside.sum(1).unsqueeze(0)).flatten(1)
        position = aten.linear.default(field, inside.sum(0).unsqueeze(0))
    else:
        position = channel_sum(factored(x), channels, dim=-1)
    return Factored(aten.linear.default(x.mean, weight, bias), filters, position)


def channel_sum(x: Factored, channels: Tensor, *, dim: int = 1) -> Tensor:
    """Σ_c b_c v_c in each group of channels, without computing v if its factors lie along them.

    ``dim`` is that of the channels: 1, or −1 for the features of a linear layer.
    """
    if not _lies_along(x, dim):
        x = Factored(x.mean, gate=x.var)
    parts = []
    if x.product is not None:
        scale = x.scale.reshape(channels.shape) if isinstance(x.scale, Tensor) else x.scale
        weighted = channels * scale
        if x.gate is not None:
            part = _sums(x.gate, weighted, dim)
            parts.append(part if x.position is None else part * x.position)
        elif x.position is not None:
            total = weighted.sum(1).reshape(-1, *[1] * (x.mean.dim() - 2))
            parts.append(x.position * total)
    if x.square:
        parts.append(_sums(x.mean * x.mean, channels * (x.square + _LEAST_SQUARE), dim))
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _lies_along(x: Factored, dim: int) -> bool:
    """Whether the scale is one number for each channel, and the position one for all of them."""
    if isinstance(x.scale, Tensor):
        shape = [1] * x.mean.dim()
        shape[dim] = x.mean.shape[dim]
        if tuple(x.scale.shape) != tuple(shape[1 if dim == 1 else dim :]):
            return False
    return x.position is None or x.position.shape[dim] == 1


def _sums(field: Tensor, channels: Tensor, dim: int) -> Tensor:
    """Σ_c b_c · field_c in each group."""
    dims = field.dim() - 2
    if dim != 1 or dims not in _CONVOLUTIONS:
        return aten.linear.default(field, channels)  # type: ignore[no-any-return]
    weight = channels.reshape(*channels.shape, *[1] * dims)
    convolution = _CONVOLUTIONS[dims][0]
    return convolution(field, weight, None, [1] * dims, [0] * dims, [1] * dims, len(channels))  # type: ignore[no-any-return]


def _dropout(x: Value, p: float, train: bool, *, parts: Parts = UNCORRECTED) -> Value:
    """As ``rules.dropout.dropout``: (v + p m²) / q, the squares left to what comes next."""
    if p in (0, 1):
        return dropout(x, p, train)
    if isinstance(x, Flattened):
        inside = _dropout(x.inside, p, train, parts=parts)
        assert isinstance(inside, Factored)
        return Flattened(x.mean, inside)
    value, q = factored(x), 1 - p
    share = parts.inherited * q + parts.fresh * p
    square = (share * value.square + parts.fresh * p) / q
    return Factored(value.mean, value.scale * (share / q), value.position, value.gate, square)


def relu_of_uniform(
    mean: Tensor, half_width: Tensor, twice: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """E[y] and 3/2 E[y²] of y = relu(x), x uniform on mean ± T.

        P = (m + T)₊,   N = (m − T)₊,   w = (P − N) / 4T = min(P / 4T, ½)
        E[y] = w (P + N),   3/2 E[y²] = w (P² + P N + N²)
    With w as a minimum nothing is subtracted, so T may be far smaller than the last digit of m.
    With T = √3 s, x has the variance s² of a normal; E[y] is within 0.035 s and Var[y] within
    0.09 s² of the normal's.

    Args:
        mean: of x.
        half_width: T, above 0.
        twice: −2 T.
        inverse: 1 / 4T. Sums and products of given fields are what runtimes keep in the blocked
            layout of their convolutions; the minimum is the only other op.
    """
    above = torch.relu(mean + half_width)
    beyond = torch.relu(above + twice)
    share, total = (above * inverse).clamp(max=0.5), above + beyond
    return share * total, share * (above * above + beyond * total)


def _relu(x: Uncertain) -> Uncertain:
    """Taken as uniform, not normal, where the variance is a product of a field and a scale."""
    if not isinstance(x, Factored) or x.position is None or x.gate is not None or x.square:
        return RULES[aten.relu.default].apply((x,), {})  # type: ignore[no-any-return]
    root = torch.sqrt(x.position.clamp(min=torch.finfo(x.mean.dtype).tiny))
    width = HALF_WIDTH * torch.as_tensor(x.scale).sqrt().clamp(min=1e-12)
    fields = (root * width, root * (-2 * width), (1 / root) * (0.25 / width))
    mean, second = relu_of_uniform(x.mean, *fields)
    return Factored(mean, 2 / 3, gate=second, square=-1.0)


def _flatten(op: Op) -> RuleFunction:
    def apply(x: Uncertain, *args: Any) -> Uncertain:
        mean = op(x.mean, *args)
        whole = mean.dim() == 2 and mean.shape[1] == x.mean[0].numel()
        if not isinstance(x, Factored) or not whole or x.mean.dim() - 2 not in _CONVOLUTIONS:
            return RULES[op].apply((x, *args), {})  # type: ignore[no-any-return]
        return Flattened(mean, x)

    return apply


_LAYER = Rule(
    None,
    "linear",
    frozenset({INDEPENDENT, ALWAYS_APPROXIMATE}),
    _NOTE,
    accepts=(Gain,),
    linear_in_variance=True,
)
LOWRANK: dict[Op, Rule] = {
    **{
        op: replace(_LAYER, function=_convolution(op, dims))
        for dims, ops in _CONVOLUTIONS.items()
        for op in ops
    },
    aten.linear.default: replace(_LAYER, function=_linear),
    aten.dropout.default: Rule(
        _dropout, "dropout", accepts=(Parts,), reach=Reach.EACH, adds_noise=True
    ),
    aten.relu.default: Rule(
        _relu,
        "elementwise",
        frozenset({NORMAL, ALWAYS_APPROXIMATE}),
        "as if uniform",
        reach=Reach.EACH,
        bends=True,
    ),
    **{
        op: Rule(_flatten(op), "passthrough", reach=Reach.MOVES, moves_only=True)
        for op in (aten.flatten.using_ints, aten.view.default, aten.reshape.default)
    },
}
