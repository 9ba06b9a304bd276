"""One temperature: found where another minimiser finds it, and finite where there is none."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from onesigma import InputError, Prediction
from onesigma.decide.temperature import LIMIT, Temperature, fit_temperature


def sample(sharpness: float, n: int = 4000, classes: int = 5, seed: int = 0):
    """Labels drawn from probabilities, and the same probabilities made too sharp (or too flat)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return (sharpness * logits).softmax(1), labels


def nll(probs, labels, temperature: float) -> float:
    """Negative log-likelihood by numpy and powers."""
    powers = probs.double().numpy() ** (1 / temperature)
    chosen = powers[np.arange(len(labels)), labels.numpy()] / powers.sum(1)
    return -float(np.log(chosen).mean())


@pytest.mark.parametrize("sharpness", [0.2, 0.9, 1.0, 3.0])
def test_is_where_the_likelihood_is_highest(sharpness):
    probs, labels = sample(sharpness)
    found = fit_temperature(probs, labels).value
    best = minimize_scalar(
        lambda t: nll(probs, labels, t), bounds=(0.05, 20), options={"xatol": 1e-9}
    )
    assert found == pytest.approx(best.x, rel=1e-5)
    # The maximum-likelihood estimate scatters around the true value: 5 standard errors.
    curvature = (nll(probs, labels, found * 1.01) + nll(probs, labels, found / 1.01)) / 2
    curvature = 2 * (curvature - nll(probs, labels, found)) / math.log(1.01) ** 2
    error = found / math.sqrt(curvature * len(labels))
    assert abs(found - sharpness) < 5 * error


def test_float32_finds_the_same():
    probs, labels = sample(2.0)
    single = fit_temperature(probs.float(), labels).value
    assert single == pytest.approx(fit_temperature(probs, labels).value, rel=1e-4)


def test_classes_anywhere():
    probs, labels = sample(2.0, 600)
    expected = fit_temperature(probs, labels)
    dense = probs.reshape(30, 20, 5)
    last = fit_temperature(dense, labels.reshape(30, 20), class_dim=-1)
    second = fit_temperature(dense.movedim(-1, 1), labels.reshape(30, 20))
    assert last.value == second.value == expected.value


@pytest.mark.parametrize("seed", range(5))
def test_never_worse_than_none(seed):
    probs, labels = sample(1.0, 12, seed=seed)
    assert nll(probs, labels, fit_temperature(probs, labels).value) <= nll(probs, labels, 1) + 1e-12


PERFECT = torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0, 1])
WRONG = PERFECT[0], torch.tensor([1, 0])
SINGLE_CLASS = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]]), torch.tensor([0, 0, 0])
ZEROS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.4]]), torch.tensor([0, 1, 1, 0])
UNIFORM = torch.full((3, 4), 0.25), torch.tensor([0, 1, 3])


def test_answers_all_right_or_all_wrong_stop_at_the_limit():
    assert fit_temperature(*PERFECT).value == pytest.approx(1 / LIMIT)
    assert fit_temperature(*WRONG).value == pytest.approx(LIMIT)


def test_uniform_answers_say_nothing():
    assert fit_temperature(*UNIFORM).value == 1


@pytest.mark.parametrize("case", [SINGLE_CLASS, ZEROS], ids=["single-class", "zeros"])
def test_odd_labels_have_a_finite_temperature(case):
    probs, labels = case
    found = fit_temperature(probs, labels)
    assert 1 / LIMIT < found.value < LIMIT
    answer = found.apply(Prediction(probs, probs, probs))
    assert torch.isfinite(answer.probs).all()
    assert torch.isfinite(answer.entropy).all()


@pytest.mark.parametrize("value", [1 / LIMIT, 0.4, 1.0, 2.5, LIMIT])
@pytest.mark.parametrize("class_dim", [1, -1])
def test_apply(value, class_dim):
    probs, _ = sample(1.0, 50)
    parts = [torch.rand(50) for _ in range(3)]
    answer = Prediction(probs, probs, probs, *parts, plain_probs=probs, class_dim=class_dim)
    changed = Temperature(value).apply(answer)
    powers = probs.numpy() ** (1 / value)
    expected = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(changed.probs.numpy(), expected, rtol=1e-12)
    entropy = -(expected * np.log(np.maximum(expected, 1e-300))).sum(1)
    np.testing.assert_allclose(changed.entropy.numpy(), entropy, rtol=1e-9, atol=1e-12)
    assert torch.equal(changed.label, answer.label)
    for name in ("mean", "var", "aleatoric", "epistemic", "plain_probs", "class_dim"):
        assert getattr(changed, name) is getattr(answer, name)


def test_refuses():
    probs, labels = sample(1.0, 10)
    with pytest.raises(InputError, match="logits"):
        fit_temperature(probs.log(), labels)
    with pytest.raises(InputError, match="logits, or NaN"):
        fit_temperature(probs * math.nan, labels)
    with pytest.raises(InputError, match="shape"):
        fit_temperature(probs, labels[:5])
    with pytest.raises(InputError, match="at least one"):
        fit_temperature(probs[:0], labels[:0])
    with pytest.raises(InputError, match="regression"):
        Temperature(2.0).apply(Prediction(probs, probs))
    for value in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="positive"):
            Temperature(value)


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Temperature(1.0).value = 2.0


def test_it_grows_with_novelty():
    """By powers in numpy; among known inputs nothing changes."""
    probs = torch.tensor([[0.7, 0.2, 0.1]] * 4)
    novelty = torch.tensor([0.9, 0.05, 0.01, 0.0])
    given = Prediction(probs, probs, probs, novelty=novelty)
    found = Temperature(1.5, shift=0.3).apply(given).probs.numpy()
    for row, odd in enumerate([1, 1, 5, 0.05 / 1e-6]):
        powers = probs[row].numpy() ** (1 / (1.5 * odd**0.3))
        np.testing.assert_allclose(found[row], powers / powers.sum(), rtol=1e-5)


def test_growing_needs_a_guard():
    probs = torch.tensor([[0.7, 0.3]])
    with pytest.raises(InputError, match="guard"):
        Temperature(1.5, shift=0.3).apply(Prediction(probs, probs, probs))
    with pytest.raises(InputError, match="shift"):
        Temperature(1.5, shift=-1.0)
