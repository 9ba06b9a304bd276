"""How good are the answers, and how good is the doubt: pure functions on arrays.

Every function takes anything `numpy.asarray` takes, CPU tensors without gradient included, and
computes in float64. None of them plots, prints or knows where the numbers came from.
"""

from onesigma.metrics.answer import accuracy, brier, nll
from onesigma.metrics.calibration import Reliability, expected_calibration_error, reliability
from onesigma.metrics.ranking import aurc, auroc, risk_coverage

__all__ = [
    "Reliability",
    "accuracy",
    "aurc",
    "auroc",
    "brier",
    "expected_calibration_error",
    "nll",
    "reliability",
    "risk_coverage",
]
