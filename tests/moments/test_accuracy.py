"""Activations against float64 quadrature, in float32, far into the tails.

The grid: m/s from −30 to 30, v from 1e-12 to 1e6, and random points of the same ranges. The bound:
1e-5 of the moment ITSELF wherever it is above 1e-30; there is no other floor. (Where a function
changes sign its mean may vanish: there the mean is compared with E[|y|].)

Measured worst on the grid, in units of 1e-6 (mean, variance):
    relu, relu6                   4.7, 4.7      mish                 1.6, 7.9
    clamp, hardtanh, hardsigmoid  3.6, 9.7      hardswish            6.9, 8.2
    leaky, rrelu                  0.2, 0.4      softplus with β = 3  7.9, 7.8
    sigmoid, silu, elu, softplus  3.8, 4.7      gelu, both forms     4.3, 5.4
    tanh                          0.3, 6.0      exp                  3.9, 6.1
Nearly all of it is the rounding of an exponent of 20 to 70.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from cases import PIECEWISE, SMOOTH, Activation
from oracles import quadrature
from torch import Tensor

from onesigma.rules import RULES
from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten

NARROW = np.array([0.1, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13])
RATIOS = np.concatenate([np.linspace(-30, 30, 25), -NARROW, NARROW])
SMALL = [1e-12, 1e-9, 1e-6, 1e-4, 0.01, 0.1, 0.3]
SWITCHES = [0.35, 0.37, 0.48, 0.5, 0.55, 0.57, 0.9, 1.01, 1.1, 1.14, 1.15, 1.2, 1.4, 1.45]
VARIANCES = np.array([*SMALL, *SWITCHES, 2, 4, 10, 36, 100, 1e3, 1e4, 1e6])

EVERY = [
    *PIECEWISE,
    *SMOOTH,
    Activation(aten.exp.default, "", np.exp),
    Activation(aten.square.default, "", np.square),
    Activation(aten.prelu.default, "", np.abs, options=(torch.tensor([0.25]),)),
]


def names(activation: Activation) -> str:
    return activation.name


def grid(ratios: np.ndarray, variances: np.ndarray) -> tuple[Tensor, Tensor]:
    ratio, var = (a.ravel() for a in np.meshgrid(ratios, variances))
    return torch.tensor(ratio * np.sqrt(var)).float(), torch.tensor(var).float()


def moments(activation: Activation, mean: Tensor, var: Tensor) -> tuple[np.ndarray, np.ndarray]:
    rule = RULES[activation.op].function
    out = rule(Gaussian(mean, var), *activation.options, **activation.kwargs)
    return out.mean.double().numpy(), out.var.double().numpy()


def reference(
    activation: Activation, mean: Tensor, var: Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, v = mean.double().numpy(), var.double().numpy()
    exact_mean, exact_var, size = quadrature(activation.curve, m, v, activation.kinks)
    if activation.levelled:
        below, above = (quadrature(f, m, v, activation.kinks)[1] for f in activation.levelled)
        exact_var = np.where(m < 0, below, above)
    return exact_mean, exact_var, size


def assert_within(error: np.ndarray, bound: np.ndarray, mean: Tensor, var: Tensor) -> None:
    worst = int((error - bound).argmax())
    assert (error <= bound).all(), (
        f"off by {error[worst]:.3g} where {bound[worst]:.3g} is allowed, "
        f"at mean {mean[worst]:.6g}, variance {var[worst]:.3g}"
    )


def exact_relu(mean: float, var: float) -> tuple[float, float]:
    with mpmath.workdps(60):
        std = mpmath.sqrt(var)
        x = mean / std
        below, density = mpmath.ncdf(x), mpmath.npdf(x)
        first = std * (density + x * below)
        second = var * ((1 + x * x) * below + x * density)
        return float(first), float(second - first * first)


def test_the_oracle_itself():
    """Against fifty digits, for std from 1e-6 to 1000: ten hold."""
    mean, var = grid(np.linspace(-11, 11, 23), np.array([1e-12, 1e-4, 0.3, 1, 40, 1e6]))
    out_mean, out_var, _ = quadrature(
        _relu, mean.double().numpy(), var.double().numpy(), kinks=(0,)
    )
    exact = np.array([exact_relu(float(m), float(v)) for m, v in zip(mean, var, strict=True)])
    np.testing.assert_allclose(out_mean, exact[:, 0], rtol=1e-10)
    np.testing.assert_allclose(out_var, exact[:, 1], rtol=1e-10)


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def scattered() -> tuple[Tensor, Tensor]:
    """Random points between those of the grid, half of them where smooth functions bend."""
    rng = np.random.default_rng(0)
    ratio = np.concatenate([rng.uniform(-30, 30, 500), rng.normal(0, 5, 500).clip(-30, 30)])
    var = 10 ** np.where(
        rng.random(1000) < 0.5, rng.uniform(-12, 6, 1000), rng.uniform(-2, 2, 1000)
    )
    return torch.tensor(ratio * np.sqrt(var)).float(), torch.tensor(var).float()


@pytest.mark.parametrize(
    "points", [grid(RATIOS, VARIANCES), scattered()], ids=["grid", "scattered"]
)
@pytest.mark.parametrize("activation", [*PIECEWISE, *SMOOTH], ids=names)
def test_exact_into_the_tails(activation: Activation, points: tuple[Tensor, Tensor]):
    out_mean, out_var = moments(activation, *points)
    exact_mean, exact_var, exact_size = reference(activation, *points)
    assert_within(np.abs(out_mean - exact_mean), relative(exact_size), *points)
    assert_within(np.abs(out_var - exact_var), relative(exact_var), *points)


def relative(exact: np.ndarray) -> np.ndarray:
    """1e-5 of the value itself, down to 1e-30; there is no other floor."""
    return np.where(exact < 1e-30, 1e-30, 1e-5 * exact)


@pytest.mark.parametrize("activation", SMOOTH, ids=names)
def test_small_steps_keep_their_digits(activation: Activation):
    """|m|/s up to a million: the variance is f'(m)² v, a difference of nearly equal numbers.

    Where f' vanishes (gelu near −0.75) the relative error is that of v, not of the variance.
    """
    mean = torch.linspace(-8, 8, 65).repeat(6) + 0.003
    var = torch.tensor([1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2]).repeat_interleave(65)
    _, out_var = moments(activation, mean, var)
    _, exact_var, _ = reference(activation, mean, var)
    assert_within(
        np.abs(out_var - exact_var), 1e-5 * exact_var + 1e-10 * var.double().numpy(), mean, var
    )


def test_exp_where_float32_can_hold_it():
    """A log-normal, against its formula in fifty digits."""
    mean, var = scattered()
    out_mean, out_var = moments(EVERY[-3], mean, var)
    with mpmath.workdps(50):
        pairs = [
            (mpmath.mpf(float(m)), mpmath.mpf(float(v))) for m, v in zip(mean, var, strict=True)
        ]
        exact = [(mpmath.exp(m + v / 2), mpmath.exp(2 * m + v) * mpmath.expm1(v)) for m, v in pairs]
        for column, actual in enumerate((out_mean, out_var)):
            expected = np.array([float(mpmath.log(row[column])) for row in exact])
            held = (expected > math.log(1e-30)) & (expected < math.log(3e38))
            assert held.sum() > 300
            exact_values = np.array([float(row[column]) for row in exact])[held]
            error = np.abs(actual[held] - exact_values)
            assert_within(error, 1e-5 * exact_values, mean[held], var[held])


def test_exp_against_quadrature():
    mean, var = grid(np.linspace(-3, 3, 13), np.array([1e-6, 1e-3, 0.1, 0.5, 1.0]))
    out_mean, out_var = moments(EVERY[-3], mean, var)
    exact_mean, exact_var, _ = reference(EVERY[-3], mean, var)
    assert_within(np.abs(out_mean - exact_mean), 1e-6 * exact_mean, mean, var)
    assert_within(np.abs(out_var - exact_var), 3e-6 * exact_var, mean, var)


def test_exp_saturates():
    mean = torch.tensor([80.0, 200.0, 1e6, -1e6])
    out_mean, out_var = moments(EVERY[-3], mean, torch.tensor([100.0, 1.0, 1e12, 1e3]))
    assert np.isfinite(out_mean).all()
    assert np.isfinite(out_var).all()
    assert (out_mean[:3] > 1e38).all()
    assert out_mean[3] == 0


def wild() -> tuple[Tensor, Tensor]:
    """Far beyond any network: means to ±1e6, variances from 0 over denormals to 1e12."""
    sizes = [0.0, 1e-45, 1e-40, 1e-38, 1e-20, 1e-6, 0.1, 0.5, 1, 3, 6, 20, 100, 1e3, 1e6]
    means = torch.tensor([*sizes, *(-x for x in sizes)])
    spreads = [0.0, 1e-45, 1e-40, 1.2e-38, 1e-30, 1e-12, 1e-4, 0.1, 1, 1.44, 10, 1e4, 1e8, 1e12]
    mean, var = torch.meshgrid(means, torch.tensor(spreads), indexing="ij")
    return mean.flatten(), var.flatten()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("activation", EVERY, ids=names)
def test_wild_input_gives_finite_moments(activation: Activation, dtype: torch.dtype):
    mean, var = (t.to(dtype) for t in wild())
    options = [o.to(dtype) if isinstance(o, Tensor) else o for o in activation.options]
    out = RULES[activation.op].function(Gaussian(mean, var), *options, **activation.kwargs)
    assert out.mean.dtype == out.var.dtype == dtype
    assert bool(torch.isfinite(out.mean).all())
    assert bool(torch.isfinite(out.var).all())
    assert bool((out.var >= 0).all())


@pytest.mark.parametrize("activation", EVERY, ids=names)
def test_gradients_are_finite(activation: Activation):
    """Also at v = 0 and m = 0, where √v and |m|/√v have none."""
    mean, var = (t.requires_grad_() for t in wild())
    rule = RULES[activation.op].function
    out = rule(Gaussian(mean, var), *activation.options, **activation.kwargs)
    for value in (out.mean, out.var):
        gradients = torch.autograd.grad(value.sum(), (mean, var), retain_graph=True)
        assert all(bool(torch.isfinite(g).all()) for g in gradients)
