"""Norms and zero padding become part of the layer they stand beside; the answers stay the same.

    BatchNormalization(Conv(x, w, b))  Conv(x, f w, f (b − mean) + shift), f = weight / √(var + ε)
    Conv(Pad(x))                       Conv(x), with that padding as its own

Runtimes do this at load. What is quantised has to have it done: a range per layer, not two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model, folded; its names of inputs and outputs, and its metadata, are kept."""
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    graph = folded.graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    nodes = _fold_pads(_fold_norms(list(graph.node), constants, graph), constants, graph)
    replace_graph(folded, nodes, constants)
    return folded


def replace_graph(
    model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto], constants: dict[str, Array]
) -> None:
    """Other nodes and constants, in place; constants that no node reads are left out."""
    nodes = list(nodes)
    read = {name for node in nodes for name in node.input}
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants.items() if name in read
    )


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def readers(nodes: Iterable[onnx.NodeProto], graph: onnx.GraphProto) -> Counter[str]:
    """How often each value is read; being an output of the graph counts."""
    return Counter(
        [*(name for node in nodes for name in node.input), *(out.name for out in graph.output)]
    )


def nodes_before(ends: Iterable[str], nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Those that some values are computed by, in order."""
    wanted, found = {*ends}, list[onnx.NodeProto]()
    for node in reversed(nodes):
        if wanted & {*node.output}:
            wanted |= {*node.input}
            found.append(node)
    return found[::-1]


def _fold_norms(
    nodes: list[onnx.NodeProto], constants: dict[str, Array], graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    count, made, kept = readers(nodes, graph), dict[str, onnx.NodeProto](), list[onnx.NodeProto]()
    for node in nodes:
        layer = made.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if layer is not None and count[node.input[0]] == 1 and _is_foldable(layer, constants):
            weight, bias = _with_norm(layer, node, constants)
            names = [f"{node.output[0]}:w", f"{node.output[0]}:b"]
            constants |= dict(zip(names, (weight, bias), strict=True))
            layer.input[:] = [layer.input[0], *names]
            layer.output[0] = node.output[0]
            made[node.output[0]] = layer
            continue
        made |= dict.fromkeys(node.output, node)
        kept.append(node)
    return kept


def _is_foldable(layer: onnx.NodeProto, constants: dict[str, Array]) -> bool:
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    usual = all(attributes(layer).get(name, value) == value for name, value in plain.items())
    constant = all(name in constants for name in layer.input[1:])
    return layer.op_type in ("Conv", "Gemm") and usual and constant


def _with_norm(
    layer: onnx.NodeProto, norm: onnx.NodeProto, constants: dict[str, Array]
) -> tuple[Array, Array]:
    scale, shift, mean, var = (constants[name].astype(np.float64) for name in norm.input[1:])
    factor = scale / np.sqrt(var + attributes(norm).get("epsilon", 1e-5))
    weight = constants[layer.input[1]].astype(np.float64)
    axis = 1 if layer.op_type == "Gemm" and not attributes(layer).get("transB") else 0
    along = np.expand_dims(factor, [k for k in range(weight.ndim) if k != axis])
    bias = constants[layer.input[2]] if len(layer.input) > 2 else 0.0
    folded = (along * weight, factor * (bias - mean) + shift)
    return folded[0].astype(np.float32), folded[1].astype(np.float32)


def _fold_pads(
    nodes: list[onnx.NodeProto], constants: dict[str, Array], graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    count, pads = readers(nodes, graph), dict[str, onnx.NodeProto]()
    for node in nodes:
        if node.op_type == "Pad" and _pads_space_with_zeros(node, constants):
            pads[node.output[0]] = node
        pad = pads.get(node.input[0]) if node.op_type == "Conv" else None
        if pad is None or count[pad.output[0]] > 1 or "auto_pad" in attributes(node):
            continue
        added = constants[pad.input[1]].tolist()
        half = len(added) // 2
        space = [*added[2:half], *added[half + 2 :]]
        own = attributes(node).get("pads", [0] * len(space))
        rest = [each for each in node.attribute if each.name != "pads"]
        del node.attribute[:]
        node.attribute.extend(rest)
        both = [a + b for a, b in zip(own, space, strict=True)]
        node.attribute.append(helper.make_attribute("pads", both))
        node.input[0] = pad.input[0]
    read = readers(nodes, graph)
    return [node for node in nodes if any(read[name] for name in node.output)]


def _pads_space_with_zeros(node: onnx.NodeProto, constants: dict[str, Array]) -> bool:
    pads = constants.get(node.input[1])
    fill = constants.get(node.input[2]) if len(node.input) > 2 else np.zeros(1)
    if attributes(node).get("mode", b"constant") != b"constant" or pads is None or fill is None:
        return False
    rows_and_channels = [*pads[:2], *pads[len(pads) // 2 :][:2]]
    return not fill.any() and not any(rows_and_channels) and bool((pads >= 0).all())
