"""Append: a second graph that reads nodes of the first, as one graph on the same tensors."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from torch import fx


def append(
    first: fx.GraphModule, second: fx.GraphModule, read: Sequence[fx.Node], name: str
) -> fx.GraphModule:
    """What the first returns, and then what the second makes of nodes of the first.

    ``read`` has a node of the first for each input of the second, whose tensors are found under
    ``name`` afterwards.
    """
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    outputs = graph.graph_copy(first.graph, copies)
    tensors = {str(n.target): tensor_of(first, n) for n in graph.nodes if n.op == "get_attr"}
    inputs = second.graph.find_nodes(op="placeholder")
    theirs = {node: copies[fed] for node, fed in zip(inputs, read, strict=True)}
    more = graph.graph_copy(second.graph, theirs)
    for node, copy in theirs.items():
        if node.op == "get_attr":
            copy.target = f"{name}.{node.target}"
            tensors[copy.target] = tensor_of(second, node)
    graph.output((*outputs, *more))  # type: ignore[misc]
    return fx.GraphModule(tensors, graph)


def tensor_of(module: fx.GraphModule, node: fx.Node) -> object:
    """The tensor that a node of the kind ``get_attr`` stands for."""
    return attrgetter(str(node.target))(module)
