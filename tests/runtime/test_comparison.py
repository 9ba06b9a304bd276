"""How far off two programs may be, and who runs the graph that is checked."""

import math

import numpy as np
import pytest

from onesigma.runtime import comparison
from onesigma.runtime.comparison import TOLERANCE, checking_runtime, mismatch

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([1.0, 1.0], [1.0, math.nan]),
        ([1.0, math.nan], [1.0, 1.0]),
        ([1.0, 2.0], [1.0, 2.001]),
        ([1.0], [1.0, 2.0]),
        ([math.inf, 1.0], [1e30, 1.0]),
        ([True, False], [True, True]),
    ],
)
def test_a_mismatch_is_seen(found, expected):
    assert mismatch("mean", np.array(found), np.array(expected)) > TOLERANCE


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [
        ("mean", [1.0, 1e-7], [1.0, 0.0]),  # 1e-7 of the largest
        ("mean", [0.0], [0.0]),
        ("epistemic", [3e-7], [1e-7]),  # a difference of entropies near 1
        ("var", [math.inf], [math.inf]),
        ("act", [True], [True]),
    ],
)
def test_rounding_is_no_mismatch(name, found, expected):
    assert mismatch(name, np.array(found), np.array(expected)) < TOLERANCE


def test_onnxruntime_checks_or_else_the_reference(monkeypatch):
    assert checking_runtime()[0].startswith("onnxruntime ")
    monkeypatch.setattr(comparison, "find_spec", lambda name: None)
    assert checking_runtime()[0].startswith("onnx.reference ")
