"""How good are the answers, and how good is the uncertainty: pure functions on arrays.

Every function takes anything `numpy.asarray` takes, CPU tensors without gradient included, and
computes in float64. None of them plots, prints or knows where the numbers came from.
"""

from onesigma.metrics.calibration import Reliability, expected_calibration_error, reliability
from onesigma.metrics.ranking import aupr, aurc, auroc, fpr95, risk_coverage
from onesigma.metrics.scoring import (
    accuracy,
    brier,
    f1_macro,
    f1_weighted,
    gaussian_nll,
    is_wrong,
    nll,
)
from onesigma.metrics.spotting import (
    RightAndWrong,
    Spotting,
    confidence,
    energy,
    entropy,
    right_and_wrong,
    spot_errors,
    spot_foreign,
)

__all__ = [
    "Reliability",
    "RightAndWrong",
    "Spotting",
    "accuracy",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "confidence",
    "energy",
    "entropy",
    "expected_calibration_error",
    "f1_macro",
    "f1_weighted",
    "fpr95",
    "gaussian_nll",
    "is_wrong",
    "nll",
    "reliability",
    "right_and_wrong",
    "risk_coverage",
    "spot_errors",
    "spot_foreign",
]
