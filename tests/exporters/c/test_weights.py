"""Squares that are not stored."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import exported

from onesigma.exporters.c import generate


def test_squared_weights_are_not_stored(tmp_path):
    model = exported()
    weights = sum(np.prod(t.dims) for t in model.graph.initializer if t.name.endswith("weight"))
    draws = 64 * 3
    assert generate(model, tmp_path).flash < 4 * (weights + draws + 100)
