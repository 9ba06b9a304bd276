"""Scores of uncertainty, and whether they tell wrong answers and foreign input from the rest."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onesigma.metrics.ranking import aupr, auroc, fpr95
from onesigma.metrics.scoring import FloatArray, is_wrong


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
