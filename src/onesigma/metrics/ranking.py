"""Does the uncertainty rank wrong answers above right ones? Only the order of scores counts."""

import numpy as np
import numpy.typing as npt

from onesigma.metrics.scoring import FloatArray, IntArray


def _checked(
    scores: npt.ArrayLike, flags: npt.ArrayLike, flags_name: str
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    values = np.asarray(scores, dtype=np.float64)
    marks = np.asarray(flags)
    if values.ndim != 1 or marks.shape != values.shape:
        raise ValueError(
            f"Expected scores (n,) and {flags_name} (n,), got {values.shape} and {marks.shape}."
        )
    if np.isnan(values).any():
        raise ValueError("scores contain NaN, which has no rank.")
    if not np.isin(marks, (0, 1)).all():
        raise ValueError(f"{flags_name} must be booleans or 0 and 1.")
    return values, marks.astype(np.bool_)


def auroc(scores: npt.ArrayLike, positives: npt.ArrayLike) -> float:
    """Area under the ROC curve: P(score of a positive > of a negative) + ½ P(equal).

        AUROC = (R₊ − n₊(n₊ + 1)/2) / (n₊ n₋),   R₊ = sum of the positives' midranks
    Mann & Whitney 1947; midranks make ties count one half, so a constant score gives exactly ½.
    NaN when all samples are positive or none is (for instance no wrong answers): there is then no
    pair to order.

    Args:
        scores: higher should mean "more likely positive", e.g. entropy.
        positives: what is to be found, e.g. wrong answers, or foreign inputs.
    """
    values, marks = _checked(scores, positives, "positives")
    positive_count = int(marks.sum())
    negative_count = len(marks) - positive_count
    if positive_count == 0 or negative_count == 0:
        return float("nan")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    midranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = midranks[inverse][marks].sum()
    smallest = positive_count * (positive_count + 1) / 2
    return float((rank_sum - smallest) / (positive_count * negative_count))


def aupr(scores: npt.ArrayLike, positives: npt.ArrayLike) -> float:
    """Area under the precision-recall curve, as average precision.

        AUPR = Σ_t (recall_t − recall_{t−1}) precision_t,   thresholds t from high to low
    Chance is the share of positives, so compare only at the same share. NaN without positives.
    """
    found, alarms, _ = _by_threshold(scores, positives)
    if found[-1] == 0:
        return float("nan")
    return float(np.sum(np.diff(found) * found[1:] / alarms[1:]) / found[-1])


def fpr95(scores: npt.ArrayLike, positives: npt.ArrayLike, recall: float = 0.95) -> float:
    """Share of negatives flagged at the highest threshold that finds 95 % of the positives.

    Lower is better. What is to be found (wrong answers, foreign input) is the positive here; part
    of the literature calls the known input positive, which gives another number. NaN when all
    samples are positive or none is.
    """
    found, alarms, negative_count = _by_threshold(scores, positives)
    if found[-1] == 0 or negative_count == 0:
        return float("nan")
    # 0.95 is no binary number: 95 found of 100 must be enough.
    first = int(np.argmax(found >= recall * found[-1] - 1e-9))
    return float((alarms[first] - found[first]) / negative_count)


def _by_threshold(
    scores: npt.ArrayLike, positives: npt.ArrayLike
) -> tuple[IntArray, IntArray, int]:
    """Positives found and alarms in all at each threshold, from none to all; negatives in all.

    One threshold per distinct score: equal scores are flagged together or not at all.
    """
    values, marks = _checked(scores, positives, "positives")
    _, inverse, counts = np.unique(-values, return_inverse=True, return_counts=True)
    hits = np.bincount(inverse, weights=marks, minlength=len(counts)).astype(np.int64)
    found, alarms = (np.concatenate([[0], np.cumsum(c)]) for c in (hits, counts))
    return found, alarms, int(len(marks) - marks.sum())


def risk_coverage(
    uncertainty: npt.ArrayLike, wrong: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Error rate among the k least uncertain samples, for k = 1..n, as (coverage, risk).

    Samples of equal uncertainty cannot be told apart, so each counts with the error rate of its
    group: the curve does not depend on the order of the input.
    """
    values, marks = _checked(uncertainty, wrong, "wrong")
    if len(values) == 0:
        raise ValueError("A risk-coverage curve of no samples is undefined.")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    group_error = np.bincount(inverse, weights=marks) / counts
    kept = np.arange(1, len(values) + 1)
    return kept / len(values), np.cumsum(np.repeat(group_error, counts)) / kept


def aurc(uncertainty: npt.ArrayLike, wrong: npt.ArrayLike) -> float:
    """Area under the risk-coverage curve: mean risk over all coverages; lower is better.

    Geifman & El-Yaniv 2017. 0 when nothing is wrong.
    """
    _, risk = risk_coverage(uncertainty, wrong)
    return float(risk.mean())
