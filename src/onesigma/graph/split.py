"""Split: a graph as several on the same weights, such as what no noise reaches, and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, fx

from onesigma.graph.capture import is_site


def nodes_behind(graph: fx.Graph, sources: Iterable[fx.Node]) -> set[fx.Node]:
    """The sources, and all ops that depend on them."""
    behind = set(sources)
    for node in graph.nodes:
        if node.op != "output" and behind.intersection(node.all_input_nodes):
            behind.add(node)
    return behind


def nodes_behind_noise(graph: fx.Graph) -> set[fx.Node]:
    return nodes_behind(graph, filter(is_site, graph.nodes))


def crossing(graph: fx.Graph, behind: set[fx.Node]) -> list[fx.Node]:
    """What those nodes and the output read of all others; weights do not count."""
    readers = [node for node in graph.nodes if node in behind or node.op == "output"]
    read = dict.fromkeys(n for node in readers for n in node.all_input_nodes)
    return [n for n in read if n not in behind and n.op != "get_attr"]


def weights_alone(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that depend on no input: weights, and what is made of them alone."""
    behind = nodes_behind(graph, graph.find_nodes(op="placeholder"))
    return {node for node in graph.nodes if node not in behind and node.op != "output"}


def last_dropout(graph: fx.Graph) -> fx.Node | None:
    """The dropout that all noise passes through; None if some noise takes another way."""
    sites: list[fx.Node] = [node for node in graph.nodes if is_site(node)]
    if not sites or crossing(graph, nodes_behind(graph, sites[-1:])) != [sites[-1].args[0]]:
        return None
    return sites[-1]


def has_rows(node: fx.Node) -> bool:
    """Whether its first dimension is that of the inputs: a row for each of them."""
    first = node.graph.find_nodes(op="placeholder")[0]
    inputs, value = (n.meta.get("val") for n in (first, node))
    if not isinstance(value, Tensor) or not isinstance(inputs, Tensor) or not value.dim():
        return False
    rows = inputs.shape[0]
    # A batch that is a plain number could be the size of something else, too.
    return isinstance(rows, torch.SymInt) and str(value.shape[0]) == str(rows)


def split(module: fx.GraphModule, behind: set[fx.Node]) -> tuple[fx.GraphModule, fx.GraphModule]:
    """All that is not behind, and what is: the second takes what the first returns.

    What crosses has a row for each input. If something else would, as the size of the batch or what
    was computed from weights alone, the first part does nothing.
    """
    graph = module.graph
    if not all(map(has_rows, crossing(graph, behind))):
        behind = {n for n in graph.nodes if n.op == "call_function"}
    first, second = cut(module, [behind])
    return first, second


def cut(module: fx.GraphModule, parts: Sequence[set[fx.Node]]) -> list[fx.GraphModule]:
    """One graph after the other on the same weights: each takes what the one before it returns.

    ``parts`` are the nodes behind each cut, those of the first cut first. Names are kept. What is
    made of weights alone is computed by each that reads it.
    """
    graph, fixed = module.graph, weights_alone(module.graph)
    inputs = graph.find_nodes(op="placeholder")
    every = {node for node in graph.nodes if node.op == "call_function"}
    crossed = (crossing(graph, behind) for behind in parts)
    taken = [inputs, *([node for node in each if node not in fixed] for each in crossed)]
    pieces = list[fx.GraphModule]()
    for given, here, later in zip(taken, [every, *parts], [*parts, set()], strict=True):
        piece = fx.Graph()
        copies = {node: piece.placeholder(node.name) for node in given}
        for node in graph.nodes:
            if node in fixed or (node in here and node not in later):
                copies[node] = piece.node_copy(node, copies.__getitem__)
        if later:
            piece.output(tuple(copies[node] for node in taken[len(pieces) + 1]))
        else:
            piece.node_copy(graph.output_node(), copies.__getitem__)
        piece.eliminate_dead_code()
        pieces.append(fx.GraphModule(module, piece))
    return pieces
