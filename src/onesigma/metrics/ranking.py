"""Does the uncertainty rank wrong answers above right ones? Only the order of scores counts."""

import numpy as np
import numpy.typing as npt

from onesigma.metrics.scoring import FloatArray


def check_scores(
    scores: npt.ArrayLike, flags: npt.ArrayLike, flags_name: str
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Both as arrays (n,), or a ValueError that names what is wrong."""
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
    values, marks = check_scores(scores, positives, "positives")
    positive_count = int(marks.sum())
    negative_count = len(marks) - positive_count
    if positive_count == 0 or negative_count == 0:
        return float("nan")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    midranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = midranks[inverse][marks].sum()
    smallest = positive_count * (positive_count + 1) / 2
    return float((rank_sum - smallest) / (positive_count * negative_count))


def risk_coverage(
    uncertainty: npt.ArrayLike, wrong: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Error rate among the k least uncertain samples, for k = 1..n, as (coverage, risk).

    Samples of equal uncertainty cannot be told apart, so each counts with the error rate of its
    group: the curve does not depend on the order of the input.
    """
    values, marks = check_scores(uncertainty, wrong, "wrong")
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
