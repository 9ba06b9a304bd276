"""Quantised files are the float networks that they were made of, apart from rounding."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import helper
from onnx_files import model, node, numbers, ops, read, scalar, write
from torch import nn

import onesigma
from onesigma.errors import FileError, ModelError, UnsupportedOp
from onesigma.importers.onnx.ops import OPS
from onesigma.importers.onnx.read import read_onnx
from onesigma.runtime.comparison import checking_runtime

quantization = pytest.importorskip("onnxruntime.quantization")
INPUT = {"mlp": (6,), "cnn": (2, 8, 8)}


class Cnn(nn.Module):
    """What quantisers treat in ways of their own: ReLU, ReLU6, sums, gates, joins, pools."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.inner, self.hidden, self.out = nn.Conv2d(8, 8, 3), nn.Linear(8, 16), nn.Linear(24, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu6(6 * self.norm(self.stem(x))), 2)
        x = F.relu(F.leaky_relu(self.inner(F.pad(x, (1, 1, 1, 1)))) + x)
        x = x * torch.sigmoid(F.adaptive_avg_pool2d(x, 1))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.out(torch.cat([x, F.relu(self.hidden(x))], 1))


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "cnn":
        return Cnn().eval()
    layers = [nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)]
    return nn.Sequential(*layers).eval()


def inputs(name: str, rows: int = 64) -> torch.Tensor:
    return torch.from_numpy(numbers(rows, *INPUT[name], seed=5))


class Reader(quantization.CalibrationDataReader):
    """The very inputs of the tests, so that none of them is out of range."""

    def __init__(self, name: str) -> None:
        self._batches = iter([{"x": inputs(name).numpy()}])

    def get_next(self):
        return next(self._batches, None)


@pytest.fixture(scope="module")
def floats(tmp_path_factory) -> dict[str, Path]:
    """The networks as float files, by the older exporter."""
    folder = tmp_path_factory.mktemp("float")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in INPUT:
            torch.onnx.export(
                *(network(name), (inputs(name, 2),), folder / f"{name}.onnx"),
                dynamo=False,
                input_names=["x"],
                output_names=["out"],
                dynamic_axes={"x": {0: "batch"}, "out": {0: "batch"}},
                opset_version=17,
            )
    return {name: folder / f"{name}.onnx" for name in INPUT}


STATIC = [
    (form, kind, per_channel)
    for form in ("QDQ", "QOperator")
    for kind in ("QUInt8", "QInt8")
    for per_channel in (False, True)
]
WAYS = [*STATIC, ("dynamic", "QUInt8", False), ("dynamic", "QInt8", True), ("QDQ", "QInt16", False)]


@pytest.fixture
def quiet() -> Iterator[None]:
    """The quantiser advises on how to prepare a file."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def quantise(path: Path, name: str, way: tuple[str, str, bool], target: Path) -> Path:
    form, kind, per_channel = way
    if form == "dynamic":
        weights = {"weight_type": quantization.QuantType[kind], "per_channel": per_channel}
        quantization.quantize_dynamic(path, target, **weights)
        return target
    quantization.quantize_static(
        *(path, target, Reader(name)),
        quant_format=quantization.QuantFormat[form],
        activation_type=quantization.QuantType[kind],
        weight_type=quantization.QuantType.QInt8,
        per_channel=per_channel,
    )
    return target


def run(path: Path, x: torch.Tensor) -> np.ndarray:
    """By ONNX Runtime, without the saturation of its 8-bit products where it can do so."""
    try:
        session = checking_runtime(precise=True)[1](path.read_bytes())
    except Exception:  # no such kernel for int8 activations
        session = checking_runtime()[1](path.read_bytes())
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way)))
@pytest.mark.parametrize("name", INPUT)
@torch.no_grad()
def test_quantised_files(name, way, floats, tmp_path, quiet):
    path = quantise(floats[name], name, way, tmp_path / "q.onnx")
    module, x = read_onnx(path, dropout={}), inputs(name)
    found, original = module(x), network(name)(x)
    largest = original.abs().max()
    # Weights have 127 levels to each side: half a step in each, many of them to a sum.
    assert (found - original).abs().max() < 0.01 * largest
    assert (found - torch.from_numpy(run(path, x))).abs().max() < 0.05 * largest
    assert "q.onnx was quantised: read as float" in module.notes[0]
    # The activations that the quantiser took out are there again, and no others.
    kinds = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh")
    wanted = [op for op in ops(read_onnx(floats[name], dropout={})) if op in kinds]
    assert [op for op in ops(module) if op in kinds] == wanted
    assert not {*ops(module)} & {"Rounding", "DynamicRounding", "DequantizeLinear"}


@pytest.mark.parametrize("way", [WAYS[0], WAYS[4], WAYS[8]], ids=lambda way: way[0])
@torch.no_grad()
def test_the_uncertainty_is_that_of_the_float_file(way, floats, tmp_path, quiet):
    rates = {"every Relu": 0.3}
    path = quantise(floats["cnn"], "cnn", way, tmp_path / "q.onnx")
    x = inputs("cnn", 8)
    found, wanted = (
        onesigma.convert(read_onnx(each, dropout=rates), x) for each in (path, floats["cnn"])
    )
    assert len(found.report.sites) == len(wanted.report.sites) == 2
    torch.testing.assert_close(found(x).std, wanted(x).std, rtol=0.05, atol=0)
    assert any("int8 can be had again at export" in note for note in found.report.notes)


def test_a_reading_that_is_wrong_is_found_out(floats, tmp_path, quiet, monkeypatch):
    path = quantise(floats["mlp"], "mlp", WAYS[4], tmp_path / "q.onnx")
    wrong = replace(OPS["Rounding"], function=lambda x, *scale, axis: 1.2 * x)
    monkeypatch.setitem(OPS, "Rounding", wrong)
    with pytest.raises(FileError, match=r"q\.onnx is read wrongly: at some node"):
        read_onnx(path, dropout={})


# Ops that quantisers write now and then: what is between QuantizeLinear and DequantizeLinear.
S, Z, T, Y = "s", "z", "t", "y"
HAND = {
    "AveragePool": node("QLinearAveragePool", ["q", S, Z, T, Y], ["r"], kernel_shape=[2]),
    "GlobalAveragePool": node("QLinearGlobalAveragePool", ["q", S, Z, T, Y], ["r"]),
    "Softmax": node("QLinearSoftmax", ["q", S, Z, "small", "none"], ["r"], axis=-1, opset=17),
    "Concat": node("QLinearConcat", [T, Y, "q", S, Z, "q", S, Z], ["r"], axis=1),
    "Mul": node("QLinearMul", ["q", S, Z, "q", S, Z, T, Y], ["r"]),
    "MatMul": node("QLinearMatMul", ["q", S, Z, "w", "ws", "wz", T, Y], ["r"]),
}


def by_hand(between: list[onnx.NodeProto], after: list[str], **options) -> onnx.ModelProto:
    nodes = [node("QuantizeLinear", ["x", S, Z], ["q"]), *between]
    nodes.append(node("DequantizeLinear", ["r", *after], ["out"]))
    for each in nodes:
        if each.op_type.startswith("QLinear") and each.op_type != "QLinearMatMul":
            each.domain = "com.microsoft"
    constants = {
        S: scalar(0.04), Z: np.array(120, np.uint8), T: scalar(0.05), Y: np.array(99, np.uint8),
        "small": scalar(1 / 256), "none": np.array(0, np.uint8), "fill": np.array(7, np.uint8),
        "ws": np.abs(numbers(5)) / 50,
        "w": np.arange(-20, 25).reshape(9, 5).astype(np.int8), "wz": np.zeros(5, np.int8),
        "pads": np.array([0, 0, 1, 0, 0, 2]),
    }  # fmt: skip
    made = model(nodes, {"x": ["batch", 4, 9]}, constants, **options)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


@pytest.mark.parametrize("op", HAND)
@torch.no_grad()
def test_ops_by_hand(op, tmp_path):
    after = ["small", "none"] if op == "Softmax" else [T, Y]
    module = read(tmp_path, by_hand([HAND[op]], after))
    x = torch.from_numpy(numbers(5, 4, 9))
    difference = np.abs(module(x).numpy() - run(tmp_path / "m.onnx", x)).max()
    assert difference < (0.2 if op in ("Mul", "MatMul") else 0.06)  # of levels 0.04 and 0.05
    assert op in ops(module) or op == "MatMul"


@torch.no_grad()
def test_integers_are_moved_about(tmp_path):
    """A pool, a padding with some integer, a reshape: all of integers in the file."""
    between = [
        node("MaxPool", ["q"], ["p"], kernel_shape=[2]),
        node("Pad", ["p", "pads", "fill"], ["padded"]),
        node("Transpose", ["padded"], ["turned"], perm=[0, 2, 1]),
        node("Reshape", ["turned", "shape"], ["r"]),
    ]
    made = by_hand(between, [S, Z])
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, 44]), "shape"))
    module, x = read(tmp_path, made), torch.from_numpy(numbers(5, 4, 9))
    assert np.abs(module(x).numpy() - run(tmp_path / "m.onnx", x)).max() <= 0.0201


@pytest.mark.parametrize("kind", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
@torch.no_grad()
def test_fused_products(kind, tmp_path):
    weights = {
        "w": np.arange(-20, 25).reshape(9, 5).astype(np.int8), "ws": np.abs(numbers(5)) / 50,
        "wz": np.zeros(5, np.int8), "b": numbers(5),
    }  # fmt: skip
    product = ["x", "w", "ws", "wz", "b"]
    before = []
    if kind == "MatMulIntegerToFloat":
        before = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
        product = ["q", "w", "s", "ws", "z", "wz", "b"]
    nodes = [*before, node(kind, product, ["out"], name="fc", domain="com.microsoft")]
    made = model(nodes, {"x": ["batch", 9]}, weights)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("out", 1, ["batch", 5]))
    module, x = read(tmp_path, made), torch.from_numpy(numbers(5, 9))
    assert ops(module) == ["Linear"]
    wanted = x.numpy() @ (weights["w"] * weights["ws"]) + weights["b"]
    np.testing.assert_allclose(module(x).numpy(), wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_an_input_of_integers(tmp_path):
    """Bytes of a sensor, scaled in the file."""
    weights = {"s": scalar(0.01), "z": np.array(128, np.uint8), "w": numbers(6, 3)}
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["r"]), node("Gemm", ["r", "w"], ["out"])]
    module = read(tmp_path, model(nodes, {"x": ["batch", 6]}, weights, dtype=2))
    x = np.arange(30, dtype=np.uint8).reshape(5, 6) * 8
    wanted = (x.astype(np.float32) - 128) * np.float32(0.01) @ weights["w"]
    np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), wanted, rtol=1e-5, atol=1e-5)


REFUSED = {
    "another scale": ([node("Identity", ["q"], ["r"])], [T, Y], "at another scale"),
    "integers": ([node("Max", ["q", "fill"], ["r"])], [S, Z], "computes with the integers"),
    "channels last": (
        [node("QLinearAveragePool", ["q", S, Z, T, Y], ["r"], kernel_shape=[2], channels_last=1)],
        [T, Y],
        "channels last",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case, tmp_path):
    between, after, message = REFUSED[case]
    with pytest.raises(UnsupportedOp, match=message):
        read(tmp_path, by_hand(between, after))


def test_an_answer_in_integers_is_refused(tmp_path):
    made = by_hand([node("Identity", ["q"], ["r"])], [S, Z])
    del made.graph.node[-1]
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("r", 2, ["batch", 4, 9]))
    with pytest.raises(ModelError, match="answers with integers: end it with DequantizeLinear"):
        read_onnx(write(tmp_path / "m.onnx", made), dropout={})


def test_a_scale_that_is_computed_is_refused(tmp_path):
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("QuantizeLinear", ["x", "m", "z"], ["q"], name="round"),
        node("DequantizeLinear", ["q", "m", "z"], ["out"]),
    ]
    made = model(nodes, {"x": ["batch", 6]}, {"z": np.array(128, np.uint8)})
    with pytest.raises(UnsupportedOp, match=r"'round'.*its scale is computed as it runs"):
        read(tmp_path, made)
