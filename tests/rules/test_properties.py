"""Laws that hold for any input, searched for a counterexample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import PIECEWISE, SMOOTH, Activation
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onesigma.rules import RULES
from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten
bounded = settings(max_examples=50, deadline=None, derandomize=True, database=None)

numbers = st.floats(-50, 50, width=32)
scales = st.floats(-8, 8, width=32)
rates = st.floats(0.01, 0.95)
seeds = st.integers(0, 2**31 - 1)
MONOTONE = [a for a in PIECEWISE if a.name not in {"leaky_relu:-0.5", "abs", "clamp:crossed"}]


@st.composite
def gaussians(draw: Any, size: int = 24) -> Gaussian:
    """One row of normals: means to ±50, variances from 0 over 1e-12 to 1e4, in any mixture."""
    mean = draw(st.lists(numbers, min_size=size, max_size=size))
    exponent = draw(st.lists(st.integers(-13, 4), min_size=size, max_size=size))
    var = [0.0 if e == -13 else 10.0**e for e in exponent]
    return Gaussian(torch.tensor(mean, dtype=torch.float64), torch.tensor(var).double())


def apply(op: Any, *args: Any, **kwargs: Any) -> Gaussian:
    return RULES[op].function(*args, **kwargs)


def activate(activation: Activation, x: Gaussian) -> Gaussian:
    return apply(activation.op, x, *activation.options, **activation.kwargs)


def assert_same(a: Gaussian, b: Gaussian, rtol: float = 1e-9) -> None:
    torch.testing.assert_close(a.mean, b.mean, rtol=rtol, atol=1e-9)
    torch.testing.assert_close(a.expanded().var, b.expanded().var, rtol=rtol, atol=1e-12)


def random(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@bounded
@given(gaussians(), numbers)
def test_a_shift_moves_the_mean_alone(x: Gaussian, shift: float):
    for out in (apply(aten.add.Tensor, x, shift), apply(aten.sub.Tensor, x, -shift)):
        assert_same(out, Gaussian(x.mean + shift, x.var))


@bounded
@given(gaussians(), scales)
def test_a_scale_is_squared_in_the_variance(x: Gaussian, scale: float):
    assert_same(apply(aten.mul.Tensor, x, scale), Gaussian(scale * x.mean, scale * scale * x.var))


@bounded
@given(gaussians(), gaussians())
def test_a_sum_does_not_depend_on_order(x: Gaussian, y: Gaussian):
    assert_same(apply(aten.add.Tensor, x, y), apply(aten.add.Tensor, y, x))
    difference = apply(aten.sub.Tensor, x, y)
    assert torch.equal(difference.var, apply(aten.add.Tensor, x, y).var)


@bounded
@given(gaussians(), gaussians())
def test_products_and_maxima_do_not_depend_on_order(x: Gaussian, y: Gaussian):
    for op in (aten.mul.Tensor, aten.maximum.default):
        assert_same(apply(op, x, y), apply(op, y, x))


@bounded
@given(gaussians(), gaussians(), seeds)
def test_linear_layers_keep_sums(x: Gaussian, y: Gaussian, seed: int):
    """W(x + y) = Wx + Wy, in both moments."""
    weight = random(seed, 5, 24)
    x, y = (Gaussian(g.mean.reshape(1, 24), g.var.reshape(1, 24)) for g in (x, y))
    whole = apply(aten.linear.default, apply(aten.add.Tensor, x, y), weight)
    parts = [apply(aten.linear.default, g, weight) for g in (x, y)]
    assert_same(whole, apply(aten.add.Tensor, *parts))


@bounded
@given(gaussians(), seeds)
def test_the_bias_has_no_variance(x: Gaussian, seed: int):
    row = Gaussian(x.mean.reshape(1, 24), x.var.reshape(1, 24))
    weight, bias = random(seed, 5, 24), 1e6 * random(seed + 1, 5)
    with_bias, without = (apply(aten.linear.default, row, weight, b) for b in (bias, None))
    assert torch.equal(with_bias.var, without.var)


@bounded
@given(gaussians(), seeds)
def test_samples_of_a_batch_do_not_meet(x: Gaussian, seed: int):
    """Each row of the answer depends on its own row alone: in a batch or by itself, the same."""
    batch = Gaussian(x.mean.reshape(4, 2, 3), x.var.reshape(4, 2, 3))
    weight = random(seed, 3, 2, 2)
    layers: list[Callable[[Gaussian], Gaussian]] = [
        lambda g: apply(aten.conv1d.default, g, weight),
        lambda g: apply(aten.relu.default, g),
        lambda g: apply(aten.gelu.default, g),
        lambda g: apply(aten.avg_pool1d.default, g, [2]),
        lambda g: apply(aten.max_pool1d.default, g, [3]),
        lambda g: apply(aten.layer_norm.default, g, [3]),
        lambda g: apply(aten.dropout.default, g, 0.3, False),
    ]
    for layer in layers:
        whole = layer(batch)
        for row in range(4):
            one = layer(Gaussian(batch.mean[row : row + 1], batch.var[row : row + 1]))
            assert_same(one, Gaussian(whole.mean[row : row + 1], whole.var[row : row + 1]))


@bounded
@given(gaussians())
def test_relu_lifts_the_mean_and_narrows_the_spread(x: Gaussian):
    """Jensen: E[max(x, 0)] ≥ max(E[x], 0). A function that never grows distances cannot spread."""
    out = apply(aten.relu.default, x)
    assert bool((out.mean >= x.mean.clamp(min=0)).all())
    assert bool((out.var <= x.var * (1 + 1e-6)).all())


@bounded
@given(gaussians())
def test_relu_and_its_mirror_image_make_the_identity(x: Gaussian):
    """x = relu(x) − relu(−x); and the two are correlated, so variances add up to less than v."""
    up, down = apply(aten.relu.default, x), apply(aten.relu.default, Gaussian(-x.mean, x.var))
    torch.testing.assert_close(up.mean - down.mean, x.mean, rtol=1e-9, atol=1e-9)
    assert bool((up.var + down.var <= x.var * (1 + 1e-6)).all())


@bounded
@given(gaussians())
def test_relu_has_the_second_moment_of_its_half(x: Gaussian):
    """relu(x)² + relu(−x)² = x²: the second moments of the halves add up to m² + v."""
    halves = [apply(aten.relu.default, Gaussian(s * x.mean, x.var)) for s in (1, -1)]
    total = sum(h.mean**2 + h.var for h in halves)
    torch.testing.assert_close(total, x.mean**2 + x.var, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("activation", MONOTONE, ids=lambda a: a.name)
@bounded
@given(x=gaussians(), step=st.floats(0, 10))
def test_a_larger_mean_gives_a_larger_mean(activation: Activation, x: Gaussian, step: float):
    low, high = activate(activation, x), activate(activation, Gaussian(x.mean + step, x.var))
    slack = 1e-6 * (low.mean.abs() + x.var.sqrt())
    assert bool((high.mean >= low.mean - slack).all())


@pytest.mark.parametrize("activation", [*PIECEWISE, *SMOOTH], ids=lambda a: a.name)
@bounded
@given(x=gaussians())
def test_moments_are_possible(activation: Activation, x: Gaussian):
    """Var[f(x)] ≤ L² v for a function of slope at most L; here L ≤ 1.76 (selu) or 2."""
    out = activate(activation, x)
    assert bool(torch.isfinite(out.mean).all())
    assert bool((out.var >= 0).all())
    assert bool((out.var <= 4 * x.var * (1 + 1e-5)).all())
    if activation.name in {"sigmoid", "tanh", "hardtanh", "hardsigmoid"}:
        low = 0 if "sigmoid" in activation.name else -1
        assert bool((out.mean >= low - 1e-6).all())
        assert bool((out.mean <= 1 + 1e-6).all())
        # Bhatia–Davis: among all spreads over [low, 1] with this mean none is wider.
        assert bool((out.var <= (1 - out.mean) * (out.mean - low) + 1e-6).all())


@bounded
@given(gaussians(), gaussians())
def test_a_maximum_is_at_least_both(x: Gaussian, y: Gaussian):
    out = apply(aten.maximum.default, x, y)
    assert bool((out.mean >= torch.maximum(x.mean, y.mean)).all())
    assert bool((out.var <= (x.var + y.var) * (1 + 1e-6)).all())
    smaller = apply(aten.maximum.default, *(Gaussian(-g.mean, g.var) for g in (x, y)))
    # max(x, y) + min(x, y) = x + y
    torch.testing.assert_close(out.mean - smaller.mean, x.mean + y.mean, rtol=1e-9, atol=1e-9)


@bounded
@given(gaussians(), numbers)
def test_a_maximum_with_zero_is_relu(x: Gaussian, shift: float):
    zero = torch.zeros_like(x.mean)
    assert_same(apply(aten.maximum.default, x, zero), apply(aten.relu.default, x), rtol=1e-6)
    moved = apply(aten.maximum.default, Gaussian(x.mean + shift, x.var), zero + shift)
    torch.testing.assert_close(
        moved.mean - shift, apply(aten.relu.default, x).mean, rtol=1e-6, atol=1e-6
    )


@bounded
@given(gaussians(), rates)
def test_more_dropout_more_doubt(x: Gaussian, p: float):
    less, more = (apply(aten.dropout.default, x, rate, False) for rate in (p, (1 + p) / 2))
    assert torch.equal(less.mean, x.mean)
    assert bool((less.var >= x.var).all())
    assert bool((more.var >= less.var).all())


@bounded
@given(gaussians(), rates, rates)
def test_two_dropouts_are_one(x: Gaussian, p: float, q: float):
    """Kept by both with (1 − p)(1 − q): two masks in a row are one mask of that rate."""
    twice = apply(aten.dropout.default, apply(aten.dropout.default, x, p, False), q, False)
    once = apply(aten.dropout.default, x, 1 - (1 - p) * (1 - q), False)
    assert_same(twice, once)


@bounded
@given(gaussians(), st.floats(0.1, 5))
def test_positive_scales_pass_through_relu(x: Gaussian, scale: float):
    """relu(c x) = c relu(x) for c > 0."""
    inside = apply(aten.relu.default, apply(aten.mul.Tensor, x, scale))
    outside = apply(aten.mul.Tensor, apply(aten.relu.default, x), scale)
    torch.testing.assert_close(inside.mean, outside.mean, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(inside.var, outside.var, rtol=1e-6, atol=1e-12)


@bounded
@given(gaussians())
def test_an_average_is_the_same_whichever_op_takes_it(x: Gaussian):
    """The mean of 24 independent normals has variance Σv / 24²."""
    image = Gaussian(x.mean.reshape(1, 1, 4, 6), x.var.reshape(1, 1, 4, 6))
    by_mean = apply(aten.mean.dim, image, [2, 3])
    by_pool = apply(aten.avg_pool2d.default, image, [4, 6])
    by_size = apply(aten.adaptive_avg_pool2d.default, image, [1, 1])
    torch.testing.assert_close(by_mean.var.squeeze(), x.var.sum() / 24**2)
    for out in (by_pool, by_size):
        torch.testing.assert_close(out.mean.flatten(), by_mean.mean.flatten())
        torch.testing.assert_close(out.var.flatten(), by_mean.var.flatten())
