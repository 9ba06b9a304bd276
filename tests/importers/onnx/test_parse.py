"""Bad ONNX files: each a clear error that names the node or the file, and nothing is written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_files import assert_agreement, classifier, model, node, numbers, read, write

import onesigma
from onesigma.cli import main as cli
from onesigma.errors import FileError, ModelError, PackageError, UnsupportedOp
from onesigma.importers.onnx import parse

Change = Callable[[onnx.ModelProto], Any]
DROPOUT = {"every Relu": 0.5}


def opset(version: int) -> Change:
    return set_field("opset_import.0.version", version)


def relu_as(op: str, domain: str = "") -> Change:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.node[1].op_type = op
        proto.graph.node[1].domain = domain

    return change


def shape(*dims: Any) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, dims))

    return change


def weight(values: np.ndarray) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values, "w1"))

    return change


def with_branch(proto: onnx.ModelProto) -> None:
    relu_as("If")(proto)
    graph = helper.make_graph([], "then", [], [])
    proto.graph.node[1].attribute.append(helper.make_attribute("then_branch", graph))


def with_function(proto: onnx.ModelProto) -> None:
    inner = [node("Relu", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("mine", "Mine", ["a"], ["b"], inner, opsets))


def without_scale(proto: onnx.ModelProto) -> None:
    """An op of ONNX Runtime, of which onnx's own check knows nothing."""
    relu_as("QGemm", "com.microsoft")(proto)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def unsorted(proto: onnx.ModelProto) -> None:
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def duplicate(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(node("Tanh", ["h"], ["a"], name="again"))


def second_output(proto: onnx.ModelProto) -> None:
    proto.graph.output.append(helper.make_tensor_value_info("h", 1, [None, 8]))


def set_field(path: str, value: Any) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        *outer, last = path.split(".")
        target = proto
        for part in outer:
            target = target[int(part)] if part.isdigit() else getattr(target, part)
        if last.isdigit():
            target[int(last)] = value
        else:
            setattr(target, last, value)

    return change


TWO = onnx.numpy_helper.from_array(np.ones(2))
BAD = {
    "too old": (opset(8), FileError, r"m\.onnx is written in opset 8; opsets 9 to \d+ can be read"),
    "too new": (opset(99), FileError, "opset 99"),
    "no opset": (lambda p: p.ClearField("opset_import"), FileError, "which opset"),
    "newer format": (set_field("ir_version", 99), FileError, "IR version 99"),
    "no nodes": (lambda p: p.graph.ClearField("node"), FileError, "holds no ONNX graph"),
    "unknown op": (relu_as("Snap"), UnsupportedOp, r"1 op\(s\) .*\n  Snap, 1 node.*'relu1'"),
    "quantised": (relu_as("QLinearConv"), FileError, "no valid ONNX"),
    "quantised, no scale": (without_scale, ModelError, r"\(DequantizeLinear\) cannot be computed"),
    "our own op": (relu_as("Linear"), FileError, "no valid ONNX"),
    "foreign domain": (
        relu_as("Relu", "com.acme"),
        UnsupportedOp,
        r"com\.acme\.Relu, 1 node.*'relu1'",
    ),
    "branches": (with_branch, UnsupportedOp, "relu1.*branches or loops"),
    "functions": (with_function, UnsupportedOp, "functions of its own"),
    "dynamic size": (shape("batch", "time"), ModelError, r"input 'x' has shape \(batch, time\)"),
    "no batch": (shape(6), ModelError, r"'x' has shape \(6\)"),
    "no sample": (shape("batch", 0), ModelError, "nothing in it"),
    "empty batch": (shape(0, 6), ModelError, "nothing in it"),
    "another size": (shape("batch", 5), ModelError, r"node 'fc1' \(Gemm\) cannot be computed"),
    "huge input": (shape("batch", 10**10), ModelError, "more than any network takes"),
    "no shape": (
        lambda p: p.graph.input[0].type.tensor_type.ClearField("shape"),
        ModelError,
        "no tensor of a known shape",
    ),
    "no input": (lambda p: p.graph.ClearField("input"), ModelError, "takes no input"),
    "cycle": (set_field("graph.node.0.input.0", "a"), FileError, "topologically sorted.*'a'"),
    "unsorted": (unsorted, FileError, "topologically sorted"),
    "duplicate name": (duplicate, FileError, "'a' has been used as output names multiple"),
    "duplicate weight": (
        lambda p: p.graph.initializer.append(p.graph.initializer[0]),
        FileError,
        "w1 initializer name is not unique",
    ),
    "two nodes of a name": (
        set_field("graph.node.1.name", "fc1"),
        FileError,
        "two nodes are called 'fc1'",
    ),
    "undefined name": (set_field("graph.node.1.input.0", "ghost"), FileError, "(?s)'ghost'.*relu1"),
    "no such output": (set_field("graph.output.0.name", "ghost"), FileError, "output 'ghost'"),
    "several outputs": (second_output, ModelError, r"2 outputs \(out, h\).*extract_model"),
    "NaN weights": (weight(np.full((8, 6), np.nan)), ModelError, "weight 'w1' holds NaN"),
    "half precision": (
        weight(numbers(8, 6).astype(np.float16)),
        ModelError,
        "weight 'w1' is FLOAT16",
    ),
    "huge weight": (
        set_field("graph.initializer.0.dims.0", 10**12),
        FileError,
        "weight 'w1': 192 bytes, where its shape needs",
    ),
    "negative size": (
        set_field("graph.initializer.0.dims.0", -8),
        FileError,
        "weight 'w1': a negative size",
    ),
    "no output at all": (
        lambda p: p.graph.node.append(helper.make_node("Constant", [], [], value=TWO)),
        FileError,
        "no valid ONNX",
    ),
    "no such attribute": (
        lambda p: p.graph.node[1].attribute.append(helper.make_attribute("slope", 0.1)),
        FileError,
        "relu1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file(name, tmp_path, capsys):
    """In Python an error; on the command line exit code 1, one message, not a byte changed."""
    change, error, message = BAD[name]
    proto = classifier()
    change(proto)
    with pytest.raises(error, match=message):
        read(tmp_path, proto, dropout=DROPOUT)
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    out.write_bytes(b"precious")
    command = ["convert", str(path), "-o", str(out), "--dropout", "every Relu=0.5"]
    assert cli.main(command) == 1
    assert out.read_bytes() == b"precious"
    assert sorted(tmp_path.iterdir()) == [path, out]
    printed = capsys.readouterr().err
    assert printed.startswith("onesigma: ")
    assert "Traceback" not in printed


def test_truncated_anywhere(tmp_path):
    """An error of ours, and never another network."""
    content = classifier().SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(0, len(content) - 1, 23):
        path.write_bytes(content[:length])
        with pytest.raises(onesigma.OnesigmaError, match=r"m\.onnx"):
            onesigma.read_onnx(path, dropout=DROPOUT)


def test_names_that_are_no_text(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(classifier().SerializeToString().replace(b"relu1", b"rel\xff1"))
    with pytest.raises(FileError, match=r"rel\\xff1.* is no text"):
        onesigma.read_onnx(path)


@pytest.mark.parametrize("content", [b"not ONNX at all", b"\x00" * 64, b"PK\x03\x04" * 9])
def test_another_format(content, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"m\.onnx"):
        onesigma.read_onnx(path)


def test_no_file(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        onesigma.read_onnx(tmp_path / "m.onnx")
    with pytest.raises(FileError, match="no such file"):
        onesigma.read_onnx(tmp_path)


def test_larger_than_a_file_can_be(tmp_path, monkeypatch):
    monkeypatch.setattr(parse, "MAX_BYTES", 100)
    with pytest.raises(FileError, match="larger than 2 GB"):
        read(tmp_path, classifier())


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(parse, "find_spec", lambda name: None)
    with pytest.raises(PackageError, match=r"\.\[onnx\]"):
        read(tmp_path, classifier())


def external(folder: Path, **entries) -> Path:
    """The classifier with its first weight in a file of its own; ``entries`` change where."""
    proto = classifier()
    first = proto.graph.initializer[0]
    (folder / "weights.bin").write_bytes(b"\0" * 16 + first.raw_data + b"\0" * 16)
    first.ClearField("raw_data")
    first.data_location = TensorProto.EXTERNAL
    where = {"location": "weights.bin", "offset": "16", "length": "192"} | entries
    for key, value in where.items():
        if value is not None:
            first.external_data.add(key=key, value=str(value))
    return write(folder / "m.onnx", proto)


@pytest.mark.parametrize("entries", [{}, {"length": None}, {"location": "./weights.bin"}])
def test_external_data(entries, tmp_path):
    path = external(tmp_path, **entries)
    whole = write(tmp_path / "whole.onnx", classifier())
    assert_agreement(onesigma.read_onnx(path, dropout=DROPOUT), whole, numbers(2, 6))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "gone.bin"}, "data file 'gone.bin' is missing"),
        ({"location": ""}, "outside the model's folder"),
        ({"location": "/etc/passwd"}, "'/etc/passwd', outside the model's folder"),
        ({"location": "../secret.bin"}, "outside the model's folder"),
        ({"location": "inner/../../secret.bin"}, "outside the model's folder"),
        ({"location": "..\\secret.bin"}, "outside the model's folder"),
        ({"location": "C:\\secret.bin"}, "outside the model's folder"),
        ({"location": "link.bin"}, "link that leads out of the model's folder"),
        ({"location": "folder/secret.bin"}, "link that leads out of the model's folder"),
        ({"location": "inner"}, "is missing"),
        ({"offset": 100}, "bytes 100 to 292 of weights.bin are declared, which has only 224"),
        ({"offset": 10**15}, "only 224"),
        ({"offset": -16}, "are declared"),
        ({"length": 10**15}, "takes 192 bytes, but 1000000000000000 are declared"),
        ({"length": 64}, "takes 192 bytes, but 64 are declared"),
        ({"offset": "x"}, "no number"),
    ],
)
def test_external_data_that_is_not_to_be_trusted(entries, message, tmp_path):
    folder = tmp_path / "models"
    (folder / "inner").mkdir(parents=True)
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"\1" * 500)
    (folder / "link.bin").symlink_to(secret)
    (folder / "folder").symlink_to(tmp_path)
    with pytest.raises(FileError, match=rf"m\.onnx, weight 'w1': .*{re.escape(message)}"):
        onesigma.read_onnx(external(folder, **entries), dropout=DROPOUT)


def test_a_pipe_is_no_data_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="missing"):
        onesigma.read_onnx(external(tmp_path, location="pipe"), dropout=DROPOUT)


def test_external_data_that_multiplies(tmp_path, monkeypatch):
    """A few bytes, shared by many weights, must not become many large tensors."""
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    for index in range(20):
        copy = proto.graph.initializer.add()
        copy.CopyFrom(proto.graph.initializer[0])
        copy.name = f"copy{index}"
    write(path, proto)
    monkeypatch.setattr(parse, "MAX_BYTES", path.stat().st_size)
    with pytest.raises(FileError, match="its weights take more than 2 GB"):
        onesigma.read_onnx(path, dropout=DROPOUT)


def test_several_inputs_must_agree_about_the_batch(tmp_path):
    nodes = [node("Add", ["x", "y"], ["out"])]
    module = read(tmp_path, model(nodes, {"x": ["n", 5], "y": ["n", 5]}))
    assert module.input_names == ["x", "y"]
    with pytest.raises(ModelError, match="disagree about the batch"):
        read(tmp_path, model(nodes, {"x": [2, 5], "y": [4, 5]}))


def test_unnamed_nodes_are_called_by_their_output(tmp_path):
    nodes = [node("Relu", ["x"], ["a"]), node("Tanh", ["a"], ["b"]), node("Tanh", ["b"], ["out"])]
    module = read(tmp_path, model(nodes, {"x": ["n", 5]}))
    assert [step.node.name for step in module.steps()] == ["a", "b", "out"]
