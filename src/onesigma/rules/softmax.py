"""Softmax and its kin, inside a network. A final one is averaged by the head instead."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from onesigma.moments.tails import standard_deviation
from onesigma.rules.table import ALWAYS_APPROXIMATE, INDEPENDENT, RuleOptions, rule
from onesigma.values.gaussian import Gaussian, Uncertain

aten = torch.ops.aten

_OPTIONS: RuleOptions = {
    "family": "softmax",
    "assumes": (ALWAYS_APPROXIMATE, INDEPENDENT),
    "bends": True,
}


@rule(aten.softmax.int, note="logits levelled by their variance (MacKay 1992)", **_OPTIONS)
def softmax(x: Uncertain, dim: int, dtype: torch.dtype | None = None) -> Gaussian:
    """p = softmax(m / √(1 + π v̄/8)),  v̄ the variance of the logits that count.

        Var[y_i] = p_i² (v_i (1 − 2 p_i) + Σ_j p_j² v_j), bent down to stay below p_i (1 − p_i)
    Measured on 3 and 10 independent logits with v from 0.1 to 20: E[y] 0.5 to 24 % off on average,
    the std 5 % in the median. v → 0 gives the op itself, 0.
    """
    mean, var = x.mean, x.expanded().var
    level = (torch.softmax(mean, dim) * var).sum(dim, keepdim=True)
    p = aten.softmax.int(mean / torch.sqrt(1 + math.pi / 8 * level), dim, dtype)
    spread = p * p * _of_log(p, var, dim)
    most = p * (1 - p)
    total = (most + spread).clamp(min=torch.finfo(p.dtype).tiny)
    return Gaussian(p, most * (spread / total))


_SECOND_ORDER = "second order"


@rule(aten.log_softmax.int, note=_SECOND_ORDER, **_OPTIONS)
def log_softmax(x: Uncertain, dim: int, dtype: torch.dtype | None = None) -> Gaussian:
    """y = x − log Σ exp x. v → 0 gives the op itself, 0."""
    mean, var = x.mean, x.expanded().var
    p = torch.softmax(mean, dim)
    rise = _rise(p, var, [dim])
    return Gaussian(aten.log_softmax.int(mean, dim, dtype) - rise, _of_log(p, var, dim))


@rule(aten.logsumexp.default, note=_SECOND_ORDER, **_OPTIONS)
def logsumexp(x: Uncertain, dim: Sequence[int], keepdim: bool = False) -> Gaussian:
    """E[y] = log Σ exp m + ½ Σ p (1 − p) v,  Var[y] = Σ p² v. v → 0 gives the op itself, 0."""
    mean, var = x.mean, x.expanded().var
    at_mean = aten.logsumexp.default(mean, dim, keepdim)
    p = torch.exp(mean - aten.logsumexp.default(mean, dim, True))
    rise, spread = _rise(p, var, dim), (p * p * var).sum(dim, keepdim=True)
    return Gaussian(at_mean + rise.reshape(at_mean.shape), spread.reshape(at_mean.shape))


def _of_log(p: Tensor, var: Tensor, dim: int) -> Tensor:
    """Var[x_i − Σ p x] = v_i (1 − 2 p_i) + Σ p² v."""
    return (var * (1 - 2 * p) + (p * p * var).sum(dim, keepdim=True)).clamp(min=0)


def _rise(p: Tensor, var: Tensor, dims: Sequence[int]) -> Tensor:
    """½ Σ p (1 − p) v, and no more than the largest of n normals rises above their means."""
    n = math.prod(p.shape[d] for d in dims)
    level = (p * var).sum(dims, keepdim=True)
    most = math.sqrt(2 * math.log(max(n, 2))) * standard_deviation(level)
    return torch.minimum(0.5 * (p * (1 - p) * var).sum(dims, keepdim=True), most)
