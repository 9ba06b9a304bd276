"""Join norms: a BatchNorm behind a layer becomes part of its weights.

    g · (w ∗ x + b − mean) + β  =  (g·w) ∗ x + (g·(b − mean) + β),      g = γ / √(var + eps)

For a student only, whose layers have weights of their own: an op less to run and to learn. Not
where something else uses the layer's output, or its weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from onesigma.graph.append import tensor_of
from onesigma.graph.scale import WEIGHTS_BY_OUTPUT

aten = torch.ops.aten
_WEIGHT, _BIAS = 1, 2


@torch.no_grad()
def join_norms(module: fx.GraphModule) -> int:
    """Rewrite in place, with new weights; returns how many norms are gone."""
    joined = 0
    for norm in list(module.graph.nodes):
        layer: Any = norm.args[0] if norm.target is aten.batch_norm.default else None
        if layer is None or not _joins(layer, norm):
            continue
        weight, bias = layer.args[_WEIGHT], (*layer.args, None)[_BIAS]
        nodes = (weight, bias, *norm.args[1:5])
        tensors: Any = [None if node is None else tensor_of(module, node) for node in nodes]
        w, b, gamma, beta, mean, var = tensors
        new = fuse_conv_bn_weights(w, b, mean, var, norm.args[7], gamma, beta)
        parts = []
        for kind, tensor in zip(("weight", "bias"), new, strict=True):
            name = f"{norm.name}_{kind}"
            setattr(module, name, nn.Parameter(tensor.detach(), requires_grad=False))
            with module.graph.inserting_before(layer):
                parts.append(module.graph.get_attr(name))
        layer.args = (layer.args[0], *parts, *layer.args[_BIAS + 1 :])
        norm.replace_all_uses_with(layer)
        module.graph.erase_node(norm)
        joined += 1
    module.graph.eliminate_dead_code()
    module.recompile()
    return joined


def _joins(layer: Any, norm: fx.Node) -> bool:
    """Whether the norm is in eval mode, right behind a layer that nothing else looks at."""
    if layer.target not in WEIGHTS_BY_OUTPUT or len(layer.users) > 1 or norm.args[5]:
        return False
    # A linear layer of a sequence has its channels last, and the norm does not look there.
    aligned = layer.target is not aten.linear.default or layer.meta["val"].dim() == 2
    tensors: Any = (*norm.args[1:5], *layer.args[_WEIGHT : _BIAS + 1])
    return aligned and all(node is None or node.op == "get_attr" for node in tensors)
