"""onesigma: a trained network in, its answer and its doubt out, from one forward pass."""

from onesigma.convert import Converted, convert
from onesigma.errors import (
    CaptureError,
    DataError,
    FileError,
    InputError,
    ModelError,
    NoRandomness,
    OnesigmaError,
    UnsupportedOp,
)
from onesigma.gaussian import Gaussian
from onesigma.prediction import Prediction
from onesigma.report import Report
from onesigma.rules import Assumption, rule
from onesigma.version import __version__

__all__ = [
    "Assumption",
    "CaptureError",
    "Converted",
    "DataError",
    "FileError",
    "Gaussian",
    "InputError",
    "ModelError",
    "NoRandomness",
    "OnesigmaError",
    "Prediction",
    "Report",
    "UnsupportedOp",
    "__version__",
    "convert",
    "rule",
]
