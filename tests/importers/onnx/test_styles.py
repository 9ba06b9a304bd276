"""Layers as exporters write them: in parts, channels last, sizes computed, the batch fixed.

The graphs are those that tf2onnx and Keras wrote for small networks, by hand, with other weights.
"""

import math

import numpy as np
import pytest
import torch
from onnx_files import ints, model, node, numbers, run, written

import onesigma
from onesigma.cli import main as cli


def number(value):
    return np.float32(value).reshape(())


CONSTANTS = {
    "root2": number(math.sqrt(2)), "inverse": number(math.sqrt(0.5)), "one": number(1),
    "half": number(0.5), "three": number(3).reshape(1, 1), "zero": number(0), "six": number(6),
    "sixth": number(1 / 6), "twenty": number(20), "two": number(2), "eps": number(1e-3),
    "w": numbers(8), "b": numbers(8, seed=1), "last": ints(-1),
}  # fmt: skip
CLIP = [node("Add", ["x", "three"], ["a"]), node("Clip", ["a", "zero", "six"], ["c"])]
CENTRED = [node("ReduceMean", ["x"], ["m"], axes=[-1]), node("Sub", ["x", "m"], ["d"])]
ERF = [node("Erf", ["i"], ["e"]), node("Add", ["e", "one"], ["t"])]
STD = [
    node("ReduceMean", ["q"], ["v"], axes=[-1]),
    node("Add", ["v", "eps"], ["ve"]),
    node("Sqrt", ["ve"], ["std"]),
]

PATTERNS = {
    "Swish": [node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "x"], ["out"])],
    "Mish": [
        node("Softplus", ["x"], ["s"]),
        node("Tanh", ["s"], ["t"]),
        node("Mul", ["x", "t"], ["out"]),
    ],
    "Softplus": [
        node("Softplus", ["x"], ["s"]),
        node("Greater", ["x", "twenty"], ["g"]),
        node("Where", ["g", "x", "s"], ["out"]),
    ],
    "HardSwish": [
        node("HardSigmoid", ["x"], ["h"], alpha=1 / 6),
        node("Mul", ["x", "h"], ["out"]),
    ],
    "HardSwish 2": [
        *CLIP,
        node("Mul", ["c", "sixth"], ["h"]),
        node("Mul", ["x", "h"], ["out"]),
    ],
    "HardSwish 3": [*CLIP, node("Mul", ["x", "c"], ["h"]), node("Div", ["h", "six"], ["out"])],
    "Gelu": [
        node("Div", ["x", "root2"], ["i"]),
        *ERF,
        node("Mul", ["x", "t"], ["xt"]),
        node("Mul", ["xt", "half"], ["out"]),
    ],
    "Gelu 2": [
        node("Mul", ["inverse", "x"], ["i"]),
        *ERF,
        node("Mul", ["half", "x"], ["h"]),
        node("Mul", ["h", "t"], ["out"]),
    ],
    "LayerNormalization": [
        *CENTRED,
        node("Pow", ["d", "two"], ["q"]),
        *STD,
        node("Div", ["d", "std"], ["n"]),
        node("Mul", ["n", "w"], ["g"]),
        node("Add", ["g", "b"], ["out"]),
    ],
    "LayerNormalization 2": [
        *CENTRED,
        node("Neg", ["m"], ["neg"]),
        node("Mul", ["d", "d"], ["q"]),
        *STD,
        node("Reciprocal", ["std"], ["r"]),
        node("Mul", ["r", "w"], ["rw"]),
        node("Mul", ["x", "rw"], ["xs"]),
        node("Mul", ["neg", "rw"], ["ms"]),
        node("Add", ["ms", "b"], ["shift"]),
        node("Add", ["xs", "shift"], ["out"]),
    ],
}


@pytest.mark.parametrize("name", PATTERNS)
def test_parts_become_one_layer_again(name, tmp_path):
    path = written(tmp_path / "m.onnx", model(PATTERNS[name], {"x": ["batch", 8]}, CONSTANTS))
    module = onesigma.read_onnx(path, dropout={})
    assert [step.node.op for step in module.steps()] == [name.split()[0]]
    x = numbers(3, 8, seed=5) * 5
    found = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, run(path, x)["out"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["Swish", "Gelu", "LayerNormalization"])
def test_parts_that_others_use_stay_parts(name, tmp_path):
    *nodes, final = PATTERNS[name]
    inner = nodes[-1].output[0]
    nodes = [*nodes, node(final.op_type, list(final.input), ["whole"])]
    nodes.append(node("Add", ["whole", inner], ["out"]))
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["batch", 8]}, CONSTANTS))
    ops = [step.node.op for step in onesigma.read_onnx(path, dropout={}).steps()]
    assert name not in ops


@pytest.mark.parametrize(
    "nodes",
    [
        [node("HardSigmoid", ["x"], ["h"]), node("Mul", ["x", "h"], ["out"])],  # slope 0.2
        [node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "s"], ["out"])],
        [
            node("ReduceMean", ["x"], ["m"], axes=[1]),  # not the last
            node("Sub", ["x", "m"], ["d"]),
            *PATTERNS["LayerNormalization"][2:],
        ],
    ],
)
def test_what_only_looks_alike_is_left_alone(nodes, tmp_path):
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["batch", 3, 8]}, CONSTANTS))
    steps = onesigma.read_onnx(path, dropout={}).steps()
    assert len(steps) == len(nodes)


@pytest.mark.parametrize(
    ("nodes", "ops"),
    [
        ([node("MatMul", ["x", "m"], ["p"]), node("Add", ["p", "v"], ["out"])], ["Linear"]),
        ([node("MatMul", ["x", "m"], ["p"]), node("Add", ["v", "p"], ["out"])], ["Linear"]),
        ([node("MatMul", ["x", "m"], ["p"]), node("Add", ["p", "c"], ["out"])], ["Linear", "Add"]),
        ([node("Gemm", ["x", "m", "row"], ["out"])], ["Linear"]),
        (
            [node("Gemm", ["x", "m", "v"], ["p"]), node("Add", ["p", "v"], ["out"])],
            ["Linear", "Add"],
        ),
        ([node("Gemm", ["x", "m"], ["out"], alpha=2.0)], ["Gemm"]),
        (
            [
                node("Cast", ["x"], ["same"], to=1),
                node("MatMul", ["same", "m"], ["p"]),
                node("Identity", ["p"], ["q"]),
                node("Add", ["q", "v"], ["out"]),
            ],
            ["Linear"],
        ),
    ],
)  # fmt: skip
def test_products_become_linear_layers(nodes, ops, tmp_path):
    weights = {"m": numbers(8, 5), "v": numbers(5), "row": numbers(1, 5), "c": numbers(1)}
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["batch", 8]}, weights))
    module = onesigma.read_onnx(path, dropout={})
    assert [step.node.op for step in module.steps()] == ops
    x = numbers(4, 8)
    np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), run(path, x)["out"], rtol=1e-4)


def tensorflow(tmp_path):
    """Channels last: transposed in and out; batch norm as Mul and Add; a computed Reshape."""
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
        "shift": numbers(1, 4, 1, 1, seed=1), "k2": numbers(4, 1, 3, 3, seed=2), "zero": number(0),
        "six": number(6), "order": ints(0, 2, 3, 1), "start": ints(0), "stop": ints(1),
        "size": np.array([16], np.int32), "w": numbers(16, 3, seed=3), "b": numbers(3, seed=4),
    }  # fmt: skip
    proto = model(nodes, {"image": ["unk__1", 8, 8, 2]}, weights, outputs=["Identity:0"], opset=15)
    return written(tmp_path / "tf.onnx", proto)


def test_a_file_of_tf2onnx(tmp_path):
    path = tensorflow(tmp_path)
    module = onesigma.read_onnx(path, dropout={"relu6:0": 0.3})
    x = numbers(5, 8, 8, 2)
    np.testing.assert_allclose(
        module(torch.from_numpy(x)).numpy(), run(path, x)["Identity:0"], rtol=1e-4
    )
    converted = onesigma.convert(module, torch.from_numpy(x))
    assert converted.settings.input_shapes == ((None, 8, 8, 2),)
    assert converted.settings.class_dim == -1
    assert "dense/Softmax" in converted.report.notes[0]
    # One layer after the dropout, so its variance is exact: Monte Carlo within its own error.
    reference = onesigma.mc_dropout(converted, passes=2000)(torch.from_numpy(x))
    torch.testing.assert_close(converted(torch.from_numpy(x)).std, reference.std, rtol=0.1, atol=0)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_fixed_batch_is_opened(batch, tmp_path):
    """Reshapes to (1, −1) and (1, 6, 4): for other batches the first size is what it has to be."""
    nodes = [
        node("Reshape", ["x", "to3"], ["a"]),
        node("Relu", ["a"], ["r"], name="relu"),
        node("Reshape", ["r", "to2"], ["f"]),
        node("Gemm", ["f", "w"], ["g"]),
        node("Reshape", ["g", "to1"], ["out"]),
    ]
    weights = {
        "to3": ints(batch, 6, 4), "to2": ints(batch, -1), "to1": ints(batch, 3),
        "w": numbers(24, 3),
    }  # fmt: skip
    path = written(tmp_path / "m.onnx", model(nodes, {"x": [batch, 24]}, weights))
    module = onesigma.read_onnx(path, dropout={"relu": 0.5})
    converted = onesigma.convert(module, module.examples(batch))
    assert converted.settings.input_shapes == ((None, 24),)
    assert converted(torch.randn(7, 24)).mean.shape == (7, 3)


RELU = node("Relu", ["x"], ["r"], name="relu")


def test_a_batch_that_cannot_be_opened_stays(tmp_path):
    nodes = [RELU, node("MatMul", ["mix", "r"], ["out"])]
    proto = model(nodes, {"x": [4, 5]}, {"mix": numbers(4, 4)})
    module = onesigma.read_onnx(written(tmp_path / "m.onnx", proto), dropout={"relu": 0.5})
    converted = onesigma.convert(module, module.examples(4))
    assert converted.settings.input_shapes == ((4, 5),)


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
    with pytest.raises(onesigma.ModelError, match=message):
        onesigma.read_onnx(written(tmp_path / "m.onnx", proto), dropout={"relu": 0.5})


def test_several_inputs_must_agree_about_the_batch(tmp_path):
    nodes = [node("Add", ["x", "y"], ["out"])]
    good = model(nodes, {"x": ["n", 5], "y": ["n", 5]})
    module = onesigma.read_onnx(written(tmp_path / "m.onnx", good), dropout={})
    assert module.input_names == ["x", "y"]
    bad = written(tmp_path / "m.onnx", model(nodes, {"x": [2, 5], "y": [4, 5]}))
    with pytest.raises(onesigma.ModelError, match="disagree about the batch"):
        onesigma.read_onnx(bad, dropout={})


def test_unnamed_nodes_are_called_by_their_output(tmp_path):
    nodes = [node("Relu", ["x"], ["a"]), node("Tanh", ["a"], ["b"]), node("Tanh", ["b"], ["out"])]
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["n", 5]}))
    module = onesigma.read_onnx(path, dropout={"a": 0.1})
    assert [step.node.name for step in module.steps()] == ["a", "b", "out"]


@pytest.mark.parametrize("name", ["forward", "weights", "a..b", "."])
def test_any_name_will_do(name, tmp_path):
    """Names that modules have already, or that PyTorch forbids."""
    nodes = [
        node("Gemm", ["x", name], ["h"], name=name),
        node("Relu", ["h"], ["r"], name=f"{name}.inner"),
        node("Gemm", ["r", f"{name}.w"], ["out"], name=f"{name}.w"),
    ]
    weights = {name: numbers(5, 4), f"{name}.w": numbers(4, 3)}
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["n", 5]}, weights))
    module = onesigma.read_onnx(path, dropout={"every Relu": 0.5})
    converted = onesigma.convert(module, torch.randn(2, 5))
    onesigma.save(converted, tmp_path / "m.safetensors")
    again = onesigma.load(tmp_path / "m.safetensors")
    x = torch.randn(3, 5)
    assert torch.equal(again(x).var, converted(x).var)


def test_constants_are_folded(tmp_path):
    """In every form that a Constant has; what they make is a weight of the module."""
    nodes = [
        node("Constant", [], ["f"], value_float=2.0),
        node("Constant", [], ["i"], value_ints=[4, 5]),
        node("Transpose", ["w"], ["t"]),
        node("Sqrt", ["f"], ["root"]),
        node("Mul", ["t", "root"], ["scaled"]),
        node("Reshape", ["scaled", "i"], ["matrix"]),
        node("MatMul", ["x", "matrix"], ["out"]),
    ]
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["n", 4]}, {"w": numbers(5, 4)}))
    module = onesigma.read_onnx(path, dropout={})
    assert [step.node.op for step in module.steps()] == ["Linear"]
    assert [tuple(p.shape) for p in module.parameters()] == [(5, 4)]


def test_a_network_that_takes_positive_numbers_only(tmp_path):
    """A logarithm first, as of spectrograms: it is compared, and converted, on such numbers."""
    nodes = [
        node("Log", ["x"], ["l"]),
        node("Gemm", ["l", "w"], ["h"]),
        node("Relu", ["h"], ["r"], name="relu"),
        node("Gemm", ["r", "v"], ["out"]),
    ]
    weights = {"w": numbers(5, 4), "v": numbers(4, 3)}
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["n", 5]}, weights))
    module = onesigma.read_onnx(path, dropout={"relu": 0.5})
    assert (module.examples(3)[0] > 0).all()
    options = ["-o", str(tmp_path / "out.onnx"), "--dropout", "relu=0.5"]
    assert cli.main(["convert", str(path), *options]) == 0


def test_an_answer_that_is_no_number(tmp_path):
    nodes = [node("Sub", ["x", "x"], ["z"]), node("Div", ["x", "z"], ["out"])]
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["n", 5]}))
    with pytest.raises(onesigma.ModelError, match="answers random inputs with NaN"):
        onesigma.read_onnx(path, dropout={})


def test_second_outputs_are_not_computed(tmp_path):
    pool = node("MaxPool", ["x"], ["p", "indices"], kernel_shape=[2])
    cast = node("Cast", ["indices"], ["out"], to=1, name="cast")
    path = written(tmp_path / "m.onnx", model([pool, cast], {"x": ["n", 2, 6]}))
    with pytest.raises(onesigma.UnsupportedOp, match=r"node 'cast' .* needs 'indices', a second"):
        onesigma.read_onnx(path, dropout={})


def test_an_output_that_nothing_reaches(tmp_path):
    nodes = [node("Relu", ["w"], ["out"])]
    path = written(tmp_path / "m.onnx", model(nodes, {"x": ["n", 4]}, {"w": numbers(5, 4)}))
    with pytest.raises(onesigma.ModelError, match="does not depend on its input"):
        onesigma.read_onnx(path, dropout={})
