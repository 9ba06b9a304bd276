"""The smooth activations, each described once for the quadrature; and those with closed forms.

The ``switch`` of a function is where Gauss–Hermite and the fixed points are both better than 1e-6;
it follows from how far its poles lie from the real axis (π for the sigmoid, π/2 for tanh).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from onesigma.moments.exponential import Tail
from onesigma.moments.piecewise import Moments
from onesigma.moments.quadrature import SmoothFunction
from onesigma.moments.tails import INV_SQRT_2PI, upper_probability


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sigmoid_step(m: Tensor, d: Tensor) -> Tensor:
    return -torch.sigmoid(m + d) * torch.sigmoid(-m) * torch.expm1(-d)


def _mish_step(m: Tensor, d: Tensor) -> Tensor:
    # tanh(softplus(x)) = n/(n + 2) with n = eˣ(eˣ + 2); beyond 20 it is 1 in any float.
    before, after = torch.exp(m.clamp(max=20)), torch.exp((m + d).clamp(max=20))
    n_before, n_after = before * (before + 2), after * (after + 2)
    rise = torch.where(m + d < 20, before * torch.expm1(d), after - before)
    change = 2 * rise * (after + before + 2) / ((n_before + 2) * (n_after + 2))
    return d * (n_after / (n_after + 2)) + m * change


def _gelu_step(m: Tensor, d: Tensor) -> Tensor:
    x = m + d
    half = math.sqrt(0.5)
    side = torch.where(m > 0, 1.0, -1.0).to(m.dtype)
    # Near 0 through erf; further out through the tail on the mean's own side.
    near = 0.5 * (torch.erf(half * x) - torch.erf(half * m))
    far = side * (upper_probability(side * m) - upper_probability(side * x))
    rise = torch.where(m.abs() < 1, near, far)
    rise = torch.where(d.abs() * (1 + m.abs()) < 1, _small_normal_step(m, d), rise)
    return d * upper_probability(-x) + m * rise


def _small_normal_step(m: Tensor, d: Tensor) -> Tensor:
    """Φ(m + d) − Φ(m) for small d, without a difference: its Taylor series about the midpoint."""
    middle = (m + 0.5 * d).clamp(-40, 40)
    u, q = middle * middle, d * d
    series = (u - 1) / 24 + q * ((u * (u - 6) + 3) / 1920)
    series = 1 + q * (series + q * q * ((u * (u * (u - 15) + 45) - 15) / 322560))
    return d * (INV_SQRT_2PI * torch.exp(-0.5 * u)) * series


def _gelu_tanh_step(m: Tensor, d: Tensor) -> Tensor:
    m = m.clamp(-20, 20)  # it is a straight line further out, and m³ would overflow the gradient
    x = m + d
    rise = 2 * _GELU_SCALE * d * (1 + _GELU_CUBIC * (x * x + x * m + m * m))
    after = torch.sigmoid(_gelu_tanh_gate(x))
    change = -after * torch.sigmoid(-_gelu_tanh_gate(m)) * torch.expm1(-rise.clamp(min=-80))
    return d * after + m * change


def _gelu_tanh_gate(x: Tensor) -> Tensor:
    return 2 * _GELU_SCALE * (x + _GELU_CUBIC * x * x * x)


def _gelu_tanh_peak(m: Tensor, v: Tensor) -> Tensor:
    # Its tail is e^(αx + βx³): x = m + v (α + 3βx²), a quadratic equation.
    without_cube = (m + 2 * _GELU_SCALE * v).clamp(max=0)
    root = (1 - 24 * _GELU_SCALE * _GELU_CUBIC * v * without_cube).sqrt()
    return 2 * without_cube / (1 + root)


def _hardswish_step(m: Tensor, d: Tensor) -> Tensor:
    before, after = (m + 3).clamp(0, 6), (m + d + 3).clamp(0, 6)
    inside = (before == m + 3) & (after == m + d + 3)
    return (d * after + m * torch.where(inside, d, after - before)) / 6


_GELU_SCALE = math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715

_EXPONENTIAL = (-17.0, 0.0, 17.0)  # e⁻¹⁷ = 4e-8: beyond, only the first exponential counts

SIGMOID = SmoothFunction(
    _sigmoid_step,
    _sigmoid,
    right=(1.0, 0.0),
    panels=_EXPONENTIAL,
    switch=1.2,
    left_tail=Tail(17, rate=1, constant=1),
    right_tail=Tail(17, rate=1, constant=-1),
)
TANH = SmoothFunction(
    lambda m, d: 2 * _sigmoid_step(2 * m, 2 * d),
    math.tanh,
    left=(-1.0, 0.0),
    right=(1.0, 0.0),
    panels=(-8.5, 0.0, 8.5),
    switch=0.6,
    left_tail=Tail(8.5, rate=2, constant=2),
    right_tail=Tail(8.5, rate=2, constant=-2),
)
SOFTPLUS = SmoothFunction(
    lambda m, d: torch.log1p(torch.sigmoid(m) * torch.expm1(d)),
    _softplus,
    panels=_EXPONENTIAL,
    switch=1.2,
    left_tail=Tail(17, rate=1, constant=1),
)
SILU = SmoothFunction(
    lambda m, d: d * torch.sigmoid(m + d) + m * _sigmoid_step(m, d),
    lambda x: x * _sigmoid(x),
    panels=_EXPONENTIAL,
    switch=1.2,
    left_tail=Tail(17, rate=1, constant=0, slope=-1),
)
MISH = SmoothFunction(
    _mish_step,
    lambda x: x * math.tanh(_softplus(x)),
    panels=_EXPONENTIAL,
    switch=1.07,
    left_tail=Tail(17, rate=1, constant=0, slope=-1),
)
GELU = SmoothFunction(
    _gelu_step,
    lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    panels=(-12.5, -5.0, 0.0, 6.5),
    switch=0.75,
    peak=lambda m, v: m / (1 + v),
    value=lambda x: x * upper_probability(-x),
)
GELU_TANH = SmoothFunction(
    _gelu_tanh_step,
    lambda x: x * _sigmoid(2 * _GELU_SCALE * (x + _GELU_CUBIC * x**3)),
    panels=(-9.5, -5.0, 0.0, 6.0),
    switch=0.7,
    peak=_gelu_tanh_peak,
    value=lambda x: x * torch.sigmoid(_gelu_tanh_gate(x)),
)
HARDSWISH = SmoothFunction(
    _hardswish_step,
    lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
    panels=(-3.0, 0.0, 3.0),
    switch=1,
    kinks=(-3.0, 3.0),
)


@lru_cache
def elu(alpha: float, scale: float, input_scale: float) -> SmoothFunction:
    """``scale·x`` for x > 0, ``scale·alpha·(exp(input_scale·x) − 1)`` below: ELU, CELU, SELU."""

    def value(x: Tensor) -> Tensor:
        below = alpha * torch.expm1(input_scale * x.clamp(max=0))
        return scale * torch.where(x > 0, x, below)

    def step(m: Tensor, d: Tensor) -> Tensor:
        fall = alpha * torch.exp(input_scale * m.clamp(max=0)) * torch.expm1(input_scale * d)
        same_side = torch.where(m > 0, d, fall)
        return torch.where((m > 0) == (m + d > 0), scale * same_side, value(m + d) - value(m))

    def exact(x: float) -> float:
        return scale * x if x > 0 else scale * alpha * math.expm1(input_scale * x)

    return SmoothFunction(
        step,
        exact,
        left=(-scale * alpha, 0.0),
        right=(0.0, scale),
        panels=(-17 / input_scale, 0.0),
        switch=1.2 / input_scale,
        left_tail=Tail(17 / input_scale, rate=input_scale, constant=scale * alpha),
        kinks=(0.0,),
    )


def exp(mean: Tensor, var: Tensor) -> Moments:
    """The log-normal: E[y] = e^(m + v/2), Var[y] = E[y]² (e^v − 1). Exact.

    Saturates near the dtype's largest number instead of overflowing; s → 0 gives eᵐ, 0.
    """
    largest = math.log(torch.finfo(mean.dtype).max) - 0.4  # exp_float in C ends at 127.5 log 2
    log_share = torch.log(-torch.expm1(-var.clamp(min=torch.finfo(var.dtype).tiny)))
    out_mean = torch.exp((mean + 0.5 * var).clamp(max=largest))
    # e^v − 1 = e^v (1 − e^−v): finite for large v, and the two large numbers meet first.
    out_var = torch.exp((2 * (mean + var) + log_share).clamp(max=largest))
    return out_mean, torch.where(var > 0, out_var, 0.0)


def square(mean: Tensor, var: Tensor) -> Moments:
    """x² of a normal: E[y] = m² + v, Var[y] = 2v² + 4m²v. Exact. s → 0 gives m², 0."""
    return mean * mean + var, 2 * var * var + 4 * (mean * var) * mean


def cube(mean: Tensor, var: Tensor) -> Moments:
    """x³ of a normal: E[y] = m³ + 3mv, Var[y] = 9m⁴v + 36m²v² + 15v³. Exact; saturates."""
    square, largest = mean * mean, torch.finfo(mean.dtype).max
    out_var = 9 * square * var * square + 36 * square * var * var + 15 * var * var * var
    return mean * square + 3 * mean * var, out_var.clamp(max=largest)


def wave(at_mean: Tensor, slope: Tensor, var: Tensor) -> Moments:
    """sin or cos of a normal, from its value f and slope f' at the mean. Exact.

    E[y] = e^(−v/2) f,   Var[y] = ½ (1 − e^−v) (1 − e^−v + 2 e^−v f'²)
    """
    lost = -torch.expm1(-var)
    out_var = 0.5 * lost * (lost + 2 * torch.exp(-var) * slope * slope)
    return torch.exp(-0.5 * var) * at_mean, out_var
