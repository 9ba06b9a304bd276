import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import entropy as scipy_entropy

from onesigma.lab.spotting import (
    aupr,
    confidence,
    energy,
    entropy,
    fpr95,
    right_and_wrong,
    spot_errors,
    spot_foreign,
)
from onesigma.metrics import auroc

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.0, 0.0, 1.0], [0.5, 0.25, 0.25]])
LABELS = np.array([0, 2, 2, 1])


def test_confidence_and_entropy():
    assert confidence(PROBS).tolist() == [0.7, 0.6, 1.0, 0.5]
    assert entropy(PROBS) == pytest.approx(scipy_entropy(PROBS, axis=1), rel=1e-12)
    assert entropy(PROBS)[2] == 0
    assert entropy(torch.full((1, 8), 0.125)) == pytest.approx([np.log(8)])


def test_energy_is_minus_logsumexp_also_where_exp_overflows():
    logits = np.random.default_rng(0).normal(0, 5, size=(50, 6))
    assert energy(logits) == pytest.approx(-logsumexp(logits, axis=1), rel=1e-12)
    assert energy([[1000.0, 1000.0], [-1000.0, -1000.0]]) == pytest.approx(
        [-1000 - np.log(2), 1000 - np.log(2)]
    )
    assert energy(torch.zeros(1, 4)) == pytest.approx([-np.log(4)])


def test_right_and_wrong_by_hand():
    means = right_and_wrong(PROBS, LABELS)
    assert means.confidence_right == pytest.approx((0.7 + 1.0) / 2)
    assert means.confidence_wrong == pytest.approx((0.6 + 0.5) / 2)
    each = scipy_entropy(PROBS, axis=1)
    assert means.entropy_right == pytest.approx((each[0] + each[2]) / 2)
    assert means.entropy_wrong == pytest.approx((each[1] + each[3]) / 2)


def test_without_wrong_answers_their_means_are_nan():
    means = right_and_wrong(np.eye(3), [0, 1, 2])
    assert means.confidence_right == 1
    assert np.isnan([means.confidence_wrong, means.entropy_wrong]).all()
    assert np.isnan(spot_errors(entropy(np.eye(3)), np.eye(3), [0, 1, 2]).auroc)


def test_errors_are_what_is_to_be_found():
    # Wrong are the second and the last; the score puts the first between them.
    found = spot_errors([0.5, 0.9, 0.1, 0.4], PROBS, LABELS)
    assert found.auroc == 0.75
    assert found.aupr == pytest.approx((1 + 2 / 3) / 2)
    assert found.fpr95 == 0.5


def test_foreign_input_is_what_is_to_be_found():
    generator = np.random.default_rng(1)
    known, foreign = generator.normal(0, 1, 70), generator.normal(1, 1, 30)
    found = spot_foreign(known, torch.tensor(foreign))
    scores, positives = np.concatenate([known, foreign]), np.arange(100) >= 70
    for name, metric in {"auroc": auroc, "aupr": aupr, "fpr95": fpr95}.items():
        assert getattr(found, name) == metric(scores, positives)
    assert spot_foreign(foreign, known).auroc == pytest.approx(1 - found.auroc)
