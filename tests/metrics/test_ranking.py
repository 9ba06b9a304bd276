import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from onesigma.lab.spotting import aupr, fpr95
from onesigma.metrics import aurc, auroc, risk_coverage


def test_auroc_by_hand():
    # Pairs (positive, negative): 0.9>0.8, 0.9>0.1, 0.4<0.8, 0.4>0.1: three of four.
    assert auroc([0.9, 0.8, 0.4, 0.1], [1, 0, 1, 0]) == 0.75


def test_auroc_perfect_reversed_and_constant():
    assert auroc([1, 2, 3, 4], [0, 0, 1, 1]) == 1.0
    assert auroc([4, 3, 2, 1], [0, 0, 1, 1]) == 0.0
    assert auroc([5, 5, 5, 5], [0, 1, 1, 1]) == 0.5


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_auroc_with_ties_against_scikit_learn_and_all_pairs(levels):
    generator = np.random.default_rng(levels)
    scores = generator.integers(0, levels, 80) / levels
    positives = generator.random(80) < 0.3
    pairs = [
        float(a > b) + 0.5 * float(a == b)
        for a, b in itertools.product(scores[positives], scores[~positives])
    ]
    assert auroc(scores, positives) == pytest.approx(np.mean(pairs), rel=1e-12)
    assert auroc(scores, positives) == pytest.approx(roc_auc_score(positives, scores), rel=1e-12)


def test_auroc_keeps_under_increasing_maps_and_flips_under_negation():
    generator = np.random.default_rng(0)
    scores, positives = generator.normal(size=60), generator.random(60) < 0.5
    assert auroc(np.exp(scores), positives) == auroc(scores, positives)
    assert auroc(-scores, positives) == pytest.approx(1 - auroc(scores, positives))
    assert auroc(scores, ~positives) == pytest.approx(1 - auroc(scores, positives))


def test_auroc_of_one_kind_only_is_nan():
    assert np.isnan(auroc([0.1, 0.2], [0, 0]))
    assert np.isnan(auroc([0.1, 0.2], [1, 1]))
    assert np.isnan(auroc([], []))


def test_infinite_scores_have_a_rank_and_nan_has_none():
    assert auroc([np.inf, -np.inf, 0.0], [1, 0, 0]) == 1.0
    with pytest.raises(ValueError, match="NaN"):
        auroc([np.nan, 0.0], [1, 0])


def test_tensors_are_accepted():
    assert auroc(torch.tensor([0.9, 0.1]), torch.tensor([True, False])) == 1.0


@pytest.mark.parametrize("flags", [[0, 2], [0.5, 1], [[0, 1]]])
def test_bad_flags_are_refused(flags):
    with pytest.raises(ValueError, match="positives"):
        auroc([0.1, 0.2], flags)


def test_aupr_by_hand():
    # From the top: a positive (precision 1), a negative, a positive (2 of 3), a negative.
    assert aupr([0.9, 0.8, 0.4, 0.1], [1, 0, 1, 0]) == pytest.approx((1 + 2 / 3) / 2)
    assert aupr([5, 5, 5, 5], [0, 1, 0, 0]) == 0.25


def test_fpr95_by_hand():
    # All positives are found at 0.3, where two of four negatives are flagged too.
    scores, positives = [0.9, 0.3, 0.8, 0.3, 0.2, 0.1], [1, 1, 0, 0, 0, 0]
    assert fpr95(scores, positives) == 0.5
    assert fpr95(scores, positives, recall=0.5) == 0.0
    assert fpr95([1, 2, 3, 4], [0, 0, 1, 1]) == 0.0
    assert fpr95([4, 3, 2, 1], [0, 0, 1, 1]) == 1.0
    # 19 of 20 positives are enough.
    assert fpr95([*range(1, 21), 1.5], [1] * 20 + [0]) == 0.0


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_aupr_and_fpr95_with_ties_against_scikit_learn(levels):
    generator = np.random.default_rng(levels)
    scores = generator.integers(0, levels, 200) / levels
    positives = generator.random(200) < 0.3
    expected = average_precision_score(positives, scores)
    assert aupr(scores, positives) == pytest.approx(expected, rel=1e-12)
    false, true, _ = roc_curve(positives, scores, drop_intermediate=False)
    assert fpr95(scores, positives) == pytest.approx(false[true >= 0.95].min(), rel=1e-12)


def test_aupr_and_fpr95_without_one_kind_are_nan():
    assert np.isnan(aupr([0.1, 0.2], [0, 0]))
    assert aupr([0.1, 0.2], [1, 1]) == 1.0
    for positives in ([0, 0], [1, 1]):
        assert np.isnan(fpr95([0.1, 0.2], positives))
    assert np.isnan(aupr([], []))
    assert np.isnan(fpr95([], []))


def test_risk_coverage_by_hand():
    coverage, risk = risk_coverage([0.1, 0.4, 0.2, 0.3], [0, 1, 0, 1])
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert risk == pytest.approx([0, 0, 1 / 3, 1 / 2])
    assert aurc([0.1, 0.4, 0.2, 0.3], [0, 1, 0, 1]) == pytest.approx((1 / 3 + 1 / 2) / 4)


def test_ties_in_uncertainty_do_not_depend_on_order():
    _, one = risk_coverage([1, 1, 1, 1], [1, 0, 0, 0])
    _, other = risk_coverage([1, 1, 1, 1], [0, 0, 0, 1])
    assert one.tolist() == other.tolist() == [0.25, 0.25, 0.25, 0.25]


def test_full_coverage_is_the_error_rate_and_no_error_is_no_risk():
    generator = np.random.default_rng(3)
    uncertainty, wrong = generator.random(50), generator.random(50) < 0.2
    assert risk_coverage(uncertainty, wrong)[1][-1] == pytest.approx(wrong.mean())
    assert aurc(uncertainty, np.zeros(50)) == 0.0
    with pytest.raises(ValueError, match="no samples"):
        risk_coverage([], [])
