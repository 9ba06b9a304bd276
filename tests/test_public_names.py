"""The public surface, pinned: a name comes or goes on purpose only."""

import subprocess
import sys
import types

import pytest

import onesigma

NAMES = [
    "AbstainRule",
    "Assumption",
    "Audit",
    "CaptureError",
    "Converted",
    "DataError",
    "EarlyExit",
    "Ensemble",
    "ExportError",
    "FileError",
    "Gaussian",
    "InputError",
    "McDropout",
    "ModelError",
    "Monitor",
    "NoRandomness",
    "OnesigmaError",
    "PackageError",
    "Prediction",
    "Reference",
    "Report",
    "Temperature",
    "UnsupportedOp",
    "__version__",
    "audit",
    "calibrate",
    "convert",
    "early_exit",
    "ensemble",
    "export",
    "fit",
    "fit_temperature",
    "load",
    "mc_dropout",
    "read_keras",
    "read_onnx",
    "rule",
    "save",
    "threshold",
]


def test_all_is_pinned_and_sorted():
    assert onesigma.__all__ == NAMES


def test_nothing_else_leaks():
    public = {name for name in vars(onesigma) if not name.startswith("_")}
    # The package's own modules are reachable once imported.
    leaked = {
        name
        for name in public - set(NAMES)
        if not isinstance(getattr(onesigma, name), types.ModuleType)
        or not getattr(onesigma, name).__name__.startswith("onesigma.")
    }
    assert not leaked


def test_functions_are_not_hidden_by_modules():
    for name in NAMES:
        if name[0].islower():
            assert isinstance(getattr(onesigma, name), types.FunctionType)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        onesigma.nothing  # noqa: B018


def test_all_names_are_listed_before_they_are_used():
    code = "import onesigma, sys; assert set(onesigma.__all__) <= set(dir(onesigma)); "
    code += "assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_object_is_documented():
    undocumented = [n for n in NAMES if n != "__version__" and not getattr(onesigma, n).__doc__]
    assert not undocumented


def test_all_errors_are_onesigma_errors():
    for name in NAMES:
        value = getattr(onesigma, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, onesigma.OnesigmaError)
