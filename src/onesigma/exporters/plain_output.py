"""The original network's own output beside the converted one's, in one graph.

Writers share what both compute alike: with ``mean="frozen"`` that is all of it, else what comes
before the first dropout; the rest of the plain network is computed a second time.
"""

from __future__ import annotations

from operator import attrgetter

from torch import fx

from onesigma.converted import SOURCE


def beside(network: fx.GraphModule, plain: fx.GraphModule) -> fx.GraphModule:
    """A graph that computes both on the same inputs; the output of ``plain`` comes last."""
    graph = fx.Graph()
    outputs = list(graph.graph_copy(network.graph, {}))  # type: ignore[arg-type]
    tensors = {n.target: _tensor(network, n) for n in graph.nodes if n.op == "get_attr"}
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    theirs = [node for node in plain.graph.nodes if node.op == "placeholder"]
    copies = dict(zip(theirs, inputs, strict=True))
    (own,) = graph.graph_copy(plain.graph, copies)  # type: ignore[misc]
    for node, copy in copies.items():
        if node.op == "get_attr":
            copy.target = f"{SOURCE}.{node.target}"  # as the network calls the weights they share
            tensors[copy.target] = _tensor(plain, node)
    graph.output((*outputs, own))
    return fx.GraphModule(tensors, graph)


def _tensor(module: fx.GraphModule, node: fx.Node) -> object:
    return attrgetter(str(node.target))(module)
