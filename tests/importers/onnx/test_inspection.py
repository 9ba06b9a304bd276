"""``onesigma inspect``: the table, and what it says of files that cannot be converted."""

import logging

import pytest
from onnx_files import classifier, ints, model, node, numbers, write

from onesigma.errors import OnesigmaError
from onesigma.importers.onnx.inspection import inspect_onnx


def test_the_table(tmp_path):
    nodes = [
        node("Pad", ["x", "pads"], ["p"], name="pad"),
        node("Conv", ["p", "w1"], ["c"], name="conv"),
        node("Sigmoid", ["c"], ["s"], name="sigmoid"),
        node("Mul", ["c", "s"], ["a"], name="swish"),
        node("Shape", ["a"], ["size"], name="size"),
        node("Slice", ["size", "zero", "one"], ["n"], name="first"),
        node("Concat", ["n", "rest"], ["target"], name="target", axis=0),
        node("Reshape", ["a", "target"], ["f"], name="flat"),
        node("Sin", ["f"], ["t"], name="sine"),
        node("Gemm", ["t", "w2"], ["g"], name="head", transB=1),
        node("Softmax", ["g"], ["out"], name="softmax"),
    ]
    weights = {
        "pads": ints(0, 0, 1, 0, 0, 0), "w1": numbers(4, 2, 3), "zero": ints(0), "one": ints(1),
        "rest": ints(-1), "w2": numbers(3, 4 * 7),
    }  # fmt: skip
    path = write(tmp_path / "m.onnx", model(nodes, {"x": ["batch", 2, 8]}, weights))
    inspection = inspect_onnx(path, {"pad": 0.1}, {"conv": 0.2})
    assert inspection.inputs == ("x (batch, 2, 8) float32",)
    assert (inspection.file, inspection.opset, inspection.output) == ("m.onnx", 17, "out")
    rows = {row.name: (row.op, row.output, row.rule, row.dropout) for row in inspection.rows}
    assert rows == {
        "pad": ("Pad", "(batch, 2, 9)", "passthrough", "p = 0.1"),
        "conv": ("Conv", "(batch, 4, 7)", "linear", "p = 0.2 of channels"),
        "swish": ("Swish", "(batch, 4, 7)", "elementwise", "candidate"),
        "size": ("Shape", "", "sizes", ""),
        "first": ("Slice", "", "sizes", ""),
        "target": ("Concat", "", "sizes", ""),
        "flat": ("Reshape", "(batch, 28)", "passthrough", ""),
        "sine": ("Sin", "(batch, 28)", "elementwise", ""),
        "head": ("Linear", "(batch, 3)", "linear", ""),
        "softmax": ("Softmax", "(batch, 3)", "head", ""),
    }
    text = str(inspection)
    assert "m.onnx: opset 17, input x (batch, 2, 8) float32, output out" in text
    assert "p = 0.2 of channels" in text


def test_unknown_ops_are_shown_not_raised(tmp_path):
    proto = classifier()
    proto.graph.node[1].op_type = "Hardmax"
    inspection = inspect_onnx(write(tmp_path / "m.onnx", proto))
    assert [(row.op, row.rule) for row in inspection.rows] == [
        ("Gemm", ""), ("Hardmax", "not read"), ("Gemm", ""),
    ]  # fmt: skip


def test_a_file_for_one_batch_only_is_refused_without_noise(tmp_path, caplog):
    """torch.export logs a traceback of its own, which is nothing to show to a user."""
    proto = model([node("Add", ["x", "t"], ["out"])], {"x": ["batch", 6]}, {"t": numbers(3, 6)})
    with pytest.raises(OnesigmaError, match="cannot be computed on shapes"):
        inspect_onnx(write(tmp_path / "m.onnx", proto))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
