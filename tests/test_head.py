"""The head: from normal logits to probabilities and the kinds of answer."""

import math

import pytest
import torch
from torch import Tensor

from onesigma import InputError
from onesigma.head import average, classify, classify_certain, fixed_draws
from onesigma.values.gaussian import Gaussian

SAMPLES = 200_000


def logits(batch: int = 6, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mean = 2 * torch.randn(batch, classes, generator=generator, dtype=torch.float64)
    var = 3 * torch.rand(batch, classes, generator=generator, dtype=torch.float64)
    return mean, var


def brute_force(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Means of softmax and of its entropy over plain draws, each with its standard error."""
    generator = torch.Generator().manual_seed(11)
    shape = (SAMPLES, *mean.shape)
    draws = torch.randn(shape, generator=generator, dtype=mean.dtype)
    log_probs = torch.log_softmax(mean + var.sqrt() * draws, -1)
    probs, entropy = log_probs.exp(), -(log_probs.exp() * log_probs).sum(-1)
    root = math.sqrt(SAMPLES)
    return probs.mean(0), probs.std(0) / root, entropy.mean(0), entropy.std(0) / root


@pytest.mark.parametrize(("sampling", "draws"), [("quasi", 4096), ("random", 100_000)])
def test_against_brute_force(sampling, draws):
    """Within 5 standard errors: those of the brute force, and of our own draws where random."""
    mean, var = logits()
    probs, probs_error, aleatoric, aleatoric_error = brute_force(mean, var)
    found = classify(Gaussian(mean, var), fixed_draws(draws, 4, sampling), 1)
    own = math.sqrt(SAMPLES / draws)  # for quasi-random points an upper bound
    assert ((found.probs - probs).abs() < 5 * probs_error * math.hypot(1, own)).all()
    assert ((found.aleatoric - aleatoric).abs() < 5 * aleatoric_error * math.hypot(1, own)).all()
    entropy = -(probs * probs.log()).sum(-1)
    torch.testing.assert_close(found.entropy, entropy, rtol=0.02, atol=0.005)


def test_the_default_64_points_are_closer_than_64_random_ones():
    value = Gaussian(*logits(50))
    truth = classify(value, fixed_draws(8192, 4), 1).probs
    errors = {
        sampling: (classify(value, fixed_draws(64, 4, sampling), 1).probs - truth).abs().mean()
        for sampling in ("quasi", "random")
    }
    assert errors["quasi"] < 0.5 * errors["random"]
    assert errors["quasi"] < 0.01


def test_bounds():
    mean, var = logits(200, 5)
    answer = classify(Gaussian(mean.float(), var.float() * 10), fixed_draws(64, 5).float(), 1)
    torch.testing.assert_close(answer.probs.sum(1), torch.ones(200))
    assert (answer.probs >= 0).all()
    for entropy in (answer.entropy, answer.aleatoric):
        assert (entropy >= 0).all()
        assert (entropy <= math.log(5) + 1e-6).all()
    assert (answer.epistemic >= 0).all()
    torch.testing.assert_close(
        answer.entropy - answer.aleatoric, answer.epistemic, atol=1e-6, rtol=0
    )


def test_more_variance_is_more_epistemic_answer():
    mean = torch.tensor([[3.0, 0.0, 0.0]]).expand(4, 3)
    var = torch.tensor([[0.0], [0.5], [2.0], [8.0]]).expand(4, 3)
    answer = classify(Gaussian(mean, var), fixed_draws(256, 3).float(), 1)
    assert (answer.epistemic.diff() > 0).all()
    assert (answer.entropy.diff() > 0).all()


def test_no_variance_is_the_softmax():
    mean, _ = logits()
    answer = classify(Gaussian(mean, torch.zeros_like(mean)), fixed_draws(64, 4), 1)
    torch.testing.assert_close(answer.probs, mean.softmax(1))
    torch.testing.assert_close(answer.epistemic, torch.zeros(6, dtype=torch.float64))
    plain = classify_certain(mean, 1)
    torch.testing.assert_close(plain.probs, mean.softmax(1))
    torch.testing.assert_close(plain.entropy, answer.entropy)
    assert (plain.epistemic < 1e-12).all()


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_extreme_logits_stay_finite(scale):
    mean = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]) * scale
    answer = classify(Gaussian(mean, torch.full_like(mean, scale)), fixed_draws(64, 3).float(), 1)
    for value in answer:
        assert bool(torch.isfinite(value).all())


@pytest.mark.parametrize("class_dim", [1, 2, 3, -1, -3])
def test_class_dim(class_dim):
    """The classes anywhere: the same as one pixel at a time with the classes last."""
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(2, 3, 4, 5, generator=generator)
    var = torch.rand(2, 3, 4, 5, generator=generator)
    draws = fixed_draws(16, mean.shape[class_dim]).float()
    answer = classify(Gaussian(mean, var), draws, class_dim)
    assert answer.probs.shape == mean.shape
    last = [t.movedim(class_dim, -1) for t in (mean, var)]
    flat = classify(Gaussian(*(t.reshape(-1, t.shape[-1]) for t in last)), draws, 1)
    expected = flat.probs.reshape(last[0].shape)
    torch.testing.assert_close(answer.probs.movedim(class_dim, -1), expected)
    assert answer.entropy.shape == last[0].shape[:-1]
    torch.testing.assert_close(answer.epistemic.flatten(), flat.epistemic)


def test_average_by_hand():
    probs = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).clamp(min=1e-30)  # two draws that disagree
    answer = average(probs.log(), 1)
    torch.testing.assert_close(answer.probs, torch.tensor([[0.5, 0.5]]))
    torch.testing.assert_close(answer.entropy, torch.tensor([math.log(2)]))
    torch.testing.assert_close(answer.aleatoric, torch.zeros(1))
    torch.testing.assert_close(answer.epistemic, torch.tensor([math.log(2)]))


@pytest.mark.parametrize(("count", "classes"), [(64, 2), (64, 10), (65, 3), (2, 4), (256, 1)])
def test_quasi_draws_are_mirrored_with_unit_variance(count, classes):
    draws = fixed_draws(count, classes)
    assert draws.shape == (count, classes)
    assert bool(torch.isfinite(draws).all())
    torch.testing.assert_close(draws.square().mean(0), torch.ones(classes, dtype=torch.float64))
    if count % 2 == 0:
        assert torch.equal(draws[: count // 2], -draws[count // 2 :])
        assert draws.mean(0).abs().max() < 1e-12


def test_draws_are_fixed_and_leave_the_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    for sampling in ("quasi", "random"):
        assert torch.equal(fixed_draws(64, 4, sampling), fixed_draws(64, 4, sampling))
        assert not torch.equal(fixed_draws(64, 4, sampling), fixed_draws(64, 4, sampling, seed=1))
    assert torch.equal(torch.rand(1), expected)


def test_random_draws_are_standard_normal():
    draws = fixed_draws(10_000, 3, "random")
    assert draws.mean(0).abs().max() < 5 / math.sqrt(10_000)
    assert (draws.var(0) - 1).abs().max() < 5 * math.sqrt(2 / 10_000)


def test_wrong_choices():
    with pytest.raises(InputError, match="at least 2 draws"):
        fixed_draws(1, 3)
    with pytest.raises(InputError, match="at most 1048576"):
        fixed_draws(10**12, 3)
    with pytest.raises(InputError, match="no points for 30000 classes: choose 'random'"):
        fixed_draws(64, 30_000)
    with pytest.raises(InputError, match="'quasi' or 'random'"):
        fixed_draws(64, 3, "sobol")
