"""The original network's own output in an exported file: its value, and what it costs."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma import Converted, InputError, runtime
from onesigma.converted import ENERGY, MOMENTS

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

X = torch.randn(5, 3, 12, generator=torch.Generator().manual_seed(0))
ENOUGH = torch.randn(40, 3, 12, generator=torch.Generator().manual_seed(1))  # to fit on


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Dropout(0.3), nn.Conv1d(8, 8, 3), nn.ReLU()),
        *(nn.Dropout(0.3), nn.Flatten(), nn.Linear(64, 4), nn.Softmax(1)),
    ).eval()


@cache
def shared(form: str = MOMENTS) -> tuple[nn.Module, Converted]:
    model = network()
    if form == MOMENTS:
        made = onesigma.convert(model, X)
    else:
        with short_fit():
            made = onesigma.fit(model, ENOUGH, keep_answer=True)
    assert made.settings.form == form
    return model, made


def ops(path) -> Counter:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(("form", "convs"), [(MOMENTS, 2), (ENERGY, 0)])
def test_value_and_cost(form, convs, tmp_path):
    """The energy form runs the plain network: it costs no convolution more. Moments: a second."""
    model, converted = shared(form)
    bare = onesigma.export(converted, tmp_path / "bare.onnx").path
    named = ["signal"]
    path = onesigma.export(
        converted, tmp_path / "m.onnx", input_names=named, plain=("answer", model)
    ).path
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(["answer"], {"signal": X.numpy()})
    np.testing.assert_allclose(found, model(X).detach().numpy(), rtol=1e-5, atol=1e-6)
    more = ops(path) - ops(bare)
    assert more["Conv"] <= convs
    assert path.stat().st_size < 1.3 * bare.stat().st_size  # weights are stored once
    prediction = runtime.load(path)(X.numpy())
    np.testing.assert_allclose(prediction.var, converted(X).var.detach().numpy(), rtol=1e-4)


def test_a_wrong_plain_model_is_found_out(tmp_path):
    model, converted = shared()
    other = network()
    with torch.no_grad():
        other[0].weight.mul_(1.1)

    class Liar(nn.Module):
        """Exports as one network, answers as another."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return model(x) if torch.compiler.is_exporting() else other(x)

    with pytest.raises(onesigma.CaptureError, match="does not answer as the model does"):
        onesigma.export(converted, tmp_path / "m.onnx", plain=("answer", Liar()))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x", "onesigma_var"])
def test_names_must_differ(name, tmp_path):
    model, converted = shared()
    taken = ["x"] if name == "x" else ["var"]
    with pytest.raises(InputError, match="must differ"):
        onesigma.export(converted, tmp_path / "m.onnx", input_names=taken, plain=(name, model))


def test_a_name_like_our_own(tmp_path):
    """TensorFlow's names hold a colon, as those that the writer makes up do."""
    model, converted = shared()
    path = onesigma.export(
        converted, tmp_path / "m.onnx", input_names=["relu:1"], plain=("conv1d:0", model)
    ).path
    assert [each.name for each in onnx.load(path).graph.input] == ["relu:1"]
    assert onnx.load(path).graph.output[-1].name == "conv1d:0"


def test_a_kept_answer_comes_with_its_softmax(tmp_path):
    _, converted = shared()
    kept = converted.with_changes(settings=replace(converted.settings, keep_answer=True))
    path = onesigma.export(kept, tmp_path / "m.onnx").path
    found = runtime.load(path)(X.numpy())
    assert found.plain_probs is not None
    np.testing.assert_allclose(found.plain_probs, kept(X).plain_probs.detach(), rtol=1e-4)
