"""The three tail integrals against mpmath, which computes them with fifty digits."""

from __future__ import annotations

import mpmath
import pytest
import torch
from torch import Tensor

from onesigma.moments.tails import Tails, standard_deviation, tails, upper_probability

# φ(12.5) = 5e-35 is the last that float32 holds with all its digits; φ(37) that of float64.
LAST = {torch.float32: 12.5, torch.float64: 37.0}
RELATIVE = {torch.float32: 6e-7, torch.float64: 6e-8}
every_dtype = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64], ids=["float32", "float64"]
)


def exact_tails(x: float) -> tuple[float, float, float]:
    with mpmath.workdps(50):
        x = mpmath.mpf(x)
        density = mpmath.npdf(x)
        zeroth = mpmath.erfc(x / mpmath.sqrt(2)) / 2
        return (
            float(zeroth),
            float(density - x * zeroth),
            float((1 + x * x) * zeroth - x * density),
        )


def rounding(x: Tensor) -> Tensor:
    """exp(−x²/2) carries the rounding of x² into its exponent: x²/2 units of the last place."""
    return 1.5 * torch.finfo(x.dtype).eps * (x * x / 2).double()


@every_dtype
def test_against_fifty_digits(dtype: torch.dtype):
    x = torch.linspace(0, LAST[dtype], 400).to(dtype)
    exact = torch.tensor([exact_tails(float(value)) for value in x], dtype=torch.float64)
    for actual, wanted in zip(tails(x), exact.unbind(1), strict=True):
        error = (actual.double() / wanted - 1).abs()
        assert bool((error <= RELATIVE[dtype] + rounding(x)).all()), error.max()


@every_dtype
def test_relative_error_within_four_std_needs_no_allowance(dtype: torch.dtype):
    x = torch.linspace(0, 4, 200).to(dtype)
    exact = torch.tensor([exact_tails(float(value)) for value in x], dtype=torch.float64)
    for actual, wanted in zip(tails(x), exact.unbind(1), strict=True):
        assert float((actual.double() / wanted - 1).abs().max()) <= RELATIVE[dtype]


@every_dtype
def test_they_fall(dtype: torch.dtype):
    for values in tails(torch.linspace(0, 45, 3000).to(dtype)):
        assert bool((values.diff() <= 0).all())
        assert bool((values >= 0).all())


@every_dtype
def test_variance_of_what_is_left_is_not_negative(dtype: torch.dtype):
    """P₂ ≥ P₁², P₀ P₂ ≥ P₁² (Cauchy–Schwarz) and P₀ ≤ ½: what the piecewise formulas rest on."""
    tail = tails(torch.linspace(0, 12, 3000).to(dtype))
    slack = 1 + 4 * RELATIVE[dtype]
    assert bool((tail.second * slack >= tail.first**2).all())
    assert bool((tail.zeroth * tail.second * slack >= tail.first**2).all())
    assert bool((tail.zeroth <= 0.5 * slack).all())


@every_dtype
def test_limits(dtype: torch.dtype):
    at_zero = Tails(*(float(t) for t in tails(torch.zeros((), dtype=dtype))))
    assert at_zero.zeroth == pytest.approx(0.5, rel=2e-7)
    assert at_zero.first == pytest.approx(0.3989422804014327, rel=2e-7)
    assert at_zero.second == pytest.approx(0.5, rel=2e-7)
    for far in (40.0, 1e10, 1e30, float("inf")):
        assert all(float(t) == 0 for t in tails(torch.tensor(far, dtype=dtype)))


@every_dtype
def test_upper_probability_of_either_sign(dtype: torch.dtype):
    x = torch.linspace(-9, 9, 181).to(dtype)
    exact = torch.special.erfc(x.double() / 2**0.5) / 2
    error = (upper_probability(x).double() / exact - 1).abs()
    assert bool((error <= RELATIVE[dtype] + rounding(x)).all())
    torch.testing.assert_close(
        upper_probability(x) + upper_probability(-x), torch.ones_like(x), rtol=0, atol=1e-6
    )


@every_dtype
def test_standard_deviation_can_be_divided_by(dtype: torch.dtype):
    var = torch.tensor([0.0, 1e-45, 1e-12, 4.0], dtype=dtype, requires_grad=True)
    std = standard_deviation(var)
    assert bool((std.detach() > 0).all())
    assert bool(torch.isfinite(1 / std).all())
    assert std[3].item() == 2
    (gradient,) = torch.autograd.grad(std.sum(), var)
    assert bool(torch.isfinite(gradient).all())
