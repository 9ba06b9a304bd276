"""Eager: a graph that PyTorch runs with less of Python between its ops.

The targets of a graph are overloads, such as ``aten.relu.default``: exactly one op, as saving
and exporting need it. To call one takes a microsecond longer than to call ``torch.relu``, which is
as long as the op itself on a small tensor. So the code that runs calls the latter, while the graph
stays as it is.
"""

from __future__ import annotations

from types import BuiltinFunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx


def quicken(module: fx.GraphModule) -> None:
    """Let the module's ``forward`` call functions of torch where there is one of the same name."""
    quick = fx.Graph()
    quick.output(quick.graph_copy(module.graph, {}))
    for node in quick.nodes:
        if node.op == "call_function":
            node.target = _function_of(node.target)
    # Each GraphModule has a class of its own, so that this is the forward of no other.
    type(module).forward = type(fx.GraphModule(module, quick)).forward


def _function_of(target: Any) -> Any:
    """The builtin that parses its arguments in C++, with the signature of the op."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return target
    name = target.overloadpacket.__name__
    found = (getattr(place, name, None) for place in (torch, F))
    return next((f for f in found if isinstance(f, BuiltinFunctionType)), target)
