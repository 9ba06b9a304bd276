"""Inline: nested graphs become part of the one graph that is walked.

Code under ``torch.no_grad()`` or ``torch.set_grad_enabled()`` is captured as a call of a nested
graph; its ops, dropout among them, are lifted into the outer graph. Whether gradients are recorded
there does not matter to the values. Other nested graphs (``torch.cond``) stay, and are refused
later if anything uncertain reaches them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

_WRAPPER = torch.ops.higher_order.wrap_with_set_grad_enabled


def inline(module: fx.GraphModule) -> None:
    """Inline nested graphs in place, innermost last, until none is left."""
    while calls := [n for n in module.graph.nodes if n.target is _WRAPPER]:
        for call in calls:
            _inline(module, call)
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()


def _inline(module: fx.GraphModule, call: fx.Node) -> None:
    _, nested_name, *arguments = call.args
    assert isinstance(nested_name, fx.Node)
    nested = module.get_submodule(str(nested_name.target))
    assert isinstance(nested, fx.GraphModule)
    splice(module.graph, call, nested.graph, arguments)


def splice(
    graph: fx.Graph, call: fx.Node, nested: fx.Graph, arguments: Sequence[Any]
) -> set[fx.Node]:
    """Put a graph in the place of a node, with these values for its inputs; returns its nodes."""
    values = dict(zip(nested.find_nodes(op="placeholder"), arguments, strict=True))
    with graph.inserting_before(call):
        results: Any = graph.graph_copy(nested, values)
    new = {node for node in values.values() if node not in arguments}
    for node in new:  # it stands where the call stood, unless it says otherwise
        node.meta = {**call.meta, **node.meta}
    if isinstance(results, fx.Node):
        call.replace_all_uses_with(results)
    else:
        for taken in list(call.users):
            assert taken.target is operator.getitem
            taken.replace_all_uses_with(results[taken.args[1]])
            graph.erase_node(taken)
    graph.erase_node(call)
    return new
