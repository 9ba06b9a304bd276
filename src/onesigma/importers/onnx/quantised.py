"""A quantised graph as the float network it stands for.

Every value that the file holds as integers q stands here for the real number s (q − z). So
weights are dequantised once, and each op becomes its float op on real numbers:

    QuantizeLinear x → q          Rounding x → x'          the nearest s (q − z), if it is in range
    DequantizeLinear q → x        nothing
    QLinearConv, QGemm, …         Conv, Gemm, …, Rounding
    MatMulInteger, ConvInteger    MatMul, Conv of what DynamicQuantizeLinear rounds, its scale 1

This is compared with the file as it runs. What is converted has no ``Rounding``: the noise of a
network is no multiple of s, and dropout goes beyond ranges that were measured without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onesigma.errors import ModelError, UnsupportedOp
from onesigma.importers.onnx.parse import Array, Node, OnnxGraph

ROUNDING = ("Rounding", "DynamicRounding")
_ONE = "onesigma:one"
_ZERO = np.zeros((), np.uint8)  # where a file names no zero point


@dataclass(frozen=True)
class _Layout:
    """Where an op has its inputs: at ``values``, each with its scale and zero point after it.

    ``output`` is where the scale of the output is, ``axis`` that of the last value, its weight.
    """

    op: str
    values: tuple[int, ...] = (0,)
    output: int = 3
    bias: int | None = None
    axis: int = 0


_LAYOUTS = {
    "QLinearConv": _Layout("Conv", (0, 3), 6, bias=8),
    "QLinearMatMul": _Layout("MatMul", (0, 3), 6, axis=-1),
    "QGemm": _Layout("Gemm", (0, 3), 7, bias=6, axis=1),
    "QLinearConcat": _Layout("Concat", (), 0),
    **{f"QLinear{op}": _Layout(op, (0, 3), 6) for op in ("Add", "Mul")},
    **{f"QLinear{op}": _Layout(op) for op in ("AveragePool", "GlobalAveragePool", "LeakyRelu")},
    **{f"QLinear{op}": _Layout(op) for op in ("ReduceMean", "Sigmoid", "Softmax")},
}
_INTEGER = {"MatMulInteger": ("MatMul", -1), "ConvInteger": ("Conv", 0)}
# These move integers about, or choose some of them.
_MOVING = {
    *("Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GlobalMaxPool"),
    *("Identity", "MaxPool", "Pad", "ReduceMax", "ReduceMin", "Reshape", "Resize", "Slice"),
    *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}
_LINEAR = ("QuantizeLinear", "DequantizeLinear")
_DYNAMIC = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
QUANTISED = {*_LAYOUTS, *_INTEGER, *_LINEAR, *_DYNAMIC}


def in_real_numbers(graph: OnnxGraph) -> OnnxGraph:
    """The graph with float ops only, and a rounding where the file rounds.

    Weights and scales are to be constants of the graph already; ``fold`` comes before.

    Raises:
        UnsupportedOp: an op computes with the integers themselves.
        ModelError: the file answers with integers.
    """
    if not any(node.op in QUANTISED for node in graph.nodes):
        return graph
    rewriting = _Rewriting(graph)
    for node in graph.nodes:
        rewriting.rewrite(node)
    if graph.output in rewriting.scales:
        raise ModelError(
            f"{graph.file} answers with integers: end it with DequantizeLinear, as quantisers do."
        )
    return graph.with_nodes(rewriting.nodes, rewriting.constants)


class _Rewriting:
    """``scales`` has scale and zero point of the values that are integers in the file."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {**graph.constants, _ONE: np.ones((), np.float32)}
        self.scales: dict[str, tuple[str, str]] = {}

    def rewrite(self, node: Node) -> None:
        """Add the float nodes that replace a node."""
        if layout := _LAYOUTS.get(node.op):
            self._layout(node, layout)
        elif node.op in _INTEGER:
            self._integer(node, *_INTEGER[node.op])
        elif node.op == "QuantizeLinear":
            self._round(node, *_inputs(node)[:3], axis=node.attributes.get("axis", 1))
        elif node.op == "DequantizeLinear" and node.inputs[0] in self.scales:
            self._require_same(node, *_inputs(node)[:3])
            self._add(node, "Identity", node.inputs[:1], attributes={})
        elif node.op == "DynamicQuantizeLinear":
            self._dynamic(node)
        elif node.op in _DYNAMIC:
            self._to_float(node)
        else:
            self.nodes.append(self._other(node))

    def _add(self, node: Node, op: str, inputs: Sequence[str], **others: Any) -> None:
        """Add a copy of the node with these changes."""
        self.nodes.append(replace(node, op=op, inputs=tuple(inputs), **others))

    def _new(self, name: str, op: str, *inputs: str, **attributes: int) -> str:
        """Add a node whose output has the node's own name; returns that name."""
        self.nodes.append(Node(name, op, inputs, (name,), attributes))
        return name

    def _layout(self, node: Node, layout: _Layout) -> None:
        given, attributes = _inputs(node), dict(node.attributes)
        if attributes.pop("channels_last", 0):
            raise UnsupportedOp(f"{node} has its channels last: quantise the file without.")
        attributes.pop("opset", None)  # of QLinearSoftmax: that of the file
        starts = layout.values or tuple(range(2, len(node.inputs), 3))
        axis = 0 if node.attributes.get("transB") else layout.axis
        inputs = [self._real(node, *given[start : start + 3], axis=axis) for start in starts]
        if layout.bias is not None and given[layout.bias]:
            scales = (given[start + 1] for start in starts)
            scale = self._new(f"{node.name}/bias_scale", "Mul", *scales)
            numbers = (given[layout.bias], scale)
            inputs.append(self._new(f"{node.name}/bias", "DequantizeLinear", *numbers, axis=0))
        scale, zero = given[layout.output : layout.output + 2]
        exact = f"{node.outputs[0]}/exact" if scale else node.outputs[0]  # or the answer is float
        self._add(node, layout.op, inputs, outputs=(exact,), attributes=attributes)
        if scale:
            self._round(replace(node, name=f"{node.name}/out"), exact, scale, zero)

    def _round(self, node: Node, value: str, scale: str, zero: str, *, axis: int = 1) -> None:
        """Add a rounding in place of a node whose output is integers in the file."""
        levels = self.constants.get(zero, _ZERO)
        if scale not in self.constants or (zero and zero not in self.constants):
            raise UnsupportedOp(f"{node}: its scale is computed as it runs; it must be a constant.")
        if levels.dtype.kind not in "iu":
            raise UnsupportedOp(f"{node} rounds to {levels.dtype}, which is no integer.")
        self.scales[node.outputs[0]] = scale, zero
        self._add(node, "Rounding", (value, scale, zero), attributes={"axis": axis})

    def _integer(self, node: Node, op: str, axis: int) -> None:
        a, b, *zeros = node.inputs
        pairs = zip((a, b), (*zeros, "", ""), strict=False)
        self._add(node, op, [self._real(node, x, _ONE, zero, axis=axis) for x, zero in pairs])

    def _dynamic(self, node: Node) -> None:
        """Round the real numbers themselves: the scale that the file multiplies by later is 1."""
        value, scale, zero = node.outputs
        self.constants |= {scale: np.ones((), np.float32), zero: _ZERO}
        self.scales[value] = scale, zero
        self._add(node, "DynamicRounding", node.inputs, outputs=(value,))

    def _to_float(self, node: Node) -> None:
        """A product whose output is float, and the bias after it."""
        given = _inputs(node)
        if node.op == "DynamicQuantizeMatMul":
            value, weight, scale, zero, bias = given[:5]
            left = self._new(f"{node.name}/in", "DynamicRounding", value)
        else:
            value, weight, left_scale, scale, left_zero, zero, bias = given[:7]
            left = self._real(node, value, left_scale, left_zero, axis=-1)
        inputs = (left, self._real(node, weight, scale, zero, axis=-1))
        product = f"{node.outputs[0]}/product" if bias else node.outputs[0]
        self.nodes.append(Node(node.name, "MatMul", inputs, (product,)))
        if bias:
            self.nodes.append(Node(f"{node.name}/bias", "Add", (product, bias), node.outputs))

    def _real(self, node: Node, value: str, scale: str, zero: str, *, axis: int) -> str:
        """The name of the real numbers, which a constant or an input is made into."""
        if value in self.scales:
            self._require_same(node, value, scale, zero)
            return value
        name = f"{value}/real/{node.name}"
        return self._new(name, "DequantizeLinear", value, scale, zero, axis=axis)

    def _require_same(self, node: Node, value: str, scale: str, zero: str) -> None:
        for name, other in zip(self.scales[value], (scale, zero), strict=True):
            mine, its = (self.constants.get(each, _ZERO) for each in (name, other))
            if name != other and not np.array_equal(mine.squeeze(), its.squeeze()):
                raise UnsupportedOp(f"{node} takes '{value}' at another scale than it was made at.")

    def _other(self, node: Node) -> Node:
        integer = [name for name in node.inputs if name in self.scales]
        if not integer or node.op == "Shape":
            return node
        if node.op not in _MOVING:
            raise UnsupportedOp(
                f"{node} computes with the integers of '{integer[0]}', not its values."
            )
        scale, zero = self.scales[integer[0]]
        for name in integer:
            self._require_same(node, name, scale, zero)
        self.scales |= {name: (scale, zero) for name in node.outputs}
        return self._pad(node, scale, zero) if node.op == "Pad" else node

    def _pad(self, node: Node, scale: str, zero: str) -> Node:
        """The number to pad with is an integer, too; 0 where there is none."""
        x, pads, fill, *axes = (*node.inputs, "")[: max(3, len(node.inputs))]
        integer = self.constants.get(fill, _ZERO)
        offset = self.constants.get(zero, _ZERO)
        name = f"{node.name}/fill"
        self.constants[name] = np.asarray((integer - offset.astype(float)) * self.constants[scale])
        return replace(node, inputs=(x, pads, name, *axes))


def _inputs(node: Node) -> list[Any]:
    """The names of its inputs, with '' for those at the end that are left out."""
    return [*node.inputs, *[""] * 9]


# What is never below zero, and what is not if its inputs are not.
_POSITIVE = {"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt"}
_KEEPING = _MOVING | {
    *("Add", "AveragePool", "Clip", "GlobalAveragePool", "Mul", "ReduceMean", "ReduceSum"),
}
# The inputs that decide: the first, except for these ops.
_DECIDING = {"Add": slice(None), "Clip": slice(1, 2), "Concat": slice(None), "Mul": slice(None)}


def without_rounding(graph: OnnxGraph) -> tuple[OnnxGraph, tuple[str, ...]]:
    """The graph in float, and what to note of it.

    A range that begins at 0 after a layer holds the ReLU that quantisers take out, because cutting
    to the range does the same; [0, 6] holds a ReLU6.
    """
    if not any(node.op in ROUNDING for node in graph.nodes):
        return graph, ()
    positive = {each.name for each in graph.inputs}
    numbers = [(name, x) for name, x in graph.constants.items() if x.dtype.kind in "fiu"]
    positive |= {name for name, x in numbers if (x >= 0).all()}
    constants, nodes, found = dict(graph.constants), [], {"Relu": 0, "Clip": 0}
    for node in graph.nodes:
        if node.op in ROUNDING:
            low, high = _range(node, graph.constants)
            node = replace(node, op="Identity", inputs=node.inputs[:1], attributes={})
            if low == 0 and node.inputs[0] not in positive:
                six = math.isclose(high, 6, rel_tol=1e-5)
                found[op := "Clip" if six else "Relu"] += 1
                bounds = {"min": 0.0, "max": 6.0} if six else {}
                node = replace(node, op=op, attributes=bounds)
                positive |= set(node.outputs)
        of = {*node.inputs[_DECIDING.get(node.op, slice(1))]}
        if node.op in _POSITIVE or (node.op in _KEEPING and of and of <= positive):
            positive |= set(node.outputs)
        nodes.append(node)
    return graph.with_nodes(nodes, constants), _notes(graph.file, found)


def _range(node: Node, constants: dict[str, Array]) -> tuple[float, float]:
    """Of a rounding; one that measures its range as it runs has none."""
    if node.op != "Rounding":
        return -math.inf, math.inf
    zero = constants.get(node.inputs[2], _ZERO)
    levels = np.iinfo(zero.dtype)
    ends = [
        (end - zero.astype(float)) * constants[node.inputs[1]] for end in (levels.min, levels.max)
    ]
    return float(ends[0].min()), float(ends[1].max())


def _notes(file: str, found: dict[str, int]) -> tuple[str, ...]:
    note = (
        f"{file} was quantised: read as float with its scales, activations neither rounded nor cut "
        "to their ranges; int8 can be had again at export"
    )
    words = [f"{n} as {op}" for op, n in zip(("ReLU", "ReLU6"), found.values(), strict=True) if n]
    if not words:
        return (note,)
    return (note, f"{file}: ranges from 0 after a layer are read: {', '.join(words)}")
