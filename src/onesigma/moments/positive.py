"""Powers and the logarithm of a value that is meant to be positive, taken as log-normal.

A normal is not: it comes below 0, where roots and logarithms have no value, and at 0 a reciprocal
has no mean. A log-normal of the same mean and variance has all of them in closed form,

    r = v / m²,   E[xᵃ] = mᵃ (1 + r)^(a(a−1)/2),   Var[xᵃ] = E[xᵃ]² ((1 + r)^(a²) − 1)
    E[log x] = log m − ½ log(1 + r),   Var[log x] = log(1 + r)

and is the same to second order in the deviation. A mean that is nearer to 0 than one standard
deviation counts as that far away. Without variance it is the op itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onesigma.moments.piecewise import Moments
from onesigma.moments.tails import standard_deviation

_LARGE = 80.0  # e^80 is finite in float32


def power(mean: Tensor, var: Tensor, exponent: float, at_mean: Tensor) -> Moments:
    """xᵃ; an odd power of something negative is negative."""
    size, log_ratio = _apart_from_zero(mean, var)
    growth = (0.5 * exponent * (exponent - 1) * log_ratio).clamp(max=_LARGE)
    out = torch.pow(size, exponent).clamp(max=torch.finfo(mean.dtype).max) * torch.exp(growth)
    spread = out * torch.sqrt(torch.expm1((exponent * exponent * log_ratio).clamp(max=_LARGE)))
    if exponent % 2 == 1:
        out = torch.where(mean < 0, -out, out)
    return _where_uncertain(var, out, spread * spread, at_mean)


def log(mean: Tensor, var: Tensor, at_mean: Tensor) -> Moments:
    """The logarithm."""
    size, log_ratio = _apart_from_zero(mean, var)
    return _where_uncertain(var, torch.log(size) - 0.5 * log_ratio, log_ratio, at_mean)


def _apart_from_zero(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """|m|, at least the standard deviation, and log(1 + v/m²)."""
    std = standard_deviation(var)
    size = torch.maximum(mean.abs(), std)
    ratio = std / size
    return size, torch.log1p(ratio * ratio)


def _where_uncertain(var: Tensor, mean: Tensor, spread: Tensor, at_mean: Tensor) -> Moments:
    largest = torch.finfo(var.dtype).max
    mean, spread = mean.clamp(-largest, largest), spread.clamp(max=largest)
    return torch.where(var > 0, mean, at_mean), torch.where(var > 0, spread, 0.0)
