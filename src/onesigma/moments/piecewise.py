"""Exact moments of piecewise-linear functions of normals, and of the larger of two normals.

No formula here subtracts two large numbers to get a small one: each result is a sum of terms that
cannot be negative, so a variance is never negative and keeps its digits far out in the tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from onesigma.moments.tails import standard_deviation, tails_beyond, upper_probability

Moments: TypeAlias = tuple[Tensor, Tensor]
Slope: TypeAlias = float | Tensor

# Gauss–Legendre on [0, 1], five points: exact to degree nine.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)
_RULE = tuple(zip((0.5 + 0.5 * _NODES).tolist(), (0.5 * _WEIGHTS).tolist(), strict=True))


def maximum(
    mean_a: Tensor, var_a: Tensor, mean_b: Tensor, var_b: Tensor, correlation: float = 0.0
) -> Moments:
    """The larger of two normals with covariance c = ρ √(v_a v_b), ρ ≥ 0.

        θ² = v_a + v_b − 2c,   x = |m_a − m_b| / θ,   v_top = variance of the larger mean's
        E[y]   = max(m_a, m_b) + θ P₁(x)
        Var[y] = v_top (1 − 2 P₀(x)) + 2c P₀(x) + θ² (P₂(x) − P₁(x)²)
    Clark 1961, rearranged so that no term can be negative. Exact for two normals.
    θ → 0 gives max(m_a, m_b) and the variance of the larger.
    """
    gap = mean_a - mean_b
    total, shared = var_a + var_b, None
    if correlation:
        # √v_a √v_b and not √(v_a v_b): the product of two small variances would underflow.
        shared = 2 * correlation * standard_deviation(var_a) * standard_deviation(var_b)
        total = (total - shared).clamp(min=0)
    std, tail = tails_beyond(gap, total)
    top = torch.where(gap > 0, var_a, var_b)
    mean = torch.maximum(mean_a, mean_b) + torch.where(total > 0, std * tail.first, 0.0)
    spread = (tail.second - tail.first * tail.first).clamp(min=0)
    var = top * (1 - 2 * tail.zeroth).clamp(min=0) + total * spread
    return mean, var if shared is None else var + shared * tail.zeroth


def relu(mean: Tensor, var: Tensor) -> Moments:
    """ReLU of a normal: the larger of it and a certain 0 (Frey & Hinton 1999). Exact.

    E[y] = relu(m) + s P₁(|m|/s);  s → 0 gives relu(m), 0 bit for bit.
    """
    above, spread = _above(mean, var, 0.0)
    return torch.relu(mean) + above, spread


def piecewise_linear(
    mean: Tensor, var: Tensor, at_mean: Tensor, knots: Sequence[float], slopes: Sequence[Slope]
) -> Moments:
    """Any continuous piecewise-linear f of a normal; ``at_mean`` is f(mean). Exact.

    f is cut at its knots into ramps f = const + Σ aₖ rₖ, each rₖ(x) = x clamped to one piece.
        E[y]   = f(m) + Σ aₖ (E[rₖ] − rₖ(m))
        Var[y] = Σ aₖ² Var[rₖ] + 2 Σ_{j<k} aⱼ aₖ dⱼ eₖ
    where e is the expected way a ramp has climbed and d what it lacks to its top: ramp k leaves
    its bottom only after ramp j < k has reached its top, so their covariance is the product.
    s → 0 gives f(m), 0.
    """
    edges = [None, *knots, None]
    ramps = [
        (slope, _ramp(mean, var, low, high))
        for slope, low, high in zip(slopes, edges[:-1], edges[1:], strict=True)
        if not (isinstance(slope, float | int) and slope == 0)
    ]
    out_mean, out_var = at_mean, torch.zeros_like(var)
    for index, (slope, ramp) in enumerate(ramps):
        out_mean = out_mean + slope * ramp.shift
        out_var = out_var + slope * slope * ramp.var
        for lower_slope, lower in ramps[:index]:
            out_var = out_var + 2 * lower_slope * slope * lower.lack * ramp.climb
    # Slopes of opposite sign (abs) subtract a covariance; only rounding can take it below zero.
    return out_mean, out_var.clamp(min=0)


class _Ramp(NamedTuple):
    """r(x) = x clamped to [low, high]."""

    shift: Tensor  # E[r] − r(m)
    climb: Tensor  # E[r − low]; only asked for where low is finite
    lack: Tensor  # E[high − r]; only asked for where high is finite
    var: Tensor


def _ramp(mean: Tensor, var: Tensor, low: float | None, high: float | None) -> _Ramp:
    if low is None:
        assert high is not None
        shift, spread = _above(-mean, var, -high)
        return _Ramp(-shift, shift, torch.relu(high - mean) + shift, spread)
    if high is None:
        shift, spread = _above(mean, var, low)
        return _Ramp(shift, torch.relu(mean - low) + shift, shift, spread)
    return _bounded_ramp(mean, var, low, high)


def _above(mean: Tensor, var: Tensor, knot: float) -> Moments:
    """E[(x − knot)₊] − (m − knot)₊, and the variance of (x − knot)₊."""
    centred = mean - knot if knot else mean
    std, tail = tails_beyond(centred, var)
    linear = torch.where(centred > 0, (1 - 2 * tail.zeroth).clamp(min=0), 0.0)
    spread = (tail.second - tail.first * tail.first).clamp(min=0)
    return torch.where(var > 0, std * tail.first, 0.0), var * (linear + spread)


def _bounded_ramp(mean: Tensor, var: Tensor, low: float, high: float) -> _Ramp:
    """A ramp with two ends, mirrored so that the mean lies in its lower half.

    A ramp wider than half the std is the difference of two rectifiers. A narrower one would be a
    difference of nearly equal numbers, and is integrated instead:
    E[climb] = ∫ P(x > t) dt and E[climb²] = 2 ∫ (t − low) P(x > t) dt over the ramp.
    """
    width = high - low
    mirrored = mean > 0.5 * (low + high)
    height = torch.where(mirrored, high - mean, mean - low)  # of the mean above the near end
    std = standard_deviation(var)

    near, near_var = _above(height, var, 0.0)
    far, far_var = _above(height, var, width)
    wide_shift = near - far
    wide_climb = torch.relu(height) + wide_shift
    wide_var = near_var - far_var - 2 * (width - wide_climb) * far

    thin_climb, thin_square = torch.zeros_like(height), torch.zeros_like(height)
    for node, weight in _RULE:
        probability = upper_probability((node * width - height) / std)
        thin_climb = thin_climb + weight * width * probability
        thin_square = thin_square + 2 * weight * node * width * width * probability

    thin = std > 2 * width
    climb = torch.where(thin, thin_climb, wide_climb)
    shift = torch.where(thin, thin_climb - torch.relu(height), wide_shift)
    spread = torch.where(thin, thin_square - thin_climb * thin_climb, wide_var).clamp(min=0)
    return _Ramp(
        torch.where(mirrored, -shift, shift),
        torch.where(mirrored, width - climb, climb),
        torch.where(mirrored, climb, width - climb),
        spread,
    )
