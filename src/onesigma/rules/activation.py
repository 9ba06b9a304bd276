"""Activations. Each line says which formula serves which op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from onesigma.moments import functions, positive
from onesigma.moments.piecewise import Moments, piecewise_linear, relu
from onesigma.moments.quadrature import SmoothFunction, smooth_moments
from onesigma.moments.tails import standard_deviation, upper_probability
from onesigma.rules.table import ALWAYS_APPROXIMATE, MomentFunction, Op, elementwise

aten = torch.ops.aten


Pieces: TypeAlias = tuple[Sequence[float], Sequence[float]]  # knots, and the slopes around them


def _piecewise(pieces: Callable[..., Pieces]) -> MomentFunction:
    """Of straight lines, as they follow from the arguments of the op."""

    def moments(op: Op, mean: Tensor, var: Tensor, *args: float | None) -> Moments:
        return piecewise_linear(mean, var, op(mean, *args), *pieces(*args))

    return moments


def _prelu(op: Op, mean: Tensor, var: Tensor, weight: Tensor) -> Moments:
    channels = [1, -1] + [1] * (mean.dim() - 2)
    slope = weight.reshape(channels) if mean.dim() > 1 else weight
    return piecewise_linear(mean, var, op(mean, weight), (0.0,), (slope, 1.0))


def _between(low: float | None = None, high: float | None = None) -> Pieces:
    if low is not None and high is not None:
        low = min(low, high)  # crossed bounds: torch returns the upper one
    knots = [float(edge) for edge in (low, high) if edge is not None]
    return knots, [0.0] * (low is not None) + [1.0] + [0.0] * (high is not None)


def _threshold(op: Op, mean: Tensor, var: Tensor, low: float, value: float) -> Moments:
    """x above ``low``, else ``value``:  y = low + r + g b,  r = relu(x − low),  b = 1 or 0.

    r b = 0 and g = value − low:  E[y] = low + E[r] + g P,
    Var[y] = Var[r] + g² P (1 − P) − 2 g P E[r],  P = P(x ≤ low). s → 0 gives the op itself, 0.
    """
    gap, score = value - low, (mean - low) / standard_deviation(var)
    over, spread = relu(mean - low, var)
    below, above = upper_probability(score), upper_probability(-score)
    out_mean, out_var = low + over + gap * below, spread + gap * below * (gap * above - 2 * over)
    at_mean = op(mean, low, value)
    return torch.where(var > 0, out_mean, at_mean), torch.where(var > 0, out_var.clamp(min=0), 0.0)


def _smooth(function: Callable[..., SmoothFunction]) -> MomentFunction:
    """By quadrature, of the function that follows from the arguments of the op."""

    def moments(op: Op, mean: Tensor, var: Tensor, *args: float, **options: str) -> Moments:
        at_mean = op(mean, *args, **options)
        return smooth_moments(function(*args, **options), mean, var, at_mean)

    return moments


def _softplus(op: Op, mean: Tensor, var: Tensor, beta: float = 1, threshold: float = 20) -> Moments:
    at_mean = op(mean, beta, threshold)
    out_mean, out_var = smooth_moments(
        functions.SOFTPLUS, beta * mean, beta * beta * var, beta * at_mean
    )
    # β y / β need not be y to the last bit; without variance it has to be.
    return torch.where(var > 0, out_mean / beta, at_mean), out_var / (beta * beta)


def _log_sigmoid(op: Op, mean: Tensor, var: Tensor) -> Moments:
    out_mean, out_var = smooth_moments(functions.SOFTPLUS, -mean, var, -op(mean))
    return -out_mean, out_var


def _power(exponent: float) -> MomentFunction:
    return lambda op, mean, var: positive.power(mean, var, exponent, op(mean))


elementwise(aten.relu.default, lambda op, m, v: relu(m, v))
elementwise(aten.prelu.default, _prelu)
elementwise(aten.threshold.default, _threshold)
_PIECES: dict[Op, Callable[..., Pieces]] = {
    aten.abs.default: lambda: ((0.0,), (-1.0, 1.0)),
    aten.clamp.default: _between,
    aten.clamp_max.default: lambda high: _between(None, high),
    aten.clamp_min.default: _between,
    aten.hardsigmoid.default: lambda: ((-3.0, 3.0), (0.0, 1 / 6, 0.0)),
    aten.hardtanh.default: lambda low=-1.0, high=1.0: _between(low, high),
    aten.leaky_relu.default: lambda slope=0.01: ((0.0,), (slope, 1.0)),
    aten.relu6.default: lambda: _between(0.0, 6.0),
    aten.softshrink.default: lambda width=0.5: ((-width, width), (1.0, 0.0, 1.0)),
}
for _op, _pieces in _PIECES.items():
    elementwise(_op, _piecewise(_pieces))
elementwise(aten.exp.default, lambda op, m, v: functions.exp(m, v))
elementwise(aten.square.default, lambda op, m, v: functions.square(m, v))
elementwise(aten.sin.default, lambda op, m, v: functions.wave(m.sin(), m.cos(), v))
elementwise(aten.cos.default, lambda op, m, v: functions.wave(m.cos(), m.sin(), v))

_QUADRATURE = "quadrature"
elementwise(aten.softplus.default, _softplus, note=_QUADRATURE)
elementwise(aten.log_sigmoid.default, _log_sigmoid, note=_QUADRATURE)
_SMOOTH: dict[Op, Callable[..., SmoothFunction]] = {
    aten.celu.default: lambda alpha=1: functions.elu(float(alpha), 1.0, 1 / alpha),
    aten.elu.default: lambda alpha=1, scale=1, input_scale=1: functions.elu(
        float(alpha), float(scale), float(input_scale)
    ),
    aten.gelu.default: lambda approximate="none": (
        functions.GELU_TANH if approximate == "tanh" else functions.GELU
    ),
    aten.hardswish.default: lambda: functions.HARDSWISH,
    aten.mish.default: lambda: functions.MISH,
    aten.selu.default: lambda: functions.elu(1.6732632423543772, 1.0507009873554805, 1.0),
    aten.sigmoid.default: lambda: functions.SIGMOID,
    aten.silu.default: lambda: functions.SILU,
    aten.tanh.default: lambda: functions.TANH,
}
for _op, _function in _SMOOTH.items():
    elementwise(_op, _smooth(_function), note=_QUADRATURE)

for _op, _moments in {
    aten.sqrt.default: _power(0.5),
    aten.rsqrt.default: _power(-0.5),
    aten.reciprocal.default: _power(-1.0),
    aten.log.default: lambda op, mean, var: positive.log(mean, var, op(mean)),
}.items():
    elementwise(_op, _moments, note="taken as log-normal", assumes=ALWAYS_APPROXIMATE)
