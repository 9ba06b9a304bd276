"""Canonical: one name for one op, and no conversion that converts nothing.

1. PyTorch has second names for some ops (``torch.subtract``); the rules know the first.
2. A conversion to the dtype and device that a tensor has already is dropped. It would do nothing
   but hold a model that is moved, or made double, to what it was captured in.
3. ``addmm`` with a bias per column is the linear layer that it computes, to the last bit.
4. Dropout that is on in eval mode is switched off: the graph is the network without noise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from onesigma.graph.capture import is_site
from onesigma.rules.dropout import RATE_ARGUMENT

aten = torch.ops.aten

_FIRST_NAMES: dict[Any, Any] = {
    aten.absolute.default: aten.abs.default,
    aten.clip.default: aten.clamp.default,
    aten.concat.default: aten.cat.default,
    aten.concatenate.default: aten.cat.default,
    aten.divide.Scalar: aten.div.Scalar,
    aten.divide.Tensor: aten.div.Tensor,
    aten.divide_.Tensor: aten.div_.Tensor,
    aten.moveaxis.int: aten.movedim.int,
    aten.multiply.Scalar: aten.mul.Scalar,
    aten.multiply.Tensor: aten.mul.Tensor,
    aten.multiply_.Tensor: aten.mul_.Tensor,
    aten.negative.default: aten.neg.default,
    aten.subtract.Scalar: aten.sub.Scalar,
    aten.subtract.Tensor: aten.sub.Tensor,
    aten.subtract_.Tensor: aten.sub_.Tensor,
    aten.swapaxes.default: aten.transpose.int,
    aten.swapdims.default: aten.transpose.int,
}


# Ways to turn a matrix, with the arguments that do so.
_TURNS: dict[Any, list[tuple[Any, ...]]] = {
    aten.t.default: [()],
    aten.numpy_T.default: [()],
    aten.transpose.int: [(0, 1), (1, 0), (-1, -2), (-2, -1)],
    aten.permute.default: [([1, 0],)],
}
_CONVERSIONS = (aten.to.device, aten.to.dtype, aten.to.dtype_layout)


def canonical(module: fx.GraphModule) -> None:
    """Rename and drop, in place."""
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _CONVERSIONS and _converts_nothing(node):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
            continue
        node.target = _FIRST_NAMES.get(node.target, node.target)
        if node.target is aten.addmm.default and not node.kwargs:
            _make_linear(module.graph, node)
        if is_site(node):
            node.args = (*node.args[: RATE_ARGUMENT + 1], False)
    module.graph.eliminate_dead_code()
    module.recompile()


def _make_linear(graph: fx.Graph, node: fx.Node) -> None:
    bias, x, weight = (n for n in node.args if isinstance(n, fx.Node))
    if bias.meta["val"].dim() != 1:
        return
    turned = weight.args[0]
    if weight.args[1:] not in _TURNS.get(weight.target, []):
        with graph.inserting_before(node):
            turned = graph.call_function(aten.t.default, (weight,))
        turned.meta = {**weight.meta, "val": weight.meta["val"].t()}
    node.target, node.args = aten.linear.default, (x, turned, bias)


def _converts_nothing(node: fx.Node) -> bool:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    values = [n.meta.get("val") for n in (source, node)]
    kinds = [(v.dtype, v.device) for v in values if isinstance(v, torch.Tensor)]
    return len(kinds) == 2 and kinds[0] == kinds[1]
