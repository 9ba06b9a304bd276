"""onesigma: a trained network in, its answer and its doubt out, from one forward pass."""

import typing as _typing

from onesigma.errors import (
    CaptureError,
    DataError,
    ExportError,
    FileError,
    InputError,
    ModelError,
    NoRandomness,
    OnesigmaError,
    PackageError,
    UnsupportedOp,
)
from onesigma.lazy_names import import_on_use as _import_on_use
from onesigma.version import __version__

if _typing.TYPE_CHECKING:
    from onesigma.baselines.ensemble import Ensemble, ensemble
    from onesigma.baselines.mc_dropout import McDropout, mc_dropout
    from onesigma.convert import convert
    from onesigma.converted import Converted
    from onesigma.decision import AbstainRule
    from onesigma.fidelity.audit import Audit, audit
    from onesigma.fidelity.calibrate import calibrate
    from onesigma.fidelity.threshold import threshold
    from onesigma.frontends.onnx import read_onnx
    from onesigma.gaussian import Gaussian
    from onesigma.prediction import Prediction
    from onesigma.report import Report
    from onesigma.rules import Assumption, rule
    from onesigma.saving import load, save
    from onesigma.targets.export import export

__all__ = [
    "AbstainRule",
    "Assumption",
    "Audit",
    "CaptureError",
    "Converted",
    "DataError",
    "Ensemble",
    "ExportError",
    "FileError",
    "Gaussian",
    "InputError",
    "McDropout",
    "ModelError",
    "NoRandomness",
    "OnesigmaError",
    "PackageError",
    "Prediction",
    "Report",
    "UnsupportedOp",
    "__version__",
    "audit",
    "calibrate",
    "convert",
    "ensemble",
    "export",
    "load",
    "mc_dropout",
    "read_onnx",
    "rule",
    "save",
    "threshold",
]

# The same once more for the running program. All of these import PyTorch, and a device that only
# runs exported models (onesigma.runtime) has none.
_import_on_use(
    __name__,
    {
        "AbstainRule": "decision",
        "Assumption": "rules",
        "Audit": "fidelity.audit",
        "Converted": "converted",
        "Ensemble": "baselines.ensemble",
        "Gaussian": "gaussian",
        "McDropout": "baselines.mc_dropout",
        "Prediction": "prediction",
        "Report": "report",
        "audit": "fidelity.audit",
        "calibrate": "fidelity.calibrate",
        "convert": "convert",
        "ensemble": "baselines.ensemble",
        "export": "targets.export",
        "load": "saving",
        "mc_dropout": "baselines.mc_dropout",
        "read_onnx": "frontends.onnx",
        "rule": "rules",
        "save": "saving",
        "threshold": "fidelity.threshold",
    },
)
