"""Canonical: nothing in the graph that does nothing.

1. A conversion to the dtype and device that a tensor has already is dropped. It would do nothing
   but hold a model that is moved, or made double, to what it was captured in.
2. Dropout that is on in eval mode is switched off: the graph is the network without noise.
"""

from __future__ import annotations

import torch
from torch import fx

from onesigma.graph.capture import is_site
from onesigma.rules.dropout import RATE_ARGUMENT

aten = torch.ops.aten

_CONVERSIONS = (aten.to.device, aten.to.dtype, aten.to.dtype_layout)


def canonical(module: fx.GraphModule) -> None:
    """Drop, in place."""
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _CONVERSIONS and _converts_nothing(node):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
            continue
        if is_site(node):
            node.args = (*node.args[: RATE_ARGUMENT + 1], False)
    module.recompile()


def _converts_nothing(node: fx.Node) -> bool:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    values = [n.meta.get("val") for n in (source, node)]
    kinds = [(v.dtype, v.device) for v in values if isinstance(v, torch.Tensor)]
    return len(kinds) == 2 and kinds[0] == kinds[1]
