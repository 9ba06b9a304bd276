"""How good are the answers, and how good is the uncertainty: pure functions on arrays.

Every function takes anything `numpy.asarray` takes, CPU tensors without gradient included, and
computes in float64. None of them plots, prints or knows where the numbers came from.
"""

from onesigma.metrics.calibration import Reliability as Reliability
from onesigma.metrics.calibration import expected_calibration_error as expected_calibration_error
from onesigma.metrics.calibration import reliability as reliability
from onesigma.metrics.ranking import aurc as aurc
from onesigma.metrics.ranking import auroc as auroc
from onesigma.metrics.ranking import risk_coverage as risk_coverage
from onesigma.metrics.scoring import accuracy as accuracy
from onesigma.metrics.scoring import brier as brier
from onesigma.metrics.scoring import f1_macro as f1_macro
from onesigma.metrics.scoring import f1_weighted as f1_weighted
from onesigma.metrics.scoring import gaussian_nll as gaussian_nll
from onesigma.metrics.scoring import is_wrong as is_wrong
from onesigma.metrics.scoring import nll as nll
