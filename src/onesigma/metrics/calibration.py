"""Does 80 % confidence mean right 80 % of the time?"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onesigma.metrics.scoring import FloatArray, IntArray, checked


@dataclass(frozen=True)
class Reliability:
    """One row per bin of confidence; `confidence` and `accuracy` are NaN where `count` is 0."""

    edges: FloatArray
    count: IntArray
    confidence: FloatArray
    accuracy: FloatArray


def reliability(
    probs: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15, *, equal_mass: bool = False
) -> Reliability:
    """Mean confidence and accuracy in bins (lower, upper] of the top probability.

    Of equal width over 0..1, or of equal mass: edges at the quantiles of the confidence. Equal
    confidences share a bin, so that the order of the samples does not matter; with many of them
    some bins are then fuller than others, or empty.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}.")
    values, classes = checked(probs, labels)
    top = values.max(axis=1)
    right = values.argmax(axis=1) == classes
    edges = np.linspace(0.0, 1.0, bins + 1)
    if equal_mass:
        edges = np.quantile(top, edges)
    # Right-closed bins keep a confidence of exactly 1 in the last bin; clipping keeps an exact 0,
    # and a sum of float32 that came out as 1.0000001, in range.
    index = np.clip(np.searchsorted(edges, top, side="left") - 1, 0, bins - 1)
    count = np.bincount(index, minlength=bins).astype(np.int64)
    divisor = np.where(count > 0, count, np.nan)
    return Reliability(
        edges=edges,
        count=count,
        confidence=np.bincount(index, weights=top, minlength=bins) / divisor,
        accuracy=np.bincount(index, weights=right, minlength=bins) / divisor,
    )


def expected_calibration_error(
    probs: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15, *, equal_mass: bool = False
) -> float:
    """Expected calibration error of the top probability.

        ECE = Σ_b (n_b / n) |accuracy_b − confidence_b|
    Guo et al. 2017 with bins of equal width; with `equal_mass` the adaptive form (Nguyen & O'Connor
    2015), which spends its bins where the answers are. Empty bins weigh nothing. Biased upwards
    when there are few samples per bin, so compare only numbers of the same n and bins.
    """
    table = reliability(probs, labels, bins, equal_mass=equal_mass)
    filled = table.count > 0
    gap = np.abs(table.accuracy[filled] - table.confidence[filled])
    return float(np.sum(table.count[filled] * gap) / table.count.sum())
