"""Moments of smooth functions of a normal that have no closed form.

Gauss–Hermite alone is good only while the function looks smooth at the scale of the std: for a
sigmoid and s = 4 it is already 5 % off, for s = 1000 useless. So there are two forms, and each
element takes the one that fits its own variance:

narrow (s below the function's own scale): quadrature in z over the step f(m + s z) − f(m).
    Gauss–Hermite for smooth f; where f has kinks, Gauss–Legendre on the pieces between them.
wide: f is its two asymptotes, two straight lines that meet at 0, plus a rest that dies out.
    The lines have closed-form tail moments; the rest is integrated at FIXED points t, so it costs
    one exp per point and no call of f:  E[rest] = Σ wⱼ rest(tⱼ) φ((tⱼ − m)/s)/s.
    Beyond the points an exponential rest has closed-form moments too (``exponential.py``).

In float32 both are within 1e-5 of the moment itself, however small it is (tests/moments).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from onesigma.moments.exponential import Tail, tail_moments
from onesigma.moments.piecewise import Moments
from onesigma.moments.tails import INV_SQRT_2PI, standard_deviation, tails_beyond

_HERMITE_POINTS = 20
_LEGENDRE_POINTS = 24
_REACH = 7.5  # P(|z| > 7.5) = 6e-14; wider panels would want more points
_FAR = 12.0  # φ(12) = 2e-32
_BEYOND_KINK = 4.0

Line = tuple[float, float]  # intercept, slope


@dataclass(frozen=True)
class SmoothFunction:
    """All the quadrature needs to know of f.

    Attributes:
        step: (m, d) ↦ f(m + d) − f(m) in torch, written so that a small step keeps its digits:
            small steps are what the variance is made of.
        exact: f in float64 on a scalar, for the fixed points.
        panels: where the fixed points lie, Gauss–Legendre between each two edges.
        switch: the std at which the wide form takes over.
        left: f's asymptote for x → −∞; 0, unless told.
        right: f's asymptote for x → +∞; x, unless told.
        left_tail: what is left of f − asymptote beyond the first panel, if that is exponential.
        right_tail: the same beyond the last panel; only wanted where the asymptote is flat.
        kinks: points where f has a corner in its first or second derivative.
        peak: for an f whose left tail falls like φ, where there f(x) times the density of x peaks.
        value: f itself, where torch's own float32 form loses digits.
    """

    step: Callable[[Tensor, Tensor], Tensor]
    exact: Callable[[float], float]
    panels: tuple[float, ...]
    switch: float
    left: Line = (0.0, 0.0)
    right: Line = (0.0, 1.0)
    left_tail: Tail | None = None
    right_tail: Tail | None = None
    kinks: tuple[float, ...] = ()
    peak: Callable[[Tensor, Tensor], Tensor] | None = None
    value: Callable[[Tensor], Tensor] | None = None


def smooth_moments(function: SmoothFunction, mean: Tensor, var: Tensor, at_mean: Tensor) -> Moments:
    """E and Var of f(x), x ~ N(mean, var); ``at_mean`` is f(mean). s → 0 gives f(m), 0."""
    limit = function.switch**2
    if function.value is not None:
        at_mean = torch.where(var > 0, function.value(mean), at_mean)
    narrow_mean, narrow_var = _narrow(function, mean, var.clamp(max=limit), at_mean)
    wide_mean, wide_var = _wide(function, mean, var.clamp(min=limit))
    narrow = var < limit
    return torch.where(narrow, narrow_mean, wide_mean), torch.where(narrow, narrow_var, wide_var)


def _narrow(function: SmoothFunction, mean: Tensor, var: Tensor, at_mean: Tensor) -> Moments:
    std = standard_deviation(var)
    if function.kinks:
        z, weights = _between_kinks(function, mean, std)
    elif function.peak is not None:
        z, weights = _around((function.peak(mean, var) - mean) / std)
    else:
        z, weights = _everywhere(mean)
    deviation = torch.where(var > 0, std, 0.0)  # no variance, no step: f(m), 0 bit for bit
    step = function.step(mean.unsqueeze(-1), deviation.unsqueeze(-1) * z)
    shift = (weights * step).sum(-1)
    rest = step - shift.unsqueeze(-1)
    return at_mean + shift, (weights * rest * rest).sum(-1)


def _everywhere(like: Tensor) -> tuple[Tensor, Tensor]:
    return _constant(like, _hermite()[0]), _constant(like, _hermite()[1])


def _around(centre: Tensor) -> tuple[Tensor, Tensor]:
    """Gauss–Hermite about another centre than the mean, if that lies above."""
    offset, weights = _everywhere(centre)
    centre = centre.clamp(0, _REACH).unsqueeze(-1)
    return centre + offset, weights * torch.exp(-centre * (offset + 0.5 * centre))


def _between_kinks(function: SmoothFunction, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    u, w = (_constant(mean, array) for array in _legendre())
    edges = [((kink - mean) / std).clamp(-_REACH, _FAR) for kink in function.kinks]
    # Left of all kinks f may be flat: then all there is lies just beyond the first one.
    last = (edges[0] + _BEYOND_KINK).clamp(min=_REACH)
    lows = [torch.full_like(mean, -_REACH), *(torch.minimum(edge, last) for edge in edges)]
    highs = [edges[0].clamp(max=_REACH), *lows[2:], last]
    points, weights = [], []
    for low, high in zip(lows, highs, strict=True):
        half, middle = 0.5 * (high - low).unsqueeze(-1), 0.5 * (high + low).unsqueeze(-1)
        z = middle + half * u
        points.append(z)
        weights.append(half * w * torch.exp(-0.5 * z * z) * INV_SQRT_2PI)
    return torch.cat(points, -1), torch.cat(weights, -1)


def _wide(function: SmoothFunction, mean: Tensor, var: Tensor) -> Moments:
    """The wide form, f = a + b x + ρ(x) with the line of the mean's own side: ρ is small there.

        Var[f] = b² v + 2 b E[(x − m) ρ] + E[ρ²] − E[ρ]²
    On the other side of 0, ρ is the difference of the two lines plus the rest.
    """
    (left_at_0, left_slope), (right_at_0, right_slope) = function.left, function.right
    positive = mean >= 0
    at_0 = torch.where(positive, right_at_0, left_at_0).to(mean.dtype)
    slope = torch.where(positive, right_slope, left_slope).to(mean.dtype)
    jump = torch.where(positive, left_at_0 - right_at_0, right_at_0 - left_at_0).to(mean.dtype)
    # In x' = ±x, chosen so that the mean is positive, the other side is x' < 0 …
    bend = torch.full_like(mean, left_slope - right_slope)
    size = mean.abs()
    std, tail = tails_beyond(mean, var)
    zeroth, first, second = tail.zeroth, -std * tail.first, var * tail.second  # E[x'ⁿ; x' < 0]

    rest = _rest(function, mean, var, std)
    beyond, beyond_square = _beyond(function, mean, var)
    rho = jump * zeroth + bend * first + rest[..., 0] + beyond
    square = jump * jump * zeroth + 2 * jump * bend * first + bend * bend * second
    square = square + torch.where(positive, rest[..., 1], rest[..., 2]) + beyond_square
    # … where (x − m) slope is (x' − m') times the slope in x'.
    side = torch.where(positive, 1.0, -1.0).to(mean.dtype)
    covariance = jump * (first - size * zeroth) + bend * (second - size * first)
    covariance = side * covariance + rest[..., 3] - mean * rest[..., 0]
    out_var = slope * slope * var + 2 * slope * covariance + square - rho * rho
    return at_0 + slope * mean + rho, out_var.clamp(min=0)


def _rest(function: SmoothFunction, mean: Tensor, var: Tensor, std: Tensor) -> Tensor:
    points, table = _rest_table(function)
    distance = _constant(mean, points) - mean.unsqueeze(-1)
    density = torch.exp(-0.5 * distance * distance / var.unsqueeze(-1))
    return (density @ _constant(mean, table)) * (INV_SQRT_2PI / std).unsqueeze(-1)


def _beyond(function: SmoothFunction, mean: Tensor, var: Tensor) -> Moments:
    """E[rest] and E[rest²] beyond the panels, on the mean's own side: the other's is negligible."""
    left, right = (
        tail_moments(tail, mean.abs(), var) if tail else (torch.zeros_like(mean),) * 2
        for tail in (function.left_tail, function.right_tail)
    )
    return torch.where(mean < 0, left[0], right[0]), torch.where(mean < 0, left[1], right[1])


@lru_cache
def _rest_table(function: SmoothFunction) -> tuple[list[float], list[list[float]]]:
    """Points t and, for each, w·rest times 1, (2 gap⁻ + rest), (2 gap⁺ + rest), t.

    gap⁻ and gap⁺ are the differences of the two lines, seen from the right and from the left.
    """
    points, table = [], []
    for low, high in pairwise(function.panels):
        for u, w in zip(*_legendre(), strict=True):
            t = 0.5 * (high + low) + 0.5 * (high - low) * u
            left, right = (at_0 + slope * t for at_0, slope in (function.left, function.right))
            rest = function.exact(t) - (left if t < 0 else right)
            mass = 0.5 * (high - low) * w * rest
            from_right = 2 * (left - right) + rest if t < 0 else rest
            from_left = 2 * (right - left) + rest if t > 0 else rest
            points.append(t)
            table.append([mass, mass * from_right, mass * from_left, mass * t])
    return points, table


@lru_cache
def _hermite() -> tuple[list[float], list[float]]:
    points, weights = np.polynomial.hermite_e.hermegauss(_HERMITE_POINTS)
    return points.tolist(), (weights / math.sqrt(2 * math.pi)).tolist()


@lru_cache
def _legendre() -> tuple[list[float], list[float]]:
    points, weights = np.polynomial.legendre.leggauss(_LEGENDRE_POINTS)
    return points.tolist(), weights.tolist()


def _constant(like: Tensor, values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)
