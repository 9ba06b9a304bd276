"""onesigma: a trained network in, its answer and its uncertainty out, from one forward pass."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from onesigma.errors import CaptureError as CaptureError
from onesigma.errors import DataError as DataError
from onesigma.errors import ExportError as ExportError
from onesigma.errors import FileError as FileError
from onesigma.errors import InputError as InputError
from onesigma.errors import ModelError as ModelError
from onesigma.errors import NoRandomness as NoRandomness
from onesigma.errors import OnesigmaError as OnesigmaError
from onesigma.errors import PackageError as PackageError
from onesigma.errors import UnsupportedOp as UnsupportedOp
from onesigma.version import __version__ as __version__

if _TYPE_CHECKING:
    from onesigma.baselines.ensemble import Ensemble as Ensemble
    from onesigma.baselines.ensemble import ensemble as ensemble
    from onesigma.baselines.mc_dropout import McDropout as McDropout
    from onesigma.baselines.mc_dropout import mc_dropout as mc_dropout
    from onesigma.calibration.choice import calibrate as calibrate
    from onesigma.calibration.comparison import Audit as Audit
    from onesigma.calibration.comparison import audit as audit
    from onesigma.calibration.exits import early_exit as early_exit
    from onesigma.conversion import convert as convert
    from onesigma.converted import Converted as Converted
    from onesigma.decide.monitor import Monitor as Monitor
    from onesigma.decide.temperature import Temperature as Temperature
    from onesigma.decide.temperature import fit_temperature as fit_temperature
    from onesigma.decide.threshold import AbstainRule as AbstainRule
    from onesigma.decide.threshold import threshold as threshold
    from onesigma.exporters.targets import export as export
    from onesigma.fitting import fit as fit
    from onesigma.forms.exits import EarlyExit as EarlyExit
    from onesigma.importers.keras_files import read_keras as read_keras
    from onesigma.importers.onnx.read import read_onnx as read_onnx
    from onesigma.prediction import Prediction as Prediction
    from onesigma.report import Report as Report
    from onesigma.rules import Assumption as Assumption
    from onesigma.rules import rule as rule
    from onesigma.runtime.reference import Reference as Reference
    from onesigma.storage.model_file import load as load
    from onesigma.storage.model_file import save as save
    from onesigma.values.gaussian import Gaussian as Gaussian

# Imported on first use, because nearly all of these import PyTorch, and a device that only runs
# exported models (``onesigma.runtime``) has none.
_HOMES = {
    "AbstainRule": "decide.threshold",
    "Assumption": "rules",
    "Audit": "calibration.comparison",
    "Converted": "converted",
    "EarlyExit": "forms.exits",
    "Ensemble": "baselines.ensemble",
    "Gaussian": "values.gaussian",
    "McDropout": "baselines.mc_dropout",
    "Monitor": "decide.monitor",
    "Prediction": "prediction",
    "Reference": "runtime.reference",
    "Report": "report",
    "Temperature": "decide.temperature",
    "audit": "calibration.comparison",
    "calibrate": "calibration.choice",
    "convert": "conversion",
    "early_exit": "calibration.exits",
    "ensemble": "baselines.ensemble",
    "export": "exporters.targets",
    "fit": "fitting",
    "fit_temperature": "decide.temperature",
    "load": "storage.model_file",
    "mc_dropout": "baselines.mc_dropout",
    "read_keras": "importers.keras_files",
    "read_onnx": "importers.onnx.read",
    "rule": "rules",
    "save": "storage.model_file",
    "threshold": "decide.threshold",
}

__all__ = sorted([*(name for name in globals() if name[0].isupper()), "__version__", *_HOMES])


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
