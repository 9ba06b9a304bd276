"""onesigma: a trained network in, its answer and its doubt out, from one forward pass."""

from onesigma.baselines.mc_dropout import McDropout, mc_dropout
from onesigma.convert import convert
from onesigma.converted import Converted
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
from onesigma.fidelity.audit import Audit, audit
from onesigma.fidelity.calibrate import calibrate
from onesigma.gaussian import Gaussian
from onesigma.prediction import Prediction
from onesigma.report import Report
from onesigma.rules import Assumption, rule
from onesigma.saving import load, save
from onesigma.version import __version__

__all__ = [
    "Assumption",
    "Audit",
    "CaptureError",
    "Converted",
    "DataError",
    "FileError",
    "Gaussian",
    "InputError",
    "McDropout",
    "ModelError",
    "NoRandomness",
    "OnesigmaError",
    "Prediction",
    "Report",
    "UnsupportedOp",
    "__version__",
    "audit",
    "calibrate",
    "convert",
    "load",
    "mc_dropout",
    "rule",
    "save",
]
