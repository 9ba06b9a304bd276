"""Moments of a function that dies out exponentially, from a point on: closed forms.

Far out, sigmoid is eˣ, tanh is −1 + 2e²ˣ, SiLU is x eˣ: an exponential, perhaps with a straight
line in front. With u = |x| − start, and x ~ N(m, v) on that side,

    E[uⁿ e^(−r|x|); u > 0] = e^(−r|m| + r²v/2) sⁿ Pₙ(−h),   h = (|m| − start − r v)/s

for the exponential only shifts the normal; Pₙ are the tail integrals of ``tails.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from onesigma.moments.tails import mills_ratios, standard_deviation

_FAR = 1e8  # beyond, nothing of a tail counts, and the fifth power overflows float32


class Tail(NamedTuple):
    """(constant + slope·|x|) e^(−rate·|x|), for |x| beyond ``start``."""

    start: float
    rate: float
    constant: float
    slope: float = 0.0


def tail_moments(tail: Tail, size: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """E[y; u > 0] and E[y²; u > 0] of that tail, for |x| ~ N(size, var) on the tail's own side."""
    at_start, slope = tail.constant + tail.slope * tail.start, tail.slope
    zeroth, first, _ = _powers(tail.start, tail.rate, size, var)
    mean = at_start * zeroth + slope * first
    zeroth, first, second = _powers(tail.start, 2 * tail.rate, size, var)
    square = at_start**2 * zeroth + 2 * at_start * slope * first + slope**2 * second
    return mean, square


def _powers(start: float, rate: float, size: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E[uⁿ e^(−rate·|x|); u > 0] for n = 0, 1, 2.

    Two forms of one formula, so that no exponential overflows: with the shifted mean beyond the
    start (``inside``) the tail integrals are near 1, before it they are φ times Mills' ratios.
    """
    std = standard_deviation(var)
    gap = size - start
    h = ((gap - rate * var) / std).clamp(-_FAR, _FAR)
    inside = h > 0
    shifted = rate * (0.5 * rate * var - size)
    before = -rate * start - 0.5 * gap * gap / var
    factor = torch.exp(torch.where(inside, shifted, before))
    far, square = mills_ratios(h.abs()), h * h
    fall = torch.exp(-0.5 * square)
    zeroth = torch.where(inside, 1 - fall * far.zeroth, far.zeroth)
    first = torch.where(inside, h + fall * far.first, far.first)
    second = torch.where(inside, 1 + square - fall * far.second, far.second)
    return factor * zeroth, factor * std * first, factor * var * second
