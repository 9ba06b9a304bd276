"""Fold: what an input prior makes constant is computed once.

The prior is the same for every input, so the variance it causes is a constant up to the first step
that depends on the data. Every node that depends on the prior and otherwise only on weights is
evaluated now and becomes a buffer. What weights alone make is left: w² stays an op on the shared
weight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from onesigma.graph.append import tensor_of


def fold(module: fx.GraphModule, seed: str) -> int:
    """Evaluate in place all that follows from the buffer ``seed`` alone; returns how many ops."""
    values = _constants(module)
    from_seed: set[fx.Node] = set()
    for node in values:
        is_seed = node.op == "get_attr" and str(node.target).endswith(seed)
        if is_seed or any(n in from_seed for n in node.all_input_nodes):
            from_seed.add(node)
    folded = sum(node.op == "call_function" for node in from_seed)
    last = [n for n in values if n in from_seed and any(user not in from_seed for user in n.users)]
    for index, node in enumerate(last):
        if isinstance(values[node], Tensor):
            _make_constant(module, node, f"prior_var_{index}", values[node])
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    return folded


def _constants(module: fx.GraphModule) -> dict[fx.Node, Any]:
    """The value of every node that depends on no input, in order."""
    values: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            values[node] = tensor_of(module, node)
        elif node.op == "call_function" and all(n in values for n in node.all_input_nodes):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            with torch.no_grad():
                values[node] = node.target(*args, **kwargs)
    return values


def _make_constant(module: fx.GraphModule, node: fx.Node, name: str, value: Tensor) -> None:
    module.register_buffer(name, value.detach().clone())
    with module.graph.inserting_before(node):
        constant = module.graph.get_attr(name)
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant)
