"""Functionalize: in-place ops become ordinary ones.

1. ``x.relu_()`` becomes ``y = relu(x)``, and every later use of x becomes a use of y.
2. That is right only if no other view of the same memory is read later. If one is, the model is
   refused with its source line: guessing would silently compute something else.

torch's own functionalization is not used, for it decomposes, and eval dropout would be gone.
"""

from __future__ import annotations

import torch
from torch import fx

from onesigma.errors import UnsupportedOp
from onesigma.graph.capture import functional_form, is_site
from onesigma.graph.locate import describe


def functionalize(module: fx.GraphModule) -> None:
    """Replace in-place ops, in place."""
    order = {node: index for index, node in enumerate(module.graph.nodes)}
    for node in list(module.graph.nodes):
        target = functional_form(node.target)
        if node.op != "call_function" or target is node.target:
            _refuse_other_writes(node)
            continue
        written = node.args[0]
        assert isinstance(written, fx.Node)
        for alias in _aliases(written, beyond=node) - {written}:
            if any(order[user] > order[node] for user in alias.users):
                raise UnsupportedOp(
                    f"{describe(node)} writes into memory that {describe(alias)} shares and that "
                    "is read again later. Write it without the in-place op: x = f(x)."
                )
        node.target = target
        later = [user for user in written.users if order[user] > order[node]]
        for user in later:
            user.replace_input_with(written, node)
    module.recompile()


def _refuse_other_writes(node: fx.Node) -> None:
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
        raise UnsupportedOp(
            f"{describe(node)} writes into its argument. Write it without the in-place op."
        )


def _aliases(node: fx.Node, *, beyond: fx.Node) -> set[fx.Node]:
    """All nodes that may share memory with ``node``, but for those made from ``beyond``."""
    base = node
    while _is_view(base):
        assert isinstance(base.args[0], fx.Node)
        base = base.args[0]
    found, queue = {base}, [base]
    while queue:
        for user in queue.pop().users:
            if user not in found and user is not beyond and _is_view(user):
                found.add(user)
                queue.append(user)
    return found


def _is_view(node: fx.Node) -> bool:
    """Whether the op returns (a part of) its first argument. Eval dropout returns it whole."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.args:
        return False
    if is_site(node):
        return True
    first = node.target._schema.arguments[0]
    return first.alias_info is not None and isinstance(node.args[0], fx.Node)
