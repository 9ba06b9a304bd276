"""Fold: what no input reaches is computed once, when the file is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma.errors import ModelError
from onesigma.importers.onnx.graph import Array, Graph, Node
from onesigma.importers.onnx.module import OnnxModule, apply
from onesigma.importers.onnx.ops import NUMBERS, OPS
from onesigma.importers.onnx.ops.numbers import MAX_ELEMENTS
from onesigma.importers.onnx.ops.table import as_tensor

_CONSTANTS = ("value", "value_float", "value_floats", "value_int", "value_ints")


def fold(graph: Graph) -> Graph:
    """The graph without the nodes whose inputs are all constants."""
    constants, kept = dict(graph.constants), []
    for node in graph.nodes:
        if node.op == "Constant":
            constants[node.outputs[0]] = _constant(node)
        elif all(name in constants for name in node.inputs if name):
            values = [constants.get(name) for name in node.inputs]
            constants |= zip(node.outputs, _computed(node, graph.opset, values), strict=False)
        else:
            kept.append(node)
    if graph.output in constants:
        raise ModelError(f"{graph.file}: its output does not depend on its input.")
    return _with_open_batch(graph.with_nodes(kept, constants))


def _constant(node: Node) -> Array:
    for name in _CONSTANTS:
        if name in node.attributes:
            value: Any = node.attributes[name]
            dtypes = {"value": None, "value_int": np.int64, "value_ints": np.int64}
            return np.asarray(value, dtypes.get(name, np.float32))
    raise ModelError(f"{node} holds no numbers.")


def _computed(node: Node, opset: int, values: list[Array | None]) -> list[Array]:
    if node.op not in NUMBERS:
        # First without memory, to see how much of it this would take.
        keeps = OPS[node.op].keeps_numbers
        weightless = [
            v if v is None or keeps(i, v) else as_tensor(v, "meta") for i, v in enumerate(values)
        ]
        require_small(node, apply(node, opset, weightless))
    return [np.asarray(result) for result in apply(node, opset, values)]


def require_small(node: Node, results: tuple[Any, ...]) -> None:
    """Refuse what no network needs and this machine may not have the memory for."""
    for result in results:
        if isinstance(result, Tensor) and result.numel() > MAX_ELEMENTS:
            raise ModelError(f"{node} makes a tensor of shape {tuple(result.shape)}: too large.")


def _with_open_batch(graph: Graph) -> Graph:
    """Where the file fixes the batch, so do its Reshapes; let them take any.

    A first size that is the batch becomes −1, what is left, or 0, as it was. For that batch nothing
    changes; for others the comparison with ONNX Runtime tells whether the rows stay what they are.
    """
    if graph.batch is None:
        return graph
    constants, nodes = dict(graph.constants), []
    for node in graph.nodes:
        shape = constants.get(node.inputs[1]) if node.op == "Reshape" else None
        sizes = [] if shape is None else [int(n) for n in shape.reshape(-1)]
        if len(sizes) > 1 and sizes[0] == graph.batch and 0 not in sizes:
            name = f"{node.inputs[1]}:open"
            constants[name] = np.array([0 if -1 in sizes else -1, *sizes[1:]])
            node = replace(node, inputs=(node.inputs[0], name), attributes={})
        nodes.append(node)
    return graph.with_nodes(nodes, constants)


@torch.no_grad()
def outline(graph: Graph, batch: int) -> dict[str, Tensor]:
    """Every tensor of the graph, its shape and dtype known and no memory taken for any.

    Raises:
        ModelError: a node cannot be computed, or would make a tensor out of all proportion.
    """
    module = OnnxModule(graph).to("meta")
    inputs = (x.to("meta") for x in module.examples(batch))
    values = module.values(*inputs)
    for step in module.steps():
        require_small(step.node, tuple(values.get(name) for name in step.node.outputs))
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
