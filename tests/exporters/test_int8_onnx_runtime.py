"""Eight bits for ONNX Runtime: how the head is stored, and which layers stay float."""

from functools import cache

import numpy as np
import pytest
import torch
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma.exporters.answering import make_answering

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onesigma.exporters import head_weights, int8  # noqa: E402
from onesigma.exporters.onnx.file import make_model  # noqa: E402

X = torch.randn(96, 1, 6, 32, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    """As EEGNet begins: along time, then several filters for each channel, then one."""
    torch.manual_seed(0)
    last = nn.Linear(32, 4)
    nn.init.normal_(last.weight, std=2)  # answers that rounding changes
    return nn.Sequential(
        *(nn.Conv2d(1, 4, (1, 5)), nn.BatchNorm2d(4), nn.Conv2d(4, 24, (6, 1), groups=4)),
        *(nn.ReLU(), nn.Conv2d(24, 24, (1, 3), groups=24), nn.Conv2d(24, 32, 1), nn.ReLU()),
        *(nn.Dropout(0.4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), last),
    ).eval()


@cache
def made(quick: bool = True):
    with short_fit(_more_forms=lambda *_: []):
        ready = onesigma.fit(network(), X, worth=1)
    model = make_model(make_answering(ready, X[:4]))
    return model, int8.quantise(model, [X.numpy()], onnx_runtime=quick)


def integer_layers(model) -> list[list[int]]:
    """The shapes of their weights."""
    return [list(each.dims) for each in model.graph.initializer if each.name.endswith(":wq")]


def test_layers_that_onnx_runtime_is_slower_at_stay_float():
    slow, alone = [24, 1, 6, 1], [4, 1, 1, 5]  # the second is between the inputs and the first
    assert integer_layers(made()[1]) == [[24, 1, 1, 3], [32, 24, 1, 1]]
    assert {tuple(slow), tuple(alone)} < {tuple(each) for each in integer_layers(made(False)[1])}


def test_the_answers_are_close():
    model, eight = made()
    found = int8.compare(model, eight, [X.numpy()])
    assert found.kl < 1e-3
    assert 0.99 < found.spread < 1.01


def test_the_head_is_stored_in_eight_bits():
    """Its parts are the nearest steps to what they were, and small ones are as they were."""
    model, eight = made()
    before = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    after = {each.name: onnx.numpy_helper.to_array(each) for each in eight.graph.initializer}
    assert not {"head.read.weight", "head.write.weight"} & {*after}
    readers = {name: node for node in eight.graph.node for name in node.input}
    casts = [node for node in eight.graph.node if node.op_type == "Cast"]
    steps = [after[readers[node.output[0]].input[1]] for node in casts]
    floats = [after[n.input[0]] * step for n, step in zip(casts, steps, strict=True)]
    written = before["head.write.weight"]
    expected = (before["head.read.weight"], written[:, 4:36], written[:, 36:])
    for found, wanted, step in zip(floats, expected, steps, strict=True):
        np.testing.assert_allclose(step[:, 0], np.abs(wanted).max(1) / 127, rtol=1e-6)
        assert (np.abs(found - wanted) <= 0.501 * step).all()
    parts = [after[name] for name in after if after[name].shape == (13, 4)]
    np.testing.assert_array_equal(parts, [written[:, :4]])


def test_runtimes_make_floats_of_it_when_they_load_it(tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(
        made()[1].SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    loaded = onnx.load(tmp_path / "loaded.onnx")
    assert "Cast" in {node.op_type for node in made()[1].graph.node}
    assert "Cast" not in {node.op_type for node in loaded.graph.node}


def test_a_file_of_the_same_model_is_the_same():
    model, eight = made()
    again = int8.quantise(model, [X.numpy()], onnx_runtime=True)
    assert again.SerializeToString() == eight.SerializeToString()


def test_a_plain_network_has_no_head():
    plain = onnx.ModelProto()
    plain.CopyFrom(made()[0])
    head_weights.shrink(plain, {})
    assert {"head.read.weight"} <= {each.name for each in plain.graph.initializer}


def test_first_layers_stay_float_until_it_is_close(monkeypatch):
    """If nothing is close enough: those with a tenth of the weights, and the error is smaller."""
    model, eight = made()
    monkeypatch.setattr(int8, "_GOOD_KL", 0)
    monkeypatch.setattr(int8, "_MOST_SKIPPED", 0.25)
    closer = int8.quantise(model, [X.numpy()], onnx_runtime=True)
    assert integer_layers(closer) == [[32, 24, 1, 1]]
    before, after = (int8.compare(model, each, [X.numpy()]) for each in (eight, closer))
    assert after.kl < before.kl
