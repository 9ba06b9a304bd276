"""Split: what no noise reaches, and the rest, as two graphs on the same weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, fx

from onesigma.graph.capture import is_site


def nodes_behind(graph: fx.Graph, sources: Iterable[fx.Node]) -> set[fx.Node]:
    """The sources, and all ops that read of them."""
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


def last_dropout(graph: fx.Graph) -> fx.Node | None:
    """The dropout that all noise passes through; None if some noise takes another way."""
    sites: list[fx.Node] = [node for node in graph.nodes if is_site(node)]
    if not sites or crossing(graph, nodes_behind(graph, sites[-1:])) != [sites[-1].args[0]]:
        return None
    return sites[-1]


def has_rows(node: fx.Node) -> bool:
    """Whether its first dimension is that of the inputs: a row for each of them."""
    first = next(n for n in node.graph.nodes if n.op == "placeholder")
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
    first, second = fx.Graph(), fx.Graph()
    cut = crossing(graph, behind)
    before: dict[fx.Node, fx.Node] = {}
    after = {node: second.placeholder(node.name) for node in cut}
    for node in graph.nodes:
        if node.op == "output":
            first.output(tuple(before[n] for n in cut))
            second.node_copy(node, after.__getitem__)
            continue
        if node.op == "get_attr" or node in behind:
            after[node] = second.node_copy(node, after.__getitem__)
        if node not in behind:
            before[node] = first.node_copy(node, before.__getitem__)
    for part in (first, second):
        part.eliminate_dead_code()
    return fx.GraphModule(module, first), fx.GraphModule(module, second)
