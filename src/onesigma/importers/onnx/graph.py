"""The graph of an ONNX file in plain Python: nodes in order, constants, inputs, one output.

What a runtime would take on trust is checked here: every name made once and before its use, sizes
known but for the batch, one output.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt

from onesigma.errors import FileError, ModelError, UnsupportedOp
from onesigma.importers.onnx.file import array, numpy_dtype, opset_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Node:
    """One op: its attributes are the keywords of its function, '' an input that is left out."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"node '{self.name}' ({self.op})"


@dataclass(frozen=True)
class Input:
    """What the model takes; None stands for any batch."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Graph:
    """A whole file. ``batch`` is None if it is open, else the number the file fixes it at."""

    file: str
    opset: int
    inputs: tuple[Input, ...]
    output: str
    nodes: tuple[Node, ...]
    constants: dict[str, Array]

    @property
    def batch(self) -> int | None:
        return self.inputs[0].shape[0]

    def with_nodes(self, nodes: list[Node], constants: dict[str, Array]) -> Graph:
        return replace(self, nodes=tuple(nodes), constants=constants)


def parse(model: Any, file: str) -> Graph:
    """Read and check the graph of a model that holds all its weights.

    Raises:
        FileError: names that are undefined or made twice, nodes out of order.
        ModelError: sizes other than the batch left open, several outputs, NaN weights.
        UnsupportedOp: control flow, ops of a foreign domain.
    """
    graph = model.graph
    _check_text(graph, file)
    if graph.sparse_initializer:
        raise UnsupportedOp(f"{file} holds sparse weights: store them densely.")
    constants = {t.name: array(t, f"{file}, weight '{t.name}'") for t in graph.initializer}
    given = [value for value in graph.input if value.name not in constants]
    if len(constants) < len(graph.initializer):
        raise FileError(f"{file}: two weights have the same name.")
    nodes = _nodes(graph, file)
    _check_names(nodes, [*constants, *(value.name for value in given)], file)
    output = _output(graph, nodes, file)
    return Graph(
        file,
        opset_of(model),
        _inputs(given, file),
        output,
        tuple(_needed(nodes, output)),
        constants,
    )


def _check_text(graph: Any, file: str) -> None:
    """Protobuf hands out what is no UTF-8 as bytes, and lets it pass."""
    named = (*graph.node, *graph.initializer, *graph.input, *graph.output)
    names = [each.name for each in named]
    for node in graph.node:
        names += [node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise FileError(f"{file}: the name {wrong[0]!r} is no text; the file is damaged.")


def _nodes(graph: Any, file: str) -> list[Node]:
    nodes: dict[str, Node] = {}
    for each in graph.node:
        if not each.output:
            raise FileError(f"{file}: node '{each.name}' ({each.op_type}) has no output.")
        name = each.name or each.output[0]  # ONNX demands no names
        if name in nodes:
            raise FileError(f"{file}: two nodes are called '{name}'.")
        node = Node(name, each.op_type, tuple(each.input), tuple(each.output))
        if each.domain not in ("", "ai.onnx"):
            raise UnsupportedOp(f"{file}: {node} is of domain '{each.domain}', no standard op.")
        attributes = {a.name: _attribute(a, f"{file}, {node}") for a in each.attribute}
        nodes[name] = replace(node, attributes=attributes)
    return list(nodes.values())


def _attribute(attribute: Any, where: str) -> Any:
    from onnx import AttributeProto
    from onnx.helper import get_attribute_value

    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        return array(attribute.t, where)
    if kind in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        raise UnsupportedOp(f"{where} has branches or loops; only straight graphs are converted.")
    plain = (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.FLOATS, AttributeProto.INTS)
    if kind == AttributeProto.STRING:
        return attribute.s.decode(errors="replace")
    if kind not in plain:
        raise FileError(f"{where}: attribute '{attribute.name}' is of a kind that is not read.")
    value = get_attribute_value(attribute)
    return list(value) if kind in (AttributeProto.FLOATS, AttributeProto.INTS) else value


def _check_names(nodes: list[Node], given: list[str], file: str) -> None:
    maker = {name: node for node in nodes for name in node.outputs}
    if len(given) > len(set(given)):
        raise FileError(f"{file}: two inputs have the same name.")
    made = {*given, ""}
    for node in nodes:
        for name in node.inputs:
            if name not in made and name in maker:
                raise FileError(
                    f"{file}: {node} uses '{name}' before {maker[name]} makes it: the nodes are "
                    "out of order, or go in a circle."
                )
            if name not in made:
                raise FileError(f"{file}: {node} uses '{name}', which nothing makes.")
        for name in node.outputs:
            if name and name in made:
                raise FileError(f"{file}: {node} makes '{name}', which is there already.")
            made.add(name)


def _output(graph: Any, nodes: list[Node], file: str) -> str:
    names = [str(value.name) for value in graph.output]
    if len(names) != 1:
        raise ModelError(
            f"{file} has {len(names)} outputs ({', '.join(names)}); one is needed, the logits or "
            "their softmax. Cut it out: onnx.utils.extract_model(file, new_file, inputs, [output])."
        )
    if names[0] not in {name for node in nodes for name in node.outputs}:
        raise FileError(f"{file}: no node makes its output '{names[0]}'.")
    return names[0]


def _inputs(given: list[Any], file: str) -> tuple[Input, ...]:
    inputs = tuple(_input(value, f"{file}, input '{value.name}'") for value in given)
    if not inputs:
        raise ModelError(f"{file} takes no input.")
    if len({each.shape[0] for each in inputs}) > 1:
        raise ModelError(f"{file}: its inputs disagree about the batch, their first dimension.")
    return inputs


def _input(value: Any, where: str) -> Input:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise ModelError(f"{where} is no tensor of a known shape.")
    dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    words = ", ".join(str(d.dim_param or d.dim_value or "?") for d in tensor.shape.dim)
    if len(dims) < 2 or None in dims[1:]:
        raise ModelError(
            f"{where} has shape ({words}). The first dimension must be the batch, and the others "
            "fixed: export the model for the size that you run it at."
        )
    if any(n is not None and n < 1 for n in dims):
        raise ModelError(f"{where} has shape ({words}): there is nothing in it.")
    return Input(value.name, tuple(dims), numpy_dtype(tensor.elem_type, where))


def _needed(nodes: list[Node], output: str) -> list[Node]:
    """The nodes that the output depends on."""
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if wanted & set(node.outputs):
            wanted |= {name for name in node.inputs if name}
            kept.append(node)
    return kept[::-1]
