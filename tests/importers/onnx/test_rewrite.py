"""Constants are folded, layers written in parts become one, a fixed batch is opened.

The graphs are those that tf2onnx and Keras wrote for small networks, with other weights.
"""

import math

import numpy as np
import pytest
import torch
from onnx_files import assert_agreement, ints, model, node, numbers, ops, read, scalar

import onesigma
from onesigma.errors import ModelError
from onesigma.graph.capture import export, plain_module

CONSTANTS = {
    "root2": scalar(math.sqrt(2)), "inverse": scalar(math.sqrt(0.5)), "one": scalar(1),
    "half": scalar(0.5), "three": scalar(3).reshape(1, 1), "zero": scalar(0), "six": scalar(6),
    "sixth": scalar(1 / 6), "twenty": scalar(20), "two": scalar(2), "eps": scalar(1e-3),
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
    module = read(tmp_path, model(PATTERNS[name], {"x": ["batch", 8]}, CONSTANTS))
    assert ops(module) == [name.split()[0]]
    assert_agreement(module, tmp_path / "m.onnx", numbers(3, 8, seed=5) * 5)


@pytest.mark.parametrize("name", ["Swish", "Gelu", "LayerNormalization"])
def test_parts_that_others_use_stay_parts(name, tmp_path):
    *nodes, final = PATTERNS[name]
    inner = nodes[-1].output[0]
    nodes = [*nodes, node(final.op_type, list(final.input), ["whole"])]
    nodes.append(node("Add", ["whole", inner], ["out"]))
    assert name not in ops(read(tmp_path, model(nodes, {"x": ["batch", 8]}, CONSTANTS)))


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
    module = read(tmp_path, model(nodes, {"x": ["batch", 3, 8]}, CONSTANTS))
    assert len(module.steps()) == len(nodes)


@pytest.mark.parametrize(
    ("nodes", "expected"),
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
def test_products_become_linear_layers(nodes, expected, tmp_path):
    weights = {"m": numbers(8, 5), "v": numbers(5), "row": numbers(1, 5), "c": numbers(1)}
    module = read(tmp_path, model(nodes, {"x": ["batch", 8]}, weights))
    assert ops(module) == expected
    assert_agreement(module, tmp_path / "m.onnx", numbers(4, 8))


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
    module = read(tmp_path, model(nodes, {"x": [batch, 24]}, weights))
    captured = plain_module(export(module, module.examples(3), dynamic=True))
    assert captured(torch.randn(7, 24))[0].shape == (7, 3)


def test_a_batch_that_cannot_be_opened_stays(tmp_path):
    nodes = [node("Relu", ["x"], ["r"], name="relu"), node("MatMul", ["mix", "r"], ["out"])]
    proto = model(nodes, {"x": [4, 5]}, {"mix": numbers(4, 4)})
    module = read(tmp_path, proto, dropout={"relu": 0.5})
    converted = onesigma.convert(module, module.examples(4))
    assert converted.settings.input_shapes == ((4, 5),)


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
    module = read(tmp_path, model(nodes, {"x": ["n", 4]}, {"w": numbers(5, 4)}))
    assert ops(module) == ["Linear"]
    assert [tuple(p.shape) for p in module.parameters()] == [(5, 4)]


def test_an_output_that_nothing_reaches(tmp_path):
    nodes = [node("Relu", ["w"], ["out"])]
    with pytest.raises(ModelError, match="does not depend on its input"):
        read(tmp_path, model(nodes, {"x": ["n", 4]}, {"w": numbers(5, 4)}))


WIDE = 10**6
BOMBS = {
    "a constant": (
        [node("ConstantOfShape", ["big"], ["c"]), node("ReduceSum", ["c"], ["s"])],
        r"\(ConstantOfShape\): a constant of shape",
    ),
    "a range": (
        [node("Range", ["zero", "many", "one"], ["r"]), node("Cast", ["r"], ["s"], to=1)],
        r"\(Range\): a constant of shape",
    ),
    "an expansion": (
        [node("Expand", ["w", "big"], ["c"]), node("ReduceSum", ["c"], ["s"])],
        r"\(Expand\): a constant of shape",
    ),
    "tiles": (
        [node("Tile", ["w", "big"], ["c"]), node("ReduceSum", ["c"], ["s"])],
        r"\(Tile\): a constant of shape",
    ),
    "padding": (
        [node("Pad", ["x", "pads"], ["p"]), node("ReduceMean", ["p"], ["s"])],
        r"\(Pad\) makes a tensor of shape .* too large",
    ),
    "a constant's padding": (
        [node("Pad", ["w", "pads"], ["p"]), node("ReduceMean", ["p"], ["s"])],
        r"\(Pad\) makes a tensor of shape .* too large",
    ),
    "doubling": (
        [node("Concat", [f"d{i}"] * 1000, [f"d{i + 1}"], name=f"d{i}", axis=0) for i in range(4)]
        + [node("ReduceSum", ["d4"], ["s"])],
        r"'d2' \(Concat\): a constant of shape",
    ),
    "a sum": (
        [
            node("Transpose", ["long"], ["t"]),
            node("Add", ["t", "long"], ["p"]),
            node("ReduceSum", ["p"], ["s"]),
        ],
        r"\(Add\): a constant of shape",
    ),
    "rows again and again": (
        [node("Gather", ["long", "often"], ["g"]), node("ReduceSum", ["g"], ["s"])],
        r"\(Gather\): a constant of shape",
    ),
    "a product": (
        [
            node("Transpose", ["long"], ["t"]),
            node("MatMul", ["t", "long"], ["p"]),
            node("ReduceSum", ["p"], ["s"]),
        ],
        r"\(MatMul\) makes a tensor of shape .* too large",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_that_ask_for_much_memory(name, tmp_path):
    nodes, message = BOMBS[name]
    weights = {
        "big": ints(WIDE, WIDE),
        "w": numbers(1, 1),
        "long": numbers(1, 20_000),
        "often": np.zeros(20_000, np.int64),
        "d0": numbers(1, 1),
        "pads": ints(0, WIDE * WIDE, 0, 0),
        "zero": np.array(0),
        "many": np.array(10**12),
        "one": np.array(1),
    }
    proto = model([*nodes, node("Mul", ["x", "s"], ["out"])], {"x": ["batch", 6]}, weights)
    with pytest.raises(ModelError, match=message):
        read(tmp_path, proto)
