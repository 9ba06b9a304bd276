import numpy as np
import pytest

from onesigma.metrics import expected_calibration_error, reliability


def two_class(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities whose top one, at class 0, is `confidence`, and labels that make it right."""
    confidence = np.asarray(confidence, dtype=float)
    return np.stack([confidence, 1 - confidence], axis=1), np.where(right, 0, 1)


def test_four_samples_by_hand():
    probs, labels = two_class([0.95, 0.93, 0.65, 0.55], [True, False, True, False])
    # Ten bins: two samples at mean 0.94 and half right, one at 0.65 right, one at 0.55 wrong.
    expected = (2 * 0.44 + 0.35 + 0.55) / 4
    assert expected_calibration_error(probs, labels, bins=10) == pytest.approx(expected)


def test_always_sure_costs_the_error_rate():
    probs, labels = two_class(np.ones(10), np.arange(10) < 7)
    assert expected_calibration_error(probs, labels) == pytest.approx(0.3)


def test_sure_and_right_is_zero():
    assert expected_calibration_error(np.eye(4), np.arange(4)) == 0.0


def test_one_bin_is_the_gap_of_the_means():
    generator = np.random.default_rng(0)
    probs, labels = generator.dirichlet(np.ones(5), 200), generator.integers(0, 5, 200)
    gap = abs(probs.max(1).mean() - (probs.argmax(1) == labels).mean())
    assert expected_calibration_error(probs, labels, bins=1) == pytest.approx(gap)


def test_calibrated_by_construction_tends_to_zero_and_overconfidence_does_not():
    generator = np.random.default_rng(1)
    probs = generator.dirichlet(np.ones(4), 40_000)
    labels = (generator.random((len(probs), 1)) > probs.cumsum(1)).sum(1).clip(max=3)
    # Per bin the gap is at most sqrt(1/(4 n_b)); summed over 15 bins, under sqrt(15/(4 n)).
    assert expected_calibration_error(probs, labels) < np.sqrt(15 / (4 * len(probs)))
    sharpened = probs**3 / (probs**3).sum(1, keepdims=True)
    assert expected_calibration_error(sharpened, labels) > 0.1


def test_bins_are_closed_above_and_empty_ones_are_nan():
    probs, labels = two_class([0.5, 0.75, 1.0], [True, True, True])
    table = reliability(probs, labels, bins=4)
    assert table.count.tolist() == [0, 1, 1, 1]
    assert np.isnan(table.accuracy[0])
    assert np.isnan(table.confidence[0])
    assert table.confidence[1:].tolist() == [0.5, 0.75, 1.0]
    assert table.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_rounding_above_one_stays_in_the_last_bin():
    table = reliability(np.array([[1 + 1e-7, 0.0]]), [0])
    assert table.count[-1] == 1


@pytest.mark.parametrize("equal_mass", [False, True])
def test_order_does_not_matter(equal_mass):
    generator = np.random.default_rng(2)
    # Rounded, so that many confidences are equal.
    probs, labels = generator.dirichlet(np.ones(7), 100).round(1), generator.integers(0, 7, 100)
    order = generator.permutation(100)
    errors = [
        expected_calibration_error(p, y, equal_mass=equal_mass)
        for p, y in ((probs, labels), (probs[order], labels[order]))
    ]
    assert errors[0] == pytest.approx(errors[1])


def test_equal_mass_by_hand():
    probs, labels = two_class([0.6, 0.7, 0.8, 0.9], [False, True, True, True])
    # Two bins: 0.6 and 0.7 against one of two right, 0.8 and 0.9 against both.
    error = expected_calibration_error(probs, labels, bins=2, equal_mass=True)
    assert error == pytest.approx((abs(0.65 - 0.5) + abs(0.85 - 1)) / 2)


@pytest.mark.parametrize(("n", "bins"), [(100, 10), (103, 15), (7, 3)])
def test_equal_mass_bins_are_those_of_the_sorted_confidences(n, bins):
    generator = np.random.default_rng(n)
    probs, labels = generator.dirichlet(np.ones(5), n), generator.integers(0, 5, n)
    table = reliability(probs, labels, bins, equal_mass=True)
    assert table.count.sum() == n
    assert np.ptp(table.count) <= 1
    order = np.argsort(probs.max(1))
    groups = np.split(order, np.cumsum(table.count)[:-1])
    assert table.confidence == pytest.approx([probs.max(1)[g].mean() for g in groups])
    right = probs.argmax(1) == labels
    assert table.accuracy == pytest.approx([right[g].mean() for g in groups])


def test_equal_mass_of_one_confidence_is_one_bin():
    probs, labels = two_class([1.0, 1.0, 1.0, 1.0], [True, True, True, False])
    assert reliability(probs, labels, 5, equal_mass=True).count.tolist() == [4, 0, 0, 0, 0]
    assert expected_calibration_error(probs, labels, 5, equal_mass=True) == pytest.approx(0.25)


def test_zero_bins_are_refused():
    with pytest.raises(ValueError, match="bins"):
        expected_calibration_error(np.eye(2), [0, 1], bins=0)
