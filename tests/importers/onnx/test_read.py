"""Whole files: what exporters write is the network they were given, or an error says why not."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from models import NAMES, converted, inputs_for, trained
from onnx_files import assert_agreement, classifier, ints, model, node, numbers, read, scalar

import onesigma
from onesigma.cli import main as cli
from onesigma.errors import FileError, ModelError, UnsupportedOp
from onesigma.importers.onnx.ops import OPS
from onesigma.importers.onnx.read import read_onnx


@contextmanager
def quiet() -> Iterator[None]:
    """Both exporters talk, and the older one is deprecated."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def exported(name: str, folder: Path, *, opset: int = 17, batch: int | None = None) -> Path:
    """By the older exporter, with an open batch unless one is given."""
    path = folder / f"{name}.onnx"
    inputs = inputs_for(name, batch or 2)
    names = [f"in{i}" for i in range(len(inputs))]
    axes = {} if batch else {each: {0: "batch"} for each in [*names, "logits"]}
    with quiet():
        torch.onnx.export(
            *(trained(name), inputs, path),
            dynamo=False,
            opset_version=opset,
            input_names=names,
            output_names=["logits"],
            dynamic_axes=axes,
        )
    return path


@torch.no_grad()
def assert_same_network(name: str, path: Path) -> None:
    module = read_onnx(path, dropout={})
    inputs = inputs_for(name, 5)
    torch.testing.assert_close(module(*inputs), trained(name)(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_older_exporter(name, tmp_path):
    assert_same_network(name, exported(name, tmp_path))


@pytest.mark.parametrize(
    ("name", "opset", "batch"),
    [("tcn", 9, 1), ("mixer", 11, 1), ("separable", 9, 1), ("decoder", 13, 4), ("unet", 11, 1)],
)
def test_older_opsets_and_fixed_batches(name, opset, batch, tmp_path):
    assert_same_network(name, exported(name, tmp_path, opset=opset, batch=batch))


@pytest.mark.parametrize("name", [name for name in NAMES if name.values[0] == "functional"])
def test_the_newer_exporter(name, tmp_path):
    """Its weights lie in a file of their own. One network, because it takes seconds."""
    pytest.importorskip("onnxscript")
    path = tmp_path / f"{name}.onnx"
    with quiet():
        shapes = ({0: "batch"},)
        torch.onnx.export(
            *(trained(name), inputs_for(name, 2), path),
            dynamo=True,
            external_data=True,
            dynamic_shapes=shapes,
            verbose=False,
        )
    assert_same_network(name, path)


# Where the networks of the zoo drop, in the words of their files.
SITES = {
    "mlp": {"every Relu": 0.5, "every Tanh": 0.5},
    "in_place": {"/stem/Conv": 0.3, "/Add": 0.3},
}


@pytest.mark.parametrize("name", [name for name in NAMES if name.values[0] in SITES])
def test_round_trip(name, tmp_path):
    """Out without its dropout, in with the dropout named: the same uncertainty as from PyTorch."""
    module = read_onnx(exported(name, tmp_path), dropout=SITES[name])
    inputs = inputs_for(name, 4)
    with torch.no_grad():
        found = onesigma.convert(module, inputs)(*inputs)
        wanted = converted(name)(*inputs)
    for field in ("mean", "var", "probs", "entropy", "aleatoric", "epistemic"):
        torch.testing.assert_close(
            getattr(found, field), getattr(wanted, field), rtol=1e-5, atol=1e-5
        )


def test_dropout_that_was_exported_is_found(tmp_path):
    """PyTorch can be told to leave it in."""
    path = tmp_path / "vgg.onnx"
    training = torch.onnx.TrainingMode.TRAINING
    with quiet():
        torch.onnx.export(
            *(trained("vgg"), inputs_for("vgg", 1), path), dynamo=False, training=training
        )
    rates = [step.dropout.rate for step in read_onnx(path).steps() if step.dropout]
    assert rates == [0.25, 0.25, 0.5]


def tensorflow() -> onnx.ModelProto:
    """As tf2onnx writes it. Channels last: transposed in and out; a computed Reshape."""
    nodes = [
        node("Transpose", ["image"], ["t"], name="conv/BiasAdd__6", perm=[0, 3, 1, 2]),
        node("Conv", ["t", "k1", "b1"], ["c:0"], name="conv/BiasAdd", strides=[2, 2],
             pads=[0, 0, 1, 1], kernel_shape=[3, 3], dilations=[1, 1], group=1),
        node("Relu", ["c:0"], ["conv/Relu:0"], name="conv/Relu"),
        node("Mul", ["conv/Relu:0", "scale"], ["m"], name="batchnorm/mul_1"),
        node("Add", ["m", "shift"], ["n"], name="batchnorm/add_1"),
        node("MaxPool", ["n"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "k2"], ["d"], name="depthwise", group=4, pads=[1, 1, 1, 1]),
        node("Clip", ["d", "zero", "six"], ["relu6:0"], name="relu6"),
        node("Transpose", ["relu6:0"], ["u"], name="Transpose__9", perm=[0, 2, 3, 1]),
        node("Shape", ["relu6:0"], ["s"], name="Shape__10"),
        node("Gather", ["s", "order"], ["s2"], name="Gather__11"),
        node("Cast", ["s2"], ["s3"], to=6),
        node("Slice", ["s3", "start", "stop", "start"], ["s4"], name="strided_slice"),
        node("Concat", ["s4", "size"], ["s5"], axis=0),
        node("Cast", ["s5"], ["s6"], to=7),
        node("Reshape", ["u", "s6"], ["flat"], name="flatten/Reshape"),
        node("MatMul", ["flat", "w"], ["mm"], name="dense/MatMul"),
        node("Add", ["mm", "b"], ["logits"], name="dense/BiasAdd"),
        node("Softmax", ["logits"], ["Identity:0"], name="dense/Softmax"),
    ]  # fmt: skip
    weights = {
        "k1": numbers(4, 2, 3, 3), "b1": numbers(4), "scale": np.abs(numbers(1, 4, 1, 1)),
        "shift": numbers(1, 4, 1, 1, seed=1), "k2": numbers(4, 1, 3, 3, seed=2),
        "zero": scalar(0), "six": scalar(6), "order": ints(0, 2, 3, 1), "start": ints(0),
        "stop": ints(1), "size": np.array([16], np.int32), "w": numbers(16, 3, seed=3),
        "b": numbers(3, seed=4),
    }  # fmt: skip
    return model(nodes, {"image": ["unk__1", 8, 8, 2]}, weights, outputs=["Identity:0"], opset=15)


def test_a_file_of_tf2onnx(tmp_path):
    module = read(tmp_path, tensorflow(), dropout={"relu6:0": 0.3})
    x = numbers(5, 8, 8, 2)
    assert_agreement(module, tmp_path / "m.onnx", x)
    converted = onesigma.convert(module, torch.from_numpy(x))
    assert converted.settings.input_shapes == ((None, 8, 8, 2),)
    assert converted.settings.class_dim == -1
    assert "dense/Softmax" in converted.report.notes[0]
    # One layer after the dropout, so its variance is exact: Monte Carlo within its own error.
    reference = onesigma.mc_dropout(converted, passes=2000)(torch.from_numpy(x))
    torch.testing.assert_close(converted(torch.from_numpy(x)).std, reference.std, rtol=0.1, atol=0)


RELU = node("Relu", ["x"], ["r"], name="relu")


@pytest.mark.parametrize(
    ("batch", "nodes", "message"),
    [
        (
            1,
            [node("Squeeze", ["r", "axis"], ["row"]), node("Unsqueeze", ["row", "axis"], ["out"])],
            r"takes one row at a time: node 'row' \(Squeeze\)",
        ),
        (
            4,
            [node("ReduceMean", ["r"], ["m"], axes=[0]), node("Sub", ["r", "m"], ["out"])],
            "rows of its batch influence each other",
        ),
    ],
)
def test_rows_must_be_independent(batch, nodes, message, tmp_path):
    proto = model([RELU, *nodes], {"x": [batch, 5]}, {"axis": ints(0)})
    with pytest.raises(ModelError, match=message):
        read(tmp_path, proto)


def test_a_network_that_takes_positive_numbers_only(tmp_path):
    """A logarithm first, as of spectrograms: it is compared, and converted, on such numbers."""
    nodes = [
        node("Log", ["x"], ["l"]),
        node("Gemm", ["l", "w"], ["h"]),
        node("Relu", ["h"], ["r"], name="relu"),
        node("Gemm", ["r", "v"], ["out"]),
    ]
    weights = {"w": numbers(5, 4), "v": numbers(4, 3)}
    module = read(tmp_path, model(nodes, {"x": ["n", 5]}, weights))
    assert (module.examples(3)[0] > 0).all()
    options = ["-o", str(tmp_path / "out.onnx"), "--dropout", "relu=0.5"]
    assert cli.main(["convert", str(tmp_path / "m.onnx"), *options]) == 0


def test_an_answer_that_is_no_number(tmp_path):
    nodes = [node("Sub", ["x", "x"], ["z"]), node("Div", ["x", "z"], ["out"])]
    with pytest.raises(ModelError, match="answers random inputs with NaN"):
        read(tmp_path, model(nodes, {"x": ["n", 5]}))


def test_a_reader_that_is_wrong_is_found_out(tmp_path, monkeypatch):
    """A function that computes something else: the first node that differs is named."""
    wrong = replace(OPS["Relu"], function=lambda x: torch.relu(x) + 1e-2)
    monkeypatch.setitem(OPS, "Relu", wrong)
    with pytest.raises(FileError, match=r"read wrongly: at node 'relu1' \(Relu\) onnxruntime"):
        read(tmp_path, classifier())


def test_ops_that_are_not_read_are_told_once_each(tmp_path):
    nodes = [node("Det", ["x"], [f"d{i}"], name=f"det{i}") for i in range(5)]
    nodes += [node("Sum", [f"d{i}" for i in range(5)], ["s"]), node("Hardmax", ["s"], ["out"])]
    with pytest.raises(UnsupportedOp) as refusal:
        read(tmp_path, model(nodes, {"x": ["batch", 3, 3]}))
    title, *lines, _ = str(refusal.value).split("\n")
    assert "holds 2 op(s)" in title
    assert lines == ["  Det, 5 node(s): 'det0', 'det1', 'det2', …", "  Hardmax, 1 node(s): 'out'"]


def test_a_file_that_the_runtime_refuses(tmp_path, monkeypatch):
    def start(*, precise):
        def fail(content: bytes):
            raise RuntimeError("no kernel")

        return "some runtime", fail

    monkeypatch.setattr("onesigma.importers.onnx.read.checking_runtime", start)
    with pytest.raises(FileError, match=r"some runtime cannot run m\.onnx: no kernel"):
        read(tmp_path, classifier())


def test_without_onnxruntime_the_reference_checks(tmp_path, monkeypatch):
    monkeypatch.setattr("onesigma.runtime.comparison.find_spec", lambda name: None)
    """onnx's reference really drops in training mode; it is compared with dropout off."""
    nodes = [
        node("Dropout", ["x", "rate", "on"], ["d"], name="drop"),
        node("Gemm", ["d", "w"], ["out"]),
    ]
    weights = {"w": numbers(6, 3), "rate": scalar(0.3), "on": np.array(True)}
    module = read(tmp_path, model(nodes, {"x": ["batch", 6]}, weights))
    assert [step.dropout.rate for step in module.steps() if step.dropout] == [0.3]
