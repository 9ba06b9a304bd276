"""Norms and padding inside of layers: the same answers, from fewer ops."""

from collections import Counter

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator

from onnx import helper, numpy_helper  # noqa: E402

from onesigma.exporters.folding import fold  # noqa: E402

DRAW = np.random.default_rng(0)
NORM = ["scale", "shift", "mean", "var"]


def numbers(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype("float32")


def model(nodes: list, weights: dict[str, np.ndarray], shape: list, outputs: list[str]):
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.metadata_props.add(key="kept", value="yes")
    return made


def folded_ops(made, shape: list) -> Counter:
    """The ops that are left, after both models answered alike."""
    left = fold(made)
    x = numbers(5, *shape)
    wanted, found = (ReferenceEvaluator(each).run(None, {"x": x}) for each in (made, left))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5)
    assert left.metadata_props[0].value == "yes"
    read = {name for node in left.graph.node for name in node.input}
    assert {each.name for each in left.graph.initializer} <= read
    return Counter(node.op_type for node in left.graph.node)


def norm(channels: int) -> dict[str, np.ndarray]:
    return {name: numbers(channels) for name in NORM[:3]} | {"var": numbers(channels) ** 2 + 0.1}


@pytest.mark.parametrize("bias", [[], ["b"]])
def test_padding_and_norm_go_into_a_convolution(bias):
    pads = np.array([0, 0, 4, 0, 0, 1])
    weights = {"w": numbers(8, 3, 5), "b": numbers(8), "pads": pads} | norm(8)
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Conv", ["padded", "w", *bias], ["h"], pads=[1, 0], dilations=[2]),
        helper.make_node("BatchNormalization", ["h", *NORM], ["y"], epsilon=1e-3),
    ]
    assert folded_ops(model(nodes, weights, [3, 12], ["y"]), [3, 12]) == {"Conv": 1}


@pytest.mark.parametrize("turned", [0, 1])
def test_a_norm_goes_into_a_linear_layer(turned):
    weights = {"w": numbers(*((7, 4) if turned else (4, 7))), "b": numbers(7)} | norm(7)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=turned),
        helper.make_node("BatchNormalization", ["h", *NORM], ["y"]),
    ]
    assert folded_ops(model(nodes, weights, [4], ["y"]), [4]) == {"Gemm": 1}


def test_what_is_read_twice_stays():
    weights = {"w": numbers(3, 3, 1), "pads": np.array([0, 0, 1, 0, 0, 1])} | norm(3)
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Conv", ["padded", "w"], ["h"]),
        helper.make_node("BatchNormalization", ["h", *NORM], ["n"]),
        helper.make_node("Add", ["h", "n"], ["sum"]),
        helper.make_node("Add", ["sum", "padded"], ["y"]),
    ]
    left = folded_ops(model(nodes, weights, [3, 6], ["y"]), [3, 6])
    assert left == {"Pad": 1, "Conv": 1, "BatchNormalization": 1, "Add": 2}


@pytest.mark.parametrize(
    ("pads", "options", "fill"),
    [([0, 1, 0, 0, 0, 0], {}, 0), ([0, 0, 1, 0, 0, 1], {"mode": "edge"}, 0),
     ([0, 0, 1, 0, 0, 1], {}, 2)],
)  # fmt: skip
def test_other_padding_stays(pads, options, fill):
    channels = 3 + pads[1]
    weights = {"w": numbers(4, channels, 3), "pads": np.array(pads)}
    weights["fill"] = np.array(fill, "float32")
    given = ["x", "pads"] + ([] if options else ["fill"])
    nodes = [
        helper.make_node("Pad", given, ["padded"], **options),
        helper.make_node("Conv", ["padded", "w"], ["y"]),
    ]
    assert folded_ops(model(nodes, weights, [3, 9], ["y"]), [3, 9]) == {"Pad": 1, "Conv": 1}
