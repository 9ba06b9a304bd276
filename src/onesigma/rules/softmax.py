"""Softmax inside a network (a final one is averaged by the head instead), and log Σ exp."""

from __future__ import annotations

import math

import torch

from onesigma.rules.table import ALWAYS_APPROXIMATE, INDEPENDENT, RuleOptions, rule
from onesigma.values.gaussian import Gaussian, Uncertain

aten = torch.ops.aten
_SOFTMAX: RuleOptions = {
    "family": "softmax",
    "assumes": (ALWAYS_APPROXIMATE, INDEPENDENT),
    "note": "second order; the mean of a softmax by levelling the logits (MacKay 1992)",
    "bends": True,
}


@rule(aten.softmax.int, **_SOFTMAX)
def softmax(x: Uncertain, dim: int, dtype: torch.dtype | None = None) -> Gaussian:
    """E[y] = p, the softmax of m / √(1 + π v̄/8) with v̄ the average variance, weighted by it.

        Var[y_i] = p_i² (v_i (1 − 2 p_i) + Σ_j p_j² v_j), bent down to stay below p_i (1 − p_i)
    On 10 independent logits E[y] is 1 % off for v = 0.1, 6 % for v = 1, 24 % for v = 20, and the
    std 5 % in the median. v → 0 gives the op itself, 0.
    """
    mean, var = x.mean, x.expanded().var
    level = (torch.softmax(mean, dim) * var).sum(dim, keepdim=True)
    p = aten.softmax.int(mean / torch.sqrt(1 + math.pi / 8 * level), dim, dtype)
    first = p * p * (var * (1 - 2 * p) + (p * p * var).sum(dim, keepdim=True)).clamp(min=0)
    most = p * (1 - p)
    return Gaussian(p, most * (first / (most + first).clamp(min=torch.finfo(p.dtype).tiny)))


@rule(aten.logsumexp.default, **_SOFTMAX)
def logsumexp(x: Uncertain, dim: list[int], keepdim: bool = False) -> Gaussian:
    """E[y] = log Σ exp m + ½ Σ p (1 − p) v,  Var[y] = Σ p² v. v → 0 gives the op itself, 0."""
    mean, var = x.mean, x.expanded().var
    p = torch.exp(mean - aten.logsumexp.default(mean, dim, True))
    rise = 0.5 * (p * (1 - p) * var).sum(dim, keepdim)
    return Gaussian(
        aten.logsumexp.default(mean, dim, keepdim) + rise, (p * p * var).sum(dim, keepdim)
    )
