"""Layers with weights: linear, convolution of any kind, product with a constant matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onesigma.moments.tails import standard_deviation
from onesigma.rules.table import (
    INDEPENDENT,
    SEPARATE,
    Op,
    Rule,
    RuleFunction,
    linear,
    register,
    rule,
)
from onesigma.values.gaussian import Gaussian, Value

aten = torch.ops.aten

linear(
    aten.conv1d.default,
    aten.conv1d.padding,
    aten.conv2d.default,
    aten.conv2d.padding,
    aten.conv3d.default,
    aten.conv3d.padding,
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
    aten.convolution.default,
)


def correlated_parts(
    x: Gaussian, weight: Tensor, factors: Any, rate: float
) -> tuple[Tensor, Tensor]:
    """Inputs that are correlated by U Uᵀ: what of v is independent, and w s U.

        Cov[y] = w diag(v − s²|U|²) wᵀ + (w s U)(w s U)ᵀ
    s² is v, or with the rate p of a dropout right before, what had come into that: the masks' own
    part is independent. From v = (s² + p m²)/q,  s² = q v − p m².
    """
    loadings = torch.tensor(factors, dtype=x.var.dtype, device=x.var.device)
    shared = before_dropout(x, rate)
    left = (x.var - shared * loadings.square().sum(1)).clamp(min=0)
    together = (weight * standard_deviation(shared).unsqueeze(1)) @ loadings
    return left, together


def before_dropout(x: Gaussian, rate: float) -> Tensor:
    """The variance that came into a dropout whose output is x."""
    return (x.var - rate * (x.var + x.mean * x.mean)).clamp(min=0) if rate else x.var


def _linear_layer(
    x: Gaussian,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    factors: Any = None,
    rate: float = 0.0,
) -> Gaussian:
    """As ``table.linear``; with ``factors`` (fitted by calibrate) its inputs may be correlated."""
    mean = aten.linear(x.mean, weight, bias)
    if factors is None:
        return Gaussian(mean, aten.linear(x.var, weight * weight, None))
    left, together = correlated_parts(x.expanded(), weight, factors, rate)
    return Gaussian(mean, aten.linear(left, weight * weight, None) + together.square().sum(-1))


register(aten.linear.default, Rule(_linear_layer, "linear", frozenset({INDEPENDENT})))


def _product(op: Op) -> RuleFunction:
    """A matrix product of which one side is certain: E[y] = op(m, w), Var[y] = op(v, w²)."""

    def apply(a: Value, b: Value) -> Gaussian:
        if isinstance(a, Gaussian) and isinstance(b, Tensor):
            var = a.var if _keeps_batch(op, a) else a.expanded().var
            return Gaussian(op(a.mean, b), op(var, b * b))
        if isinstance(a, Tensor) and isinstance(b, Gaussian):
            var = b.var if _keeps_batch(op, b, right=True) else b.expanded().var
            return Gaussian(op(a, b.mean), op(a * a, var))
        assert isinstance(a, Gaussian)
        assert isinstance(b, Gaussian)
        return _uncertain_product(op, a.expanded(), b.expanded())

    return apply


def _keeps_batch(op: Op, x: Gaussian, *, right: bool = False) -> bool:
    """Whether a var with a batch of 1 fits: not bmm, not a product that sums over the batch."""
    return op is not aten.bmm.default and x.mean.dim() > (2 if right else 1)


def _uncertain_product(op: Op, a: Gaussian, b: Gaussian) -> Gaussian:
    """Both sides uncertain: Var[Σ ab] = Σ (v_a v_b + m_a² v_b + v_a m_b²), if all independent."""
    second_b = b.mean * b.mean + b.var
    var = op(a.var, second_b) + op(a.mean * a.mean, b.var)
    return Gaussian(op(a.mean, b.mean), var)


for _op in (aten.matmul.default, aten.mm.default, aten.bmm.default):
    register(_op, Rule(_product(_op), "product", frozenset({INDEPENDENT, SEPARATE})))


@rule(aten.addmm.default, family="linear", assumes=(INDEPENDENT,))
def addmm(
    bias: Tensor, x: Gaussian, weight: Tensor, *, beta: float = 1, alpha: float = 1
) -> Gaussian:
    """Matrix product plus a certain bias, β b + α x w, as ``linear``."""
    mean = aten.addmm.default(bias, x.mean, weight, beta=beta, alpha=alpha)
    return Gaussian(mean, alpha * alpha * aten.mm.default(x.var, weight * weight))
