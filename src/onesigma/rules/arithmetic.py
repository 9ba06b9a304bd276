"""Sums, differences, products and reductions."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from onesigma.errors import UnsupportedOp
from onesigma.moments import functions
from onesigma.moments.piecewise import maximum as larger_of_two
from onesigma.moments.tails import standard_deviation
from onesigma.rules.corrections import UNCORRELATED, Gain, MaximumCorrelation, SumCorrelation
from onesigma.rules.table import (
    NORMAL,
    RULES,
    SEPARATE,
    Reach,
    RuleFunction,
    RuleOptions,
    linear_rule,
    rule,
)
from onesigma.values.gaussian import Gaussian, Uncertain, Value, broadcast

aten = torch.ops.aten


def mean_of(x: Any) -> Any:
    return x.mean if isinstance(x, Uncertain) else x


def var_of(x: Any) -> Any:
    return x.var if isinstance(x, Uncertain) else 0.0


def full_var(x: Value) -> Tensor:
    """In full shape, with zeros for what is certain: where there is no other way."""
    return x.expanded().var if isinstance(x, Uncertain) else torch.zeros_like(x)


_SUM: RuleOptions = {
    "family": "sum",
    "assumes": (SEPARATE,),
    "accepts": (SumCorrelation,),
    "reach": Reach.EACH,
    "same_twice": True,
}


@rule(aten.add.Tensor, aten.add.Scalar, **_SUM)
def add(a: Any, b: Any, *, alpha: float = 1, correlation: SumCorrelation | None = None) -> Gaussian:
    """y = a + αb:  E[y] = m_a + α m_b,  Var[y] = v_a + α² v_b + 2αρ √(v_a v_b).

    Exact if a and b share no noise, or are one and the same: then Var[y] = (1 + α)² v.
    Branches of a residual do share noise: the report says where, and ``calibrate`` fits ρ.
    """
    mean = aten.add(mean_of(a), mean_of(b), alpha=alpha)
    if a is b:
        return Gaussian(mean, (1 + alpha) ** 2 * a.var)
    return broadcast(mean, _var_of_sum(a, b, alpha, correlation))


@rule(aten.sub.Tensor, aten.sub.Scalar, **_SUM)
def sub(a: Any, b: Any, *, alpha: float = 1, correlation: SumCorrelation | None = None) -> Gaussian:
    """y = a − αb, as ``add``."""
    mean = aten.sub(mean_of(a), mean_of(b), alpha=alpha)
    if a is b:
        return Gaussian(mean, (1 - alpha) ** 2 * a.var)
    return broadcast(mean, _var_of_sum(a, b, -alpha, correlation))


def _var_of_sum(a: Any, b: Any, alpha: float, correlation: SumCorrelation | None) -> Tensor:
    var: Tensor = var_of(a) + alpha * alpha * var_of(b)
    if correlation is None:
        return var
    shared = standard_deviation(a.var) * standard_deviation(b.var)
    return (var + 2 * alpha * correlation.value * shared).clamp(min=0)


@rule(aten.rsub.Scalar, family="sum", reach=Reach.EACH)
def rsub(x: Uncertain, other: float, alpha: float = 1) -> Gaussian:
    """y = other − αx. Exact."""
    return Gaussian(aten.rsub.Scalar(x.mean, other, alpha), alpha * alpha * x.var)


@rule(aten.neg.default, family="sum", reach=Reach.EACH)
def neg(x: Uncertain) -> Gaussian:
    """y = −x. Exact."""
    return Gaussian(-x.mean, x.var)


@rule(
    aten.mul.Tensor,
    aten.mul.Scalar,
    family="product",
    assumes=(SEPARATE,),
    accepts=(Gain,),
    reach=Reach.EACH,
    multiplies=True,
    same_twice=True,
    note="a product of two uncertain values is carried on as if normal",
)
def mul(a: Any, b: Any) -> Gaussian:
    """y = a b.  By a constant c:  E[y] = c m,  Var[y] = c² v.  Exact.

    Two uncertain factors:  E[y] = m_a m_b,  Var[y] = v_a v_b + m_a² v_b + m_b² v_a.
    Exact if they share no noise. A value times itself is ``square``.
    """
    if a is b:
        return Gaussian(*functions.square(a.mean, a.var))
    mean_a, mean_b, var_a, var_b = mean_of(a), mean_of(b), var_of(a), var_of(b)
    mean = aten.mul(mean_a, mean_b)
    if not isinstance(b, Uncertain):
        return broadcast(mean, var_a * (mean_b * mean_b))
    if not isinstance(a, Uncertain):
        return broadcast(mean, var_b * (mean_a * mean_a))
    # Not m² first, which alone may overflow.
    return broadcast(mean, var_a * var_b + mean_a * var_b * mean_a + mean_b * var_a * mean_b)


@rule(aten.div.Tensor, aten.div.Scalar, family="product", accepts=(Gain,), reach=Reach.EACH)
def div(a: Uncertain, b: Any) -> Gaussian:
    """y = a / c:  E[y] = m / c,  Var[y] = v / c². Exact. An uncertain divisor: graph/expand.py."""
    return broadcast(aten.div(a.mean, b), a.var / (b * b))


@rule(
    aten.pow.Tensor_Scalar,
    family="elementwise",
    assumes=(NORMAL,),
    note="exponents 1, 2 and 3",
    reach=Reach.EACH,
    bends=True,
)
def power(x: Uncertain, exponent: float) -> Uncertain:
    """Powers 1, 2 and 3 of a normal. Exact. Others: graph/expand.py."""
    if exponent == 1:
        return x
    if exponent not in (2, 3):
        raise UnsupportedOp(f"x ** {exponent} has no rule. Write it as a product of lower powers.")
    return Gaussian(*(functions.cube if exponent == 3 else functions.square)(x.mean, x.var))


@rule(
    aten.maximum.default,
    family="maximum",
    assumes=(SEPARATE, NORMAL),
    note="Clark 1961",
    accepts=(MaximumCorrelation,),
    reach=Reach.EACH,
    is_maximum=True,
    bends=True,
    same_twice=True,
)
def maximum(a: Value, b: Value, *, correlation: MaximumCorrelation = UNCORRELATED) -> Uncertain:
    """The larger of two, see ``moments.piecewise.maximum``; of a value and itself, the value."""
    if a is b:
        assert isinstance(a, Uncertain)
        return a
    zero = torch.zeros_like(mean_of(a))
    var_a = a.var if isinstance(a, Uncertain) else zero
    var_b = b.var if isinstance(b, Uncertain) else zero
    return broadcast(*larger_of_two(mean_of(a), var_a, mean_of(b), var_b, correlation.value))


def _reduction(op: Any, *, average: bool) -> RuleFunction:
    """Σ x or Σ x / n over dims:  Var = Σ v,  or Σ v / n². Exact if elements are independent."""

    def apply(
        x: Uncertain, dim: list[int] | None = None, keepdim: bool = False, **kwargs: Any
    ) -> Gaussian:
        dims = dim or list(range(x.mean.dim()))  # no dims means all
        over_batch = any(d % x.mean.dim() == 0 for d in dims)
        var = x.expanded().var if over_batch else x.var
        n = prod(x.mean.shape[d] for d in dims) if average else 1
        return Gaussian(op(x.mean, dim, keepdim, **kwargs), op(var, dim, keepdim, **kwargs) / n)

    return apply


for _op, _average in ((aten.mean.dim, True), (aten.sum.dim_IntList, False)):
    RULES.add(_op)(linear_rule(_reduction(_op, average=_average), reach=Reach.GROUPS))


def _cumulative_sum(x: Uncertain, dim: int, **kwargs: Any) -> Gaussian:
    """Sums of all elements up to here. Exact if elements are independent."""
    var = x.expanded().var if dim % x.mean.dim() == 0 else x.var
    return Gaussian(aten.cumsum(x.mean, dim, **kwargs), aten.cumsum(var, dim, **kwargs))


RULES.add(aten.cumsum.default)(linear_rule(_cumulative_sum))


def _sum_into(op: Any) -> RuleFunction:
    """Elements added up at places that an index names. Exact if they are independent."""

    def apply(x: Value, dim: int, index: Tensor, source: Value, *, alpha: float = 1) -> Gaussian:
        more = {"alpha": alpha} if alpha != 1 else {}
        squared = {name: value * value for name, value in more.items()}
        mean = op(mean_of(x), dim, index, mean_of(source), **more)
        return Gaussian(mean, op(full_var(x), dim, index, full_var(source), **squared))

    return apply


for _op in (aten.index_add.default, aten.scatter_add.default):
    RULES.add(_op)(linear_rule(_sum_into(_op)))


@rule(aten.where.self, family="choice", reach=Reach.EACH)
def where(condition: Tensor, a: Value, b: Value) -> Gaussian:
    """Choose by a certain condition. Exact."""
    mean = torch.where(condition, mean_of(a), mean_of(b))
    return broadcast(mean, torch.where(condition, var_of(a), var_of(b)))
