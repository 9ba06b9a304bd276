"""The head's weights in eight bits of a file. The head itself is computed in float, as before.

    V [z, f, a] + d  →  Vz z + d, then Vf f + that, then Va a + that
    V                →  steps · q, of int8: one step for each row of each part

Parts have steps of their own because their sizes differ; Vz stays float, because it is about the
identity and z is large. What only constants feed runtimes compute once, when they load the file: so
it takes no time per answer.
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
            parts = _in_parts(node, makers.get(node.input[0]), widths, constants)
            nodes += _chain(node, parts, fields["mean"], constants)
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
    constants: Mapping[str, Array],
) -> list[tuple[str, Array]]:
    """What was joined for it, each with its weights; what it reads as a whole if nothing was."""
    weight = constants[node.input[1]]
    parts = [*maker.input] if maker is not None and maker.op_type == "Concat" else []
    ends = np.cumsum([widths.get(name, 0) for name in parts])
    if not parts or ends[-1] != weight.shape[1]:
        return [(node.input[0], weight)]
    return list(zip(parts, np.split(weight, ends[:-1], axis=1), strict=True))


def _chain(
    node: onnx.NodeProto,
    parts: Sequence[tuple[str, Array]],
    mean: str,
    constants: dict[str, Array],
) -> Iterator[onnx.NodeProto]:
    """One layer after the other, each adding to what the one before made."""
    total, out = node.input[2], node.output[0]
    for k, (name, weight) in enumerate(parts):
        result = out if k == len(parts) - 1 else f"{out}:{k}"
        stored = f"{out}:{k}w"
        if name == mean or weight.size < _FEWEST:
            constants[stored] = np.ascontiguousarray(weight)
        else:
            yield from _store(stored, weight, constants)
        yield helper.make_node("Gemm", [name, stored, total], [result], transB=1)
        total = result


def _store(name: str, weight: Array, constants: dict[str, Array]) -> list[onnx.NodeProto]:
    """Integers and steps in the place of floats, and the nodes that make these of them."""
    whole, floats, steps = f"{name}q", f"{name}f", f"{name}s"
    largest = np.abs(weight).max(1, keepdims=True)
    step = np.maximum(largest / _MOST, 1e-30).astype(np.float32)
    constants |= {whole: np.rint(weight / step).astype(np.int8), steps: step}
    return [
        helper.make_node("Cast", [whole], [floats], to=TensorProto.FLOAT),
        helper.make_node("Mul", [floats, steps], [name]),
    ]
