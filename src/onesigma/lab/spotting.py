"""Scores of uncertainty, and whether they tell wrong answers and foreign input from the rest."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onesigma.metrics.ranking import auroc, check_scores
from onesigma.metrics.scoring import FloatArray, IntArray, is_wrong


@dataclass(frozen=True)
class Spotting:
    """How well a score finds what it should; NaN where there was nothing to find."""

    auroc: float
    aupr: float
    fpr95: float


@dataclass(frozen=True)
class RightAndWrong:
    """Mean confidence and mean predictive entropy of right and of wrong answers; NaN for none."""

    confidence_right: float
    confidence_wrong: float
    entropy_right: float
    entropy_wrong: float


def confidence(probs: npt.ArrayLike) -> FloatArray:
    """The largest probability of each sample."""
    return np.asarray(np.asarray(probs, dtype=np.float64).max(axis=1))


def entropy(probs: npt.ArrayLike) -> FloatArray:
    """Predictive entropy H = −Σₖ pₖ ln pₖ of each sample, in nats (the paper's equation 16)."""
    values = np.asarray(probs, dtype=np.float64)
    logs = np.log(values, out=np.zeros_like(values), where=values > 0)
    return np.asarray(-(values * logs).sum(axis=1))


def energy(logits: npt.ArrayLike) -> FloatArray:
    """Energy E = −ln Σₖ exp zₖ of each sample's logits; high means foreign. Liu et al. 2020."""
    values = np.asarray(logits, dtype=np.float64)
    return np.asarray(-np.logaddexp.reduce(values, axis=1))


def spot_errors(scores: npt.ArrayLike, probs: npt.ArrayLike, labels: npt.ArrayLike) -> Spotting:
    """How well a score, higher for more uncertainty, finds the wrong answers."""
    return _spotting(scores, is_wrong(probs, labels))


def spot_foreign(known: npt.ArrayLike, foreign: npt.ArrayLike) -> Spotting:
    """How well a score, given for known and for foreign input, finds the foreign."""
    groups = [np.asarray(scores, dtype=np.float64) for scores in (known, foreign)]
    return _spotting(np.concatenate(groups), np.repeat([False, True], [len(g) for g in groups]))


def right_and_wrong(probs: npt.ArrayLike, labels: npt.ArrayLike) -> RightAndWrong:
    """Is it surer when right than when wrong?"""
    wrong = is_wrong(probs, labels)
    means = [
        float(values[rows].mean()) if rows.any() else float("nan")
        for values in (confidence(probs), entropy(probs))
        for rows in (~wrong, wrong)
    ]
    return RightAndWrong(*means)


def _spotting(scores: npt.ArrayLike, positives: npt.ArrayLike) -> Spotting:
    return Spotting(*(area(scores, positives) for area in (auroc, aupr, fpr95)))


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
    values, marks = check_scores(scores, positives, "positives")
    _, inverse, counts = np.unique(-values, return_inverse=True, return_counts=True)
    hits = np.bincount(inverse, weights=marks, minlength=len(counts)).astype(np.int64)
    found, alarms = (np.concatenate([[0], np.cumsum(c)]) for c in (hits, counts))
    return found, alarms, int(len(marks) - marks.sum())
