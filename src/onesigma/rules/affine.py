"""Layers with weights: linear, convolution of any kind, product with a constant matrix."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from onesigma.moments.tails import standard_deviation
from onesigma.rules.corrections import Factors, Gain, Together, constant
from onesigma.rules.table import (
    INDEPENDENT,
    RULES,
    SEPARATE,
    Op,
    RuleFunction,
    RuleOptions,
    linear,
    linear_rule,
    rule,
)
from onesigma.values.correlated import Correlated
from onesigma.values.gaussian import Gaussian, Uncertain, Value

aten = torch.ops.aten

linear(
    *(aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding),
    *(aten.conv3d.default, aten.conv3d.padding),
    *(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input),
    aten.convolution.default,
)


# Beyond, a K × K root per sample would cost more than it tells.
MAX_CLASSES = 64


def _linear_layer(
    x: Uncertain,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    factors: Factors | None = None,
    together: Together | None = None,
) -> Uncertain:
    """As ``table.linear``; with ``factors`` its inputs may be correlated.

    Cov[y] = w diag(v) wᵀ, of which ``together`` asks for all, and not the diagonal alone.
    """
    mean = aten.linear(x.mean, weight, bias)
    if together is None and factors is None:
        return Gaussian(mean, aten.linear(x.var, weight * weight, None))
    x = x.expanded()
    own, shared = (x.var, None) if factors is None else _split_by(factors, x, weight)
    if together is None:
        assert shared is not None
        return Gaussian(mean, aten.linear(own, weight * weight, None) + shared.square().sum(-1))
    covariance = (weight * own.unsqueeze(1)) @ weight.transpose(0, 1)
    if shared is not None:
        covariance = covariance + shared @ shared.transpose(-1, -2)
    return Correlated(mean, covariance)


def _split_by(factors: Factors, x: Uncertain, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs that are correlated by U Uᵀ: what of v is independent, and w s U.

        Cov[y] = w diag(v − s²|U|²) wᵀ + (w s U)(w s U)ᵀ
    s² is v or, right behind a dropout, what had come into that: the masks' part is independent.
    """
    loadings = constant(factors.loadings, x.var)
    assert isinstance(loadings, Tensor)
    before = before_dropout(x, factors.rate)
    own = (x.var - before * loadings.square().sum(1)).clamp(min=0)
    return own, (weight * standard_deviation(before).unsqueeze(1)) @ loadings


def before_dropout(x: Uncertain, rate: float) -> Tensor:
    """The variance s² that came into a dropout whose output is x: v = (s² + p m²)/q."""
    return (x.var - rate * (x.var + x.mean * x.mean)).clamp(min=0) if rate else x.var


RULES.add(aten.linear.default)(
    replace(linear_rule(_linear_layer, linear_in_variance=True), accepts=(Factors, Gain, Together))
)


_PRODUCT: RuleOptions = {
    "family": "product",
    "assumes": (INDEPENDENT, SEPARATE),
    "accepts": (Gain,),
    "multiplies": True,
}


def _product(op: Op) -> RuleFunction:
    """A matrix product of which one side is certain: E[y] = op(m, w), Var[y] = op(v, w²)."""

    def apply(a: Value, b: Value) -> Gaussian:
        if isinstance(a, Uncertain) and isinstance(b, Tensor):
            var = a.var if _keeps_batch(op, a) else a.expanded().var
            return Gaussian(op(a.mean, b), op(var, b * b))
        if isinstance(a, Tensor) and isinstance(b, Uncertain):
            var = b.var if _keeps_batch(op, b, right=True) else b.expanded().var
            return Gaussian(op(a, b.mean), op(a * a, var))
        assert isinstance(a, Uncertain)
        assert isinstance(b, Uncertain)
        return _uncertain_product(op, a.expanded(), b.expanded())

    return apply


def _keeps_batch(op: Op, x: Uncertain, *, right: bool = False) -> bool:
    """Whether a var with a batch of 1 fits: not bmm, not a product that sums over the batch."""
    return op is not aten.bmm.default and x.mean.dim() > (2 if right else 1)


def _uncertain_product(op: Op, a: Uncertain, b: Uncertain) -> Gaussian:
    """Both sides uncertain: Var[Σ ab] = Σ (v_a v_b + m_a² v_b + v_a m_b²), if all independent."""
    second_b = b.mean * b.mean + b.var
    var = op(a.var, second_b) + op(a.mean * a.mean, b.var)
    # Of many large products the sum would overflow.
    return Gaussian(op(a.mean, b.mean), var.clamp(max=torch.finfo(var.dtype).max))


for _op in (aten.matmul.default, aten.mm.default, aten.bmm.default):
    rule(_op, **_PRODUCT)(_product(_op))
