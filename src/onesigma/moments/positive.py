"""Powers and the logarithm of a value that is meant to be positive, taken as log-normal.

A normal comes below 0, where roots have no value, and at 0 its reciprocal has no mean. A log-normal
of the same mean and variance has all moments, and is the same to second order:

    r = v / m²,   E[xᵃ] = mᵃ (1 + r)^(a(a−1)/2),   Var[xᵃ] = E[xᵃ]² ((1 + r)^(a²) − 1)
    E[log x] = log m − ½ log(1 + r),   Var[log x] = log(1 + r)

A mean nearer to 0 than one standard deviation counts as that far away. s → 0 gives the op, 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onesigma.moments.piecewise import Moments
from onesigma.moments.tails import standard_deviation


def power(mean: Tensor, var: Tensor, exponent: float, at_mean: Tensor) -> Moments:
    """xᵃ for a = ½, −½ and −1; the reciprocal of something negative is negative."""
    size, log_ratio = _off_zero(mean, var)
    out = torch.pow(size, exponent) * torch.exp(0.5 * exponent * (exponent - 1) * log_ratio)
    spread = out * torch.expm1(exponent * exponent * log_ratio).sqrt()
    signed = torch.where(mean < 0, -out, out) if exponent == -1 else out
    return torch.where(var > 0, signed, at_mean), torch.where(var > 0, spread * spread, 0.0)


def log(mean: Tensor, var: Tensor, at_mean: Tensor) -> Moments:
    """The logarithm."""
    size, log_ratio = _off_zero(mean, var)
    out_mean = torch.where(var > 0, size.log() - 0.5 * log_ratio, at_mean)
    return out_mean, torch.where(var > 0, log_ratio, 0.0)


def _off_zero(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """|m|, at least the standard deviation, and log(1 + v/m²)."""
    std = standard_deviation(var)
    size = torch.maximum(mean.abs(), std)
    return size, torch.log1p((std / size).square())
