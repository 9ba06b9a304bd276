"""Every ONNX op against ONNX Runtime, and that what is read has rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_files import assert_agreement, ints, model, node, numbers, read, scalar
from torch.fx.experimental.proxy_tensor import make_fx

import onesigma
from onesigma.errors import UnsupportedOp
from onesigma.graph.capture import export, plain_module
from onesigma.graph.expand import MADE_OF, expand
from onesigma.importers.onnx.module import OnnxModule
from onesigma.importers.onnx.ops import OPS
from onesigma.rules import RULES

VECTOR, SIGNAL, IMAGE = (6,), (4, 9), (4, 6, 7)


@dataclass
class Case:
    """One op on an input ``x`` of that sample shape, and constants after it."""

    op: str
    shape: tuple[int, ...] = SIGNAL
    constants: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 17
    positive: bool = False
    first: bool = True  # whether x comes before the constants


def case(op: str, *positional: Any, opset: int = 17, positive: bool = False, first: bool = True,
         **attributes: Any) -> Case:  # fmt: skip
    shape = positional[0] if positional and isinstance(positional[0], tuple) else SIGNAL
    constants = positional[1:] if positional and isinstance(positional[0], tuple) else positional
    return Case(op, shape, constants, attributes, opset, positive, first)


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


KERNEL1, KERNEL2 = numbers(8, 4, 3), numbers(8, 4, 3, 3)
CHANNELS = [numbers(4, seed=s) for s in range(4)]
VAR = np.abs(CHANNELS[3]) + 0.5
SAME = ("SAME_UPPER", "SAME_LOWER")

CASES = [
    *(case(op) for op in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid")),
    *(case(op) for op in ("Tanh", "Softplus", "HardSwish", "Exp", "Abs", "Neg", "Identity", "Erf")),
    *(case(op) for op in ("Floor", "Ceil", "Round", "Sin", "Cos", "Softmax", "LogSoftmax")),
    *(case(op) for op in ("Atan", "Sign", "Softsign", "ThresholdedRelu")),
    *(case(op, positive=True) for op in ("Log", "Sqrt", "Reciprocal")),
    case("LeakyRelu", alpha=0.3),
    case("Elu", alpha=0.5),
    case("Celu", alpha=2.0),
    case("HardSigmoid", alpha=1 / 6, beta=0.5),
    case("Mish", opset=18),
    case("Gelu", opset=20),
    case("Gelu", opset=20, approximate="tanh"),
    case("PRelu", f32(0.2)),
    case("PRelu", numbers(4, 1)),
    case("PRelu", numbers(9)),
    case("Shrink", lambd=0.5, bias=0.5),
    case("Clip", scalar(0), scalar(6)),
    case("Clip", scalar(-0.5)),
    case("Clip", scalar(0)),
    case("Clip", opset=9, min=-0.3, max=0.4),
    case("Clip", opset=9, max=0.4),
    case("Softmax", IMAGE, opset=12),
    case("Softmax", IMAGE, opset=12, axis=-1),
    case("Softmax", IMAGE, axis=1),
    case("LogSoftmax", IMAGE, opset=9, axis=2),
    case("Dropout"),
    case("Dropout", scalar(0.3)),
    case("Dropout", opset=10, ratio=0.3),
    *(case(op, scalar(0.5)) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")),
    *(case(op, numbers(4, 1)) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")),
    *(case(op, numbers(1, 1, 1, 1)) for op in ("Add", "Mul")),
    *(case(op, scalar(0.5), first=False) for op in ("Sub", "Div")),
    case("Pow", scalar(2)),
    case("Pow", ints(3).reshape(())),
    case("Mod", scalar(0.7), fmod=1),
    *(case(f"Reduce{k}") for k in ("L1", "LogSumExp", "Prod")),
    case("ReduceLogSum", positive=True),
    case("ReduceProd", axes=[-1, 1], keepdims=0),
    *(case(op, axis=2) for op in ("ArgMax", "ArgMin")),
    case("CumSum", ints(2)),
    case("CumSum", ints(1).reshape(()), exclusive=1, reverse=1),
    case("Einsum", numbers(4, 5), equation="bct,cd->bdt"),
    case("Trilu"),
    case("Trilu", ints(-1).reshape(()), upper=0),
    *(case(f"Reduce{k}") for k in ("L2", "Max", "Mean", "Min", "Sum", "SumSquare")),
    *(case(f"Reduce{k}", axes=[-1], keepdims=0) for k in ("Max", "Mean", "Min", "L2")),
    case("ReduceSum", ints(1, 2), keepdims=0),
    case("ReduceSum", noop_with_empty_axes=1),
    case("ReduceMean", IMAGE, ints(2, 3), opset=18, keepdims=0),
    case("Conv", KERNEL1),
    case("Conv", IMAGE, KERNEL2, numbers(8), pads=[1, 1, 1, 1], strides=[2, 1]),
    case("Conv", IMAGE, KERNEL2, numbers(8), pads=[0, 0, 1, 1], strides=[2, 2]),
    case("Conv", IMAGE, numbers(8, 2, 3, 3), group=2, dilations=[2, 2], pads=[2, 2, 2, 2]),
    *(case("Conv", IMAGE, KERNEL2, auto_pad=mode, strides=[2, 2]) for mode in SAME),
    case("Conv", (2, 4, 5, 5), numbers(3, 2, 2, 2, 2), auto_pad="VALID"),
    case("ConvTranspose", numbers(4, 8, 3), strides=[2], pads=[1, 1], output_padding=[1]),
    case("ConvTranspose", IMAGE, numbers(4, 3, 3, 3), strides=[2, 2], pads=[0, 0, 1, 1]),
    case("ConvTranspose", IMAGE, numbers(4, 3, 3, 3), numbers(6), group=2, dilations=[2, 1]),
    case("Gemm", VECTOR, numbers(5, 6), numbers(5), transB=1),
    case("Gemm", VECTOR, numbers(6, 5), numbers(1, 5)),
    case("Gemm", VECTOR, numbers(6, 5), alpha=0.5),
    case("Gemm", VECTOR, numbers(6, 5), scalar(2), alpha=0.5, beta=2.0),
    case("MatMul", numbers(9, 5)),
    case("MatMul", numbers(5, 4), first=False),
    case("BatchNormalization", IMAGE, *CHANNELS[:3], VAR),
    case("BatchNormalization", (4,), *CHANNELS[:3], VAR, opset=9, epsilon=1e-2),
    case("InstanceNormalization", IMAGE, *CHANNELS[:2]),
    case("LayerNormalization", numbers(9), numbers(9)),
    case("LayerNormalization", numbers(4, 9), axis=1),
    case("GroupNormalization", IMAGE, *CHANNELS[:2], opset=21, num_groups=2),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1, strides=[2, 2]),
    case("MaxPool", SIGNAL, kernel_shape=[3], pads=[2, 0], dilations=[2]),
    *(case("MaxPool", IMAGE, kernel_shape=[3, 2], auto_pad=mode, strides=[2, 2]) for mode in SAME),
    case("AveragePool", IMAGE, kernel_shape=[2, 3], strides=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], pads=[0, 0, 1, 1], strides=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], pads=[0, 1, 0, 0], count_include_pad=1),
    *(case("AveragePool", IMAGE, kernel_shape=[3, 2], auto_pad=mode) for mode in SAME),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool"),
    case("Reshape", ints(-1, 36)),
    case("Reshape", ints(0, 2, -1)),
    case("Reshape", ints(-1, 12, 3), opset=14, allowzero=1),
    case("Flatten", IMAGE),
    case("Flatten", IMAGE, axis=2),
    case("Flatten", IMAGE, axis=-1),
    case("Transpose", IMAGE, perm=[0, 2, 3, 1]),
    case("Transpose"),
    case("Squeeze", (4, 1, 3), ints(2)),
    case("Squeeze", (1, 4, 1), opset=11, axes=[1, -1]),
    case("Squeeze", (1, 4, 1)),
    case("Unsqueeze", ints(1, -1)),
    case("Unsqueeze", opset=11, axes=[2]),
    case("Concat", IMAGE, numbers(3, 4, 6, 7), axis=2),
    case("Slice", ints(1), ints(4), ints(1)),
    case("Slice", ints(-1, 8), ints(-(2**63) + 1, 0), ints(1, 2), ints(-1, -2)),
    case("Slice", opset=9, starts=[1, 2], ends=[3, 100], axes=[1, 2]),
    case("Slice", ints(0, 0), ints(3, 4)),
    case("Gather", ints(-1).reshape(()), axis=2),
    case("Gather", ints(0, 2, 2), axis=1),
    case("Gather", ints(0, 1, 2, 3).reshape(2, 2), axis=2),
    case("Pad", ints(0, 0, 1, 0, 0, 2)),
    case("Pad", ints(0, 1, 0, 0, 0, 0), scalar(1.5)),
    case("Pad", ints(0, 0, 1, 0, 0, 2), mode="reflect"),
    case("Pad", ints(0, 0, 1, 0, 0, 2), mode="edge"),
    case("Pad", ints(1, 2), scalar(0.5), ints(2), opset=18),
    case("Pad", ints(0, 0, 0, 0, 0, 0)),
    case("Pad", opset=9, pads=[0, 0, 2, 0, 0, 1], value=0.5),
    case("Expand", (1, 9), ints(1, 4, 1)),
    case("Expand", ints(2, 1, 1, 1)),
    case("Tile", ints(1, 2, 1)),
    case("Cast", to=11),
    case("DepthToSpace", IMAGE, blocksize=2),
    case("DepthToSpace", IMAGE, blocksize=2, mode="CRD"),
    case("SpaceToDepth", (2, 4, 6), blocksize=2),
    case("Upsample", IMAGE, f32(1, 1, 2, 3), opset=9),
    case("Resize", IMAGE, f32(1, 1, 2, 2), opset=10, mode="nearest"),
    case("Split", axis=1, num_outputs=1, opset=18),
    case("Swish", opset=24),
    case("Swish", opset=24, alpha=2.0),
]
_RESIZE = [
    ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ({"mode": "linear", "coordinate_transformation_mode": "half_pixel"}),
    ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
]
CASES += [case("Resize", IMAGE, f32(), f32(1, 1, 2, 2), **options) for options in _RESIZE]
CASES += [
    case("Resize", IMAGE, f32(), f32(), ints(3, 4, 12, 7), **options) for options in _RESIZE[:2]
]


def named(each: Case) -> str:
    options = "-".join(f"{k}={v}" for k, v in each.attributes.items())
    return f"{each.op}[{each.opset}-{options}]".replace(" ", "")


def build(each: Case):
    names = [f"c{i}" for i in range(len(each.constants))]
    inputs = ["x", *names] if each.first else [*names, "x"]
    op = node(each.op, inputs, ["made"], name="the op", **each.attributes)
    back = node("Cast", ["made"], ["out"], to=1)
    weights = dict(zip(names, each.constants, strict=True))
    batch = 3 if each.op in ("Concat", "Resize") else "batch"
    return model([op, back], {"x": [batch, *each.shape]}, weights, opset=each.opset)


def inputs_for(each: Case) -> np.ndarray:
    x = numbers(3, *each.shape, seed=7)
    return np.abs(x) + 0.5 if each.positive else x


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Callable[[int], tuple[OnnxModule, Path]]:
    """The network of a case, by its number, and its file; each is read once."""
    folder = tmp_path_factory.mktemp("ops")

    @cache
    def read_case(index: int) -> tuple[OnnxModule, Path]:
        (folder / str(index)).mkdir()
        return read(folder / str(index), build(CASES[index])), folder / str(index) / "m.onnx"

    return read_case


@pytest.mark.parametrize("index", range(len(CASES)), ids=[named(each) for each in CASES])
def test_op(index, network):
    assert_agreement(*network(index), inputs_for(CASES[index]))


# Two tensors that both depend on the input, where a constant would have been folded.
PAIRS = {
    "Add": ["x", "y"], "Sub": ["x", "y"], "Mul": ["x", "y"], "Max": ["x", "y"], "Min": ["x", "y"],
    "Sum": ["x", "y", "x"], "Mean": ["x", "y", "x"], "Concat": ["x", "y"], "MatMul": ["x", "t"],
    "Equal": ["x", "y"], "Greater": ["x", "y"], "GreaterOrEqual": ["x", "y"], "Less": ["x", "y"],
    "LessOrEqual": ["x", "y"], "Where": ["m", "x", "y"], "And": ["m", "n"], "Or": ["m", "n"],
    "Not": ["m"], "Pow": ["p", "y"], "Div": ["x", "p"], "Split": ["x"],
}  # fmt: skip


@pytest.mark.parametrize("op", PAIRS)
def test_op_on_tensors(op, tmp_path):
    outputs = ["made", "rest"] if op == "Split" else ["made"]
    options = {"Concat": {"axis": 1}, "Split": {"axis": 1}}.get(op, {})
    nodes = [
        node("Sigmoid", ["x"], ["p"]),
        node("Tanh", ["x"], ["y"]),
        node("Transpose", ["y"], ["t"], perm=[0, 2, 1]),
        node("Greater", ["x", "y"], ["m"]),
        node("Less", ["x", "p"], ["n"]),
        node(op, PAIRS[op], outputs, **options),
        node("Cast", [outputs[-1]], ["out"], to=1),
    ]
    module = read(tmp_path, model(nodes, {"x": ["batch", *SIGNAL]}))
    assert_agreement(module, tmp_path / "m.onnx", numbers(3, *SIGNAL))


# Shape arithmetic: from Shape(x) = s to a target of a Reshape; the batch stays open in all of them.
_FIRST = node("Gather", ["s", "zero"], ["n"])
_FLAT = node("Unsqueeze", ["n", "axis"], ["n1"])
_JOIN = node("Concat", ["n1", "minus"], ["target"], axis=0)
CHAINS = {
    "Gather, Unsqueeze, Concat": [_FIRST, _FLAT, _JOIN],
    "Slice, Cast": [
        node("Cast", ["s"], ["s32"], to=6),
        node("Slice", ["s32", "axis", "one"], ["n32"]),
        node("Cast", ["n32"], ["n1"], to=7),
        _JOIN,
    ],
    "Mul, Div, Add, Sub, Neg": [
        _FIRST,
        node("Mul", ["n", "two"], ["a"]),
        node("Neg", ["a"], ["b"]),
        node("Sub", ["two", "b"], ["c"]),
        node("Add", ["c", "two"], ["d"]),
        node("Div", ["d", "two"], ["e0"]),
        node("Mod", ["e0", "many"], ["e"]),
        node("Sub", ["e", "two"], ["n0"]),
        node("Reshape", ["n0", "one"], ["n1"]),
        _JOIN,
    ],
    "Max, Min, Squeeze, Identity": [
        node("Gather", ["s", "axis"], ["g"]),
        node("Squeeze", ["g", "axis"], ["n"]),
        node("Max", ["n", "zero"], ["a"]),
        node("Min", ["a", "many"], ["b"]),
        node("Identity", ["b"], ["c"]),
        node("Unsqueeze", ["c", "axis"], ["n1"]),
        _JOIN,
    ],
    "ReduceProd": [
        node("Slice", ["s", "one", "three"], ["inner"]),
        node("ReduceProd", ["inner"], ["p"]),
        _FIRST,
        _FLAT,
        node("Concat", ["n1", "p"], ["target"], axis=0),
    ],
    "Equal, Where, ConstantOfShape": [
        _FIRST,
        _FLAT,
        _JOIN,
        node("Shape", ["target"], ["rank"]),
        node("ConstantOfShape", ["rank"], ["zeros"]),
        node("Cast", ["zeros"], ["whole"], to=7),
        node("Equal", ["target", "whole"], ["none"]),
        node("Where", ["none", "whole", "target"], ["chosen"]),
    ],
    "Floor, Ceil, Sqrt, Size": [
        _FIRST,
        node("Size", ["s"], ["z"]),
        node("Cast", ["z"], ["real"], to=1),
        node("Sqrt", ["real"], ["root"]),
        node("Mul", ["root", "half"], ["h"]),
        node("Ceil", ["h"], ["up"]),
        node("Floor", ["up"], ["down"]),
        node("Cast", ["down"], ["unused"], to=7),
        _FLAT,
        _JOIN,
    ],
}  # fmt: skip
NUMBERS_IN_CHAINS = {
    "zero": np.array(0), "axis": ints(0), "one": ints(1), "two": np.array(2), "three": ints(3),
    "minus": ints(-1), "many": np.array(10**6), "half": scalar(0.5),
}  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS)
def test_sizes_are_resolved_and_the_batch_stays_open(chain, tmp_path):
    target = CHAINS[chain][-1].output[0]
    nodes = [node("Shape", ["x"], ["s"]), *CHAINS[chain], node("Reshape", ["x", target], ["out"])]
    module = read(tmp_path, model(nodes, {"x": ["batch", *SIGNAL]}, NUMBERS_IN_CHAINS))
    for batch in (1, 5):
        assert module(torch.zeros(batch, *SIGNAL)).shape == (batch, 36)
    graph = plain_module(export(module, (torch.zeros(3, *SIGNAL),), dynamic=True))
    assert graph(torch.zeros(7, *SIGNAL))[0].shape == (7, 36)


def test_tensors_of_the_batch_size(tmp_path):
    """Of constants, and of a shape that is only known when it runs."""
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Concat", ["s", "width"], ["size"], axis=0),
        node("ConstantOfShape", ["size"], ["zeros"]),
        node("Expand", ["row", "size"], ["rows"]),
        node("Range", ["start", "stop", "step"], ["count"]),
        node("Cast", ["count"], ["reals"], to=1),
        node("Tile", ["reals", "width"], ["long"]),
        node("Slice", ["long", "axis", "width"], ["short"]),
        node("Sum", ["x", "zeros", "rows", "short"], ["out"]),
    ]  # fmt: skip
    weights = {
        "width": ints(6), "row": numbers(6), "start": np.array(0), "stop": np.array(3),
        "step": np.array(1), "axis": ints(0),
    }  # fmt: skip
    module = read(tmp_path, model(nodes, {"x": ["batch", 6]}, weights))
    assert_agreement(module, tmp_path / "m.onnx", numbers(4, 6))


def test_an_embedding_takes_integers(tmp_path):
    nodes = [node("Gather", ["table", "x"], ["e"]), node("Flatten", ["e"], ["out"])]
    module = read(tmp_path, model(nodes, {"x": ["batch", 4]}, {"table": numbers(9, 5)}, dtype=7))
    assert_agreement(module, tmp_path / "m.onnx", np.arange(12).reshape(3, 4) % 9)


def test_the_largest_of_each_row(tmp_path):
    nodes = [
        node("TopK", ["x", "three"], ["values", "places"], axis=2),
        node("OneHot", ["places", "depth", "ends"], ["hot"], axis=1),
        node("ReduceSum", ["hot", "axes"], ["seen"], keepdims=0),
        node("ReduceSum", ["values", "last"], ["top"], keepdims=0),
        node("MatMul", ["top", "w"], ["h"]),
        node("Add", ["h", "seen"], ["out"]),
    ]  # fmt: skip
    weights = {
        "three": ints(3), "depth": ints(9), "ends": f32(0.5, 2), "axes": ints(2, 3),
        "last": ints(2), "w": numbers(4, 9),
    }  # fmt: skip
    module = read(tmp_path, model(nodes, {"x": ["batch", *SIGNAL]}, weights))
    assert_agreement(module, tmp_path / "m.onnx", numbers(5, *SIGNAL))


def test_elements_that_are_looked_up(tmp_path):
    """One per row, taken from one place and put to another; and some that are the same for all."""
    nodes = [
        node("ArgMax", ["x"], ["i"], axis=2),
        node("ArgMin", ["x"], ["j"], axis=2),
        node("Sub", ["i", "nine"], ["below"]),
        node("GatherElements", ["x", "below"], ["top"], axis=2),
        node("ScatterElements", ["x", "j", "top"], ["y"], axis=2),
        node("Transpose", ["y"], ["t"], perm=[2, 1, 0]),
        node("GatherND", ["t", "places"], ["g"]),
        node("Transpose", ["g"], ["out"], perm=[1, 0]),
    ]
    weights = {"nine": ints(9), "places": ints(0, 1, 8, 3, -1, 0).reshape(3, 2)}
    module = read(tmp_path, model(nodes, {"x": ["batch", *SIGNAL]}, weights))
    assert_agreement(module, tmp_path / "m.onnx", numbers(5, *SIGNAL))


@pytest.mark.parametrize("known", [True, False])
def test_parts_that_are_written_over(known, tmp_path):
    """At places that the file says, or that are worked out as it runs."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[2, 1, 0]),
        node("Slice", ["t", "zero", "two"], ["part"]),
        node("Shape", ["part"], ["s"], start=0, end=1),
        node("Cast", ["s"], ["real"], to=1),
        node("Mul", ["real", "none"], ["shift"]),
        node("Cast", ["shift"], ["whole"], to=7),
        node("Add", ["places", "whole"], ["moved"]),
        node("ScatterND", ["t", "places" if known else "moved", "part"], ["u"]),
        node("Transpose", ["u"], ["out"], perm=[2, 1, 0]),
    ]
    weights = {"zero": ints(0), "two": ints(2), "none": f32(0), "places": ints(-1, 3).reshape(2, 1)}
    module = read(tmp_path, model(nodes, {"x": ["batch", *SIGNAL]}, weights))
    assert_agreement(module, tmp_path / "m.onnx", numbers(5, *SIGNAL))


def test_every_op_has_a_case():
    in_chains = {op.op_type for chain in CHAINS.values() for op in chain}
    others = {"Shape", "ConstantOfShape", "Expand", "Range", "Tile", "Linear", "Constant"}
    others |= {"TopK", "OneHot", "GatherElements", "GatherND", "ScatterElements", "ScatterND"}
    others |= {"QuantizeLinear", "DequantizeLinear", "Rounding", "DynamicRounding"}  # quantised
    others |= {"LSTM", "GRU", "RNN"}  # see test_recurrent.py
    tested = {each.op for each in CASES} | set(PAIRS) | in_chains | others
    assert {*OPS} <= tested


# What a network may hold before its dropout only. Everything else is made of ops with rules.
CERTAIN_ONLY = {
    *("ArgMax", "ArgMin", "Atan", "Ceil", "Erf", "Floor", "Mod", "ReduceProd", "Round"),
    "Sign",
}
# What conversion takes apart, with the inputs and attributes to try it with.
TAKEN_APART: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Einsum": (["w"], {"equation": "bct,cd->bdt"}),
    "ThresholdedRelu": ([], {"alpha": 0.5}),
}


@torch.no_grad()
def test_ops_have_rules(network):
    """What is read can be converted, except for a few functions."""
    without: dict[str, Any] = {}
    for index, each in enumerate(CASES):
        if not each.first:  # 1 / x
            continue
        x = torch.from_numpy(inputs_for(each))
        module = make_fx(network(index)[0], pre_dispatch=True)(x)
        expand(module)
        graph = module.graph
        uncertain: set[Any] = set()
        for made in graph.nodes:
            if made.op == "placeholder" or uncertain & set(made.all_input_nodes):
                uncertain.add(made)
            rule = RULES.get(made.target) or MADE_OF.get(made.target)
            if (
                made.op == "call_function"
                and made in uncertain
                and (rule is None or getattr(rule, "refuses", False))
            ):
                without[each.op] = made.target
    assert set(without) == CERTAIN_ONLY | set(TAKEN_APART), without


@pytest.mark.parametrize("op", TAKEN_APART)
def test_ops_that_are_taken_apart_convert(op, tmp_path):
    """The mean and spread of a dropout after them, against Monte Carlo within its error."""
    made = node(op, ["r", *TAKEN_APART[op][0]], ["out"], **TAKEN_APART[op][1])
    nodes = [node("Relu", ["x"], ["r"], name="relu"), made]
    proto = model(nodes, {"x": ["batch", *SIGNAL]}, {"w": numbers(4, 5)})
    module, x = read(tmp_path, proto, dropout={"relu": 0.5}), torch.from_numpy(numbers(3, *SIGNAL))
    with torch.no_grad():
        found = onesigma.convert(module, x, task="regression")(x)
        wanted = onesigma.mc_dropout(module, passes=2000, task="regression")(x)
    error = 5 * wanted.std / 2000**0.5 + 1e-5
    assert ((found.mean - wanted.mean).abs() < error).all()
    torch.testing.assert_close(found.std, wanted.std, rtol=0.15, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "constants", "options"),
    [
        ("Selu", [], {"gamma": 2.0}),
        ("Shrink", [], {"bias": 0.0, "lambd": 0.5}),
        ("ConvTranspose", [numbers(4, 3, 3)], {"output_shape": [12]}),
        ("ConvTranspose", [numbers(4, 3, 3)], {"auto_pad": "SAME_UPPER"}),
        ("LayerNormalization", [numbers(1)], {}),
        ("Resize", [f32(), f32(1, 1, 2)], {"mode": "cubic"}),
        ("AveragePool", [], {"kernel_shape": [2], "pads": [0, 1], "ceil_mode": 1}),
        ("Flatten", [], {"axis": 0}),
    ],
)
def test_uses_that_are_not_supported_name_the_node(op, constants, options, tmp_path):
    proto = build(Case(op, SIGNAL, tuple(constants), options))
    with pytest.raises(UnsupportedOp, match=rf"node 'the op' \({op}\): .* not supported"):
        read(tmp_path, proto)


def test_an_op_is_registered_once():
    with pytest.raises(ValueError, match="Relu has an entry already"):
        OPS.add("Relu")(OPS["Relu"])
