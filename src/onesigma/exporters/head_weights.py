"""The head's weights in eight bits of a file. The head itself is computed in float, as before.

    V [z, f, a] + d  →  Vz z + d, then Vf f + that, then Va a + that
    V                →  steps · q, of int8: one step for each row of each part

Parts have steps of their own because those of z are about 1 and the others are small. What only
constants feed runtimes compute once, when they load the file: so it takes no time per answer.
(ONNX Runtime does so with ``Cast`` and ``Mul``, but not with ``DequantizeLinear``.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from onesigma.exporters.folding import Array, attributes, nodes_before, readers, replace_graph

_FEWEST = 256  # weights of a part; fewer stay float
_MOST = 127


def shrink(model: onnx.ModelProto, fields: Mapping[str, str]) -> None:
    """Store the weights of what makes ``var`` alone in eight bits, in place.

    Args:
        model: a quantised one.
        fields: the fields of a prediction and their outputs; a plain network has none.
    """
    graph = model.graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    count = readers(graph.node, graph)
    makers = {name: node for node in graph.node for name in node.output}
    head, widths = _head(graph, fields), _widths(model)
    nodes = list[onnx.NodeProto]()
    for node in graph.node:
        stored = node.output[0] in head and _is_stored(node, constants)
        if stored and count[node.input[1]] == 1:
            nodes += _in_parts(node, makers.get(node.input[0]), widths, constants)
        else:
            nodes.append(node)
    replace_graph(model, nodes_before([out.name for out in graph.output], nodes), constants)


def _head(graph: onnx.GraphProto, fields: Mapping[str, str]) -> set[str]:
    """What only ``var`` and the rest of the answer need: no layer, and nothing of the guard."""

    def before(*names: str) -> set[str]:
        ends = [fields[name] for name in names if name in fields]
        return {name for node in nodes_before(ends, graph.node) for name in node.output}

    return before("var") - before("mean", "novelty", "contract")


def _is_stored(node: onnx.NodeProto, constants: Mapping[str, Array]) -> bool:
    """Whether it is a linear layer with its weights by rows, as PyTorch has them."""
    weighed = len(node.input) == 3 and node.input[1] in constants
    return node.op_type == "Gemm" and weighed and attributes(node) == {"transB": 1}


def _widths(model: onnx.ModelProto) -> dict[str, int]:
    """How many columns values have, where the graph says so."""
    graph = shape_inference.infer_shapes(model).graph
    found = {}
    for info in (*graph.value_info, *graph.input, *graph.output):
        sizes = info.type.tensor_type.shape.dim
        if len(sizes) == 2 and sizes[1].dim_value:
            found[info.name] = sizes[1].dim_value
    return found


def _in_parts(
    node: onnx.NodeProto,
    maker: onnx.NodeProto | None,
    widths: Mapping[str, int],
    constants: dict[str, Array],
) -> Iterator[onnx.NodeProto]:
    """One after the other, each on what was joined for it; as a whole if nothing was."""
    parts, weight = [node.input[0]], constants[node.input[1]]
    if maker is not None and maker.op_type == "Concat":
        parts = [*maker.input]
    ends = np.cumsum([widths.get(name, 0) for name in parts])
    if len(parts) == 1 or ends[-1] != weight.shape[1]:
        parts, ends = [node.input[0]], np.array([weight.shape[1]])
    total, out = node.input[2], node.output[0]
    for k, (name, part) in enumerate(zip(parts, np.split(weight, ends[:-1], axis=1), strict=True)):
        made, stored = _store(f"{out}:{k}", part, constants)
        result = out if k == len(parts) - 1 else f"{out}:{k}"
        yield from made
        yield helper.make_node("Gemm", [name, stored, total], [result], transB=1)
        total = result


def _store(
    name: str, weight: Array, constants: dict[str, Array]
) -> tuple[Sequence[onnx.NodeProto], str]:
    """Nodes that make floats of what is stored, and the name of these."""
    whole, steps, values = f"{name}q", f"{name}s", f"{name}w"
    if weight.size < _FEWEST:
        constants[values] = np.ascontiguousarray(weight)
        return [], values
    largest = np.abs(weight).max(1, keepdims=True)
    step = np.maximum(largest / _MOST, 1e-30).astype(np.float32)
    constants |= {whole: np.rint(weight / step).astype(np.int8), steps: step}
    made = [
        helper.make_node("Cast", [whole], [f"{name}c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{name}c", steps], [values]),
    ]
    return made, values
