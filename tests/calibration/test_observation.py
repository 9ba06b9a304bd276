"""The Monte-Carlo reference: streaming moments, seeded, against analytic ones."""

import math
from functools import cache
from itertools import pairwise

import pytest
import torch
from models import inputs_for, trained
from torch import Tensor, nn

import onesigma
from onesigma import Converted
from onesigma.calibration.observation import Observed, RunningMoments, observe

P, STD = 0.3, 0.5
X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


def dropout_linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Dropout(P), nn.Linear(6, 4)).eval()


@cache
def converted_layer(**options) -> Converted:
    return onesigma.convert(dropout_linear(), X, **options)


def observed(
    converted: Converted, *x: Tensor, passes: int, nodes=frozenset({"linear"}), **kwargs
) -> Observed:
    return observe(converted, x or (X,), set(nodes), passes, **kwargs)


def analytic(scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance, fourth central moment of dropout → linear, over all 2⁶ masks."""
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 6)
    weight = (masks * (1 - P) + (1 - masks) * P).prod(1)[:, None, None]
    outputs = dropout_linear()[1].double()(masks[:, None] * X.double() * scale).detach()
    mean = (weight * outputs).sum(0)
    deviation = outputs - mean
    return mean, (weight * deviation**2).sum(0), (weight * deviation**4).sum(0)


@pytest.mark.parametrize("passes", [2, 7, 500])
@pytest.mark.parametrize(("centre", "spread"), [(0, 1), (1000, 0.01), (-3, 1e-6), (0, 1e4)])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_running_moments_are_those_of_the_stack(passes, centre, spread, dtype, rtol):
    generator = torch.Generator().manual_seed(passes)
    stack = torch.randn(passes, 4, 5, generator=generator, dtype=torch.float64)
    stack = (centre + spread * stack).to(dtype)
    moments = RunningMoments()
    for value in stack:
        moments.add(value)
    exact = stack.double()
    rounding = 4 * torch.finfo(torch.float64).eps * abs(centre)  # of the stack's own mean
    error = rtol * exact.std(0).mean() + rounding
    assert moments.mean.dtype == moments.var.dtype == torch.float64
    assert ((moments.mean - exact.mean(0)).abs() <= error).all()
    slack = rtol * exact.var(0).mean() + 2 * exact.std(0).max() * rounding
    assert ((moments.var - exact.var(0)).abs() <= slack).all()


def test_a_stream_that_does_not_vary_has_variance_zero():
    moments = RunningMoments()
    for _ in range(9):
        moments.add(torch.tensor([1e8, 0.1]))
    assert torch.equal(moments.var, torch.zeros(2, dtype=torch.float64))
    assert torch.equal(moments.mean, torch.tensor([1e8, 0.1]).double())


@pytest.mark.parametrize("stds", [3, 10])
def test_a_first_value_far_off_does_not_spoil_the_variance(stds):
    # The distances to it are summed in float32: of a 30-σ one over 4,000 passes, 12 % would be off.
    stream = torch.randn(2001, 50, generator=torch.Generator().manual_seed(0))
    stream[0] = stds
    moments = RunningMoments()
    for value in stream:
        moments.add(value)
    torch.testing.assert_close(moments.var, stream.double().var(0), rtol=1e-3, atol=0)


def test_a_value_changed_afterwards_is_not_followed():
    moments, value = RunningMoments(), torch.ones(2)
    moments.add(value)
    value.zero_()
    moments.add(torch.ones(2))
    assert torch.equal(moments.mean, torch.ones(2).double())
    assert not moments.var.any()


PASSES, COPIES = 200, 40  # one sample in many rows is many passes at once


def pooled(converted: Converted) -> tuple[Tensor, Tensor, int]:
    """Mean and variance of the layer's output for each row of X, and of how many draws."""
    rows = X.repeat_interleave(COPIES, 0)
    found = observed(converted, rows, passes=PASSES).nodes["linear"]
    mean, var = (t.unflatten(0, (len(X), COPIES)).mean(1) for t in (found.mean, found.var))
    return mean, var, PASSES * COPIES


def size(value: object) -> int:
    """Bytes of all tensors in an object."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(size(v) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(size(v) for v in value)
    return size(vars(value)) if hasattr(value, "__dict__") else 0


def test_memory_does_not_grow_with_the_passes():
    converted = converted_layer()
    few, many = (size(observed(converted, passes=passes)) for passes in (10, 100))
    assert few == many > 0


@pytest.mark.parametrize("dropout", ["inverted", "classic"])
def test_moments_of_a_node_against_all_masks(dropout):
    mean, var, draws = pooled(converted_layer(dropout=dropout))
    exact, spread, fourth = analytic(1 / (1 - P) if dropout == "inverted" else 1.0)
    assert ((mean - exact).abs() < 5 * (spread / draws).sqrt()).all()
    assert ((var - spread).abs() < 5 * ((fourth - spread**2) / draws).sqrt()).all()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_output_is_the_last_node(task):
    converted = converted_layer(task=task)
    found = observed(converted, passes=20)
    assert torch.equal(found.output.mean, found.nodes["linear"].mean)
    assert torch.equal(found.output.var, found.nodes["linear"].var)
    assert found.output.count == 20
    assert found.aleatoric.count == (20 if task == "classification" else 0)


def test_the_input_prior_is_noise_on_top():
    weight = dropout_linear()[1].weight.detach().double()
    _, var, draws = pooled(converted_layer(input_std=STD))
    expected = (STD**2 + P * X.double() ** 2) / (1 - P) @ weight.T.square()
    _, without, _ = analytic(1 / (1 - P))
    assert (expected > without).all()
    # Products of normals and masks have heavier tails: twice a normal's error is room enough.
    assert ((var - expected).abs() < 5 * 2 * expected * math.sqrt(2 / draws)).all()


def test_an_input_prior_alone_is_enough():
    layer = dropout_linear()[1]
    _, var, draws = pooled(onesigma.convert(nn.Sequential(layer).eval(), X, input_std=STD))
    expected = STD**2 * layer.weight.detach().double().square().sum(1)
    assert ((var - expected).abs() < 5 * expected * math.sqrt(2 / draws)).all()


def test_seeded():
    converted = converted_layer(input_std=STD)
    first, again, other = (observed(converted, passes=10, seed=s) for s in (0, 0, 1))
    assert torch.equal(first.nodes["linear"].mean, again.nodes["linear"].mean)
    assert torch.equal(first.reference.probs, again.reference.probs)
    assert not torch.equal(first.nodes["linear"].mean, other.nodes["linear"].mean)


def test_no_two_passes_are_the_same():
    converted = converted_layer()
    means = [observed(converted, passes=n).output.mean * n for n in range(1, 12)]
    single = {tuple((b - a).flatten().tolist()) for a, b in pairwise(means)}
    assert len(single) == 10


def test_the_callers_random_state_is_untouched():
    converted = converted_layer(input_std=STD)
    torch.manual_seed(0)
    expected = [torch.rand(1) for _ in range(4)]
    torch.manual_seed(0)
    drawn = []

    def progress(steps):
        for step in steps:
            drawn.append(torch.rand(1))  # nor between two passes
            yield step

    observed(converted, passes=3, progress=progress)
    assert [*drawn, torch.rand(1)] == expected


@pytest.mark.parametrize(("name", "passes"), [("mlp", 8), ("mlp", 5)])
def test_the_reference_is_that_of_mc_dropout(name, passes):
    x = inputs_for(name, 3)
    converted = onesigma.convert(trained(name), x)
    reference = observed(converted, *x, passes=passes, nodes=(), seed=4).reference
    theirs = onesigma.mc_dropout(converted, passes, form="loop", seed=4)(*x)
    kwargs = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(reference.probs.float().movedim(-1, 1), theirs.probs, **kwargs)
    torch.testing.assert_close(reference.entropy.float(), theirs.entropy, **kwargs)
    torch.testing.assert_close(reference.aleatoric.float(), theirs.aleatoric, **kwargs)
    torch.testing.assert_close(reference.epistemic.float(), theirs.epistemic, **kwargs)


def test_the_halves_are_every_other_pass():
    converted = converted_layer()
    first, second = observed(converted, passes=7).probs
    assert (first.count, second.count) == (4, 3)
    assert not torch.equal(first.mean, second.mean)


def test_the_model_is_left_in_eval():
    model = dropout_linear()
    converted = onesigma.convert(model, X)
    with torch.no_grad():
        before = converted.source(X)[0]
        observed(converted, passes=3)
        assert torch.equal(converted.source(X)[0], before)
        assert torch.equal(model(X), before)
