import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import accuracy_score, f1_score, log_loss

from onesigma.metrics import accuracy, brier, f1_macro, f1_weighted, gaussian_nll, is_wrong, nll

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])
LABELS = np.array([0, 2, 2, 1])


def random_case(seed: int = 0, n: int = 300, classes: int = 7) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.dirichlet(np.ones(classes), n), generator.integers(0, classes, n)


def test_four_samples_by_hand():
    assert accuracy(PROBS, LABELS) == 0.5
    assert nll(PROBS, LABELS) == pytest.approx(-np.log(0.7 * 0.3 * 0.4 * 0.25) / 4, rel=1e-12)
    # 0.09+0.04+0.01, 0.01+0.36+0.49, 0.09+0.09+0.36, 0.25+0.5625+0.0625
    assert brier(PROBS, LABELS) == pytest.approx((0.14 + 0.86 + 0.54 + 0.875) / 4, rel=1e-12)


def test_perfect_and_worst_answers():
    certain = np.eye(3)
    assert accuracy(certain, [0, 1, 2]) == 1.0
    assert nll(certain, [0, 1, 2]) == 0.0
    assert brier(certain, [0, 1, 2]) == 0.0
    assert accuracy(certain, [1, 2, 0]) == 0.0
    assert brier(certain, [1, 2, 0]) == 2.0
    assert nll(certain, [1, 2, 0]) == pytest.approx(-np.log(1e-12))


def test_uniform_answer_costs_log_classes():
    uniform = np.full((5, 7), 1 / 7)
    assert nll(uniform, [0, 1, 2, 3, 4]) == pytest.approx(np.log(7))
    assert brier(uniform, [0, 1, 2, 3, 4]) == pytest.approx(1 - 1 / 7)


def test_against_scikit_learn():
    probs, labels = random_case()
    assert accuracy(probs, labels) == pytest.approx(accuracy_score(labels, probs.argmax(1)))
    assert nll(probs, labels) == pytest.approx(log_loss(labels, probs, labels=range(7)))


def test_f1_by_hand():
    # Answers 0 1 2 0, labels 0 2 2 1: of 2·hits / (labels + answers), 2/3, 0/2 and 2/3.
    assert is_wrong(PROBS, LABELS).tolist() == [False, True, False, True]
    assert f1_macro(PROBS, LABELS) == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)
    assert f1_weighted(PROBS, LABELS) == pytest.approx((2 / 3 + 0 + 2 * 2 / 3) / 4)


@pytest.mark.parametrize("used", [7, 4])
def test_f1_against_scikit_learn_also_where_classes_never_occur(used):
    probs, labels = random_case(seed=4, n=60)
    labels = labels % used
    probs[:, used:] = 0
    answers = probs.argmax(1)
    assert f1_macro(probs, labels) == pytest.approx(f1_score(labels, answers, average="macro"))
    assert f1_weighted(probs, labels) == pytest.approx(
        f1_score(labels, answers, average="weighted")
    )


def test_f1_of_a_class_that_is_answered_but_never_right_counts_as_zero():
    assert f1_macro(np.eye(3)[[0, 1]], [0, 0]) == pytest.approx((2 / 3 + 0) / 2)
    assert f1_weighted(np.eye(3)[[0, 1]], [0, 0]) == pytest.approx(2 / 3)


def test_gaussian_nll_is_the_paper_sum_per_observation():
    observed, mean, var = np.array([1.0, 2.0, 4.0]), 2.0, 0.5
    paper = 3 / 2 * np.log(2 * np.pi) + 3 / 2 * np.log(var) + (1 + 0 + 4) / (2 * var)
    assert gaussian_nll(mean, var, observed) == pytest.approx(paper / 3, rel=1e-12)


def test_gaussian_nll_against_scipy_each_with_its_own_moments():
    generator = np.random.default_rng(5)
    mean, observed = generator.normal(size=(2, 40, 3))
    var = generator.gamma(1.0, size=(40, 3)) + 0.01
    expected = -norm.logpdf(observed, mean, np.sqrt(var)).mean()
    assert gaussian_nll(mean, var, observed) == pytest.approx(expected, rel=1e-12)
    assert gaussian_nll(torch.tensor(mean), var, observed) == pytest.approx(expected)


def test_gaussian_nll_believes_no_variance_below_its_floor():
    assert gaussian_nll(0, 0, 1, floor=0.01) == gaussian_nll(0, 0.01, 1)
    assert gaussian_nll([0, 0], [0, 1e-9], [1e-3, 0]) == gaussian_nll([0, 0], [1e-6] * 2, [1e-3, 0])


@pytest.mark.parametrize(
    ("mean", "var", "observed", "floor", "message"),
    [
        (0, -1, 0, 1e-6, "var not negative"),
        (np.nan, 1, 0, 1e-6, "finite"),
        (0, 1, np.inf, 1e-6, "finite"),
        (0, 1, 0, 0, "floor"),
        ([], [], [], 1e-6, "empty"),
    ],
)
def test_gaussian_nll_refuses_nonsense(mean, var, observed, floor, message):
    with pytest.raises(ValueError, match=message):
        gaussian_nll(mean, var, observed, floor)


@pytest.mark.parametrize("metric", [accuracy, f1_macro, f1_weighted, nll, brier])
def test_order_of_samples_and_names_of_classes_do_not_matter(metric):
    probs, labels = random_case(seed=1)
    generator = np.random.default_rng(2)
    order = generator.permutation(len(labels))
    assert metric(probs[order], labels[order]) == pytest.approx(metric(probs, labels))
    renamed = generator.permutation(7)
    # Class k is stored in the column where `renamed` holds k.
    assert metric(probs[:, renamed], np.argsort(renamed)[labels]) == pytest.approx(
        metric(probs, labels)
    )


def test_tensors_are_accepted():
    probs, labels = random_case(seed=3)
    as_tensors = torch.tensor(probs, dtype=torch.float32), torch.tensor(labels)
    assert nll(*as_tensors) == pytest.approx(nll(probs, labels), rel=1e-6)


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        (PROBS, LABELS[:3], r"\(4, 3\) and \(3,\)"),
        (PROBS[0], LABELS[:1], "n, classes"),
        (np.empty((0, 3)), np.empty(0, dtype=int), "empty"),
        (PROBS * 4, LABELS, "logits"),
        (PROBS - 0.5, LABELS, "logits"),
        (PROBS * np.nan, LABELS, "finite"),
        (PROBS, LABELS + 1, r"0\.\.2"),
        (PROBS, LABELS - 1, r"0\.\.2"),
        (PROBS, LABELS.astype(float), "integers"),
    ],
)
def test_bad_input_is_named(probs, labels, message):
    with pytest.raises(ValueError, match=message):
        accuracy(probs, labels)
