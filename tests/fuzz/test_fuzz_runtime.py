"""Exported files, forged, in ``onesigma.runtime``: an answer or an error of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzz.harness import altered, answered, examples
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import onesigma
from onesigma import FileError, runtime
from onesigma.runtime.model import seal

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = np.ones((2, 4), np.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 3))
    converted = onesigma.convert(model, torch.zeros(2, 4))
    path = tmp_path_factory.mktemp("fuzz") / "model.onnx"
    return onesigma.export(converted, path, class_names=["a", "b", "c"]).path


def answer_or_refuse(path: Path) -> None:
    model = answered(lambda: runtime.load(path, threads=1), FileError, naming=path.name)
    if model is None:
        return
    assert model.class_names is None or all(isinstance(name, str) for name in model.class_names)
    prediction = answered(lambda: model(X))  # refused by a graph that asks for something else
    assert prediction is None or isinstance(prediction.mean, np.ndarray)


@examples(80)
@given(data=st.data())
def test_metadata(exported, data):
    """By someone who knows how the digest is made."""
    proto = onnx.load(exported)
    content = json.loads(proto.metadata_props[0].value)
    proto.metadata_props[0].value = json.dumps(data.draw(altered(content)))
    del proto.metadata_props[1]
    other = exported.with_name("forged.onnx")
    other.write_bytes(seal(proto.SerializeToString()))
    answer_or_refuse(other)
