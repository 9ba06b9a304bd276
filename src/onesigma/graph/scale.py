"""Scale: numbers that multiply a variance move into the squared weights.

1. ``c · linear(v, w²)`` becomes ``linear(v, c·w²)``; c a number, or one for each output channel.
2. ``linear(c · v, w²)`` and ``linear(v / c, w²)`` likewise.

A gain, or the 1/q of dropout, then costs a multiplication of the weights, which exporters fold into
a constant, and no pass over the activations. Only where nothing else uses what would change:
in 1. the layer's output before the factor, in 2. the scaled input.
"""

from __future__ import annotations

import torch
from torch import fx

from onesigma.rules.table import RULES

aten = torch.ops.aten
_WEIGHT, _BIAS = 1, 2
_RESHAPES = (aten.flatten.using_ints, aten.view.default, aten.reshape.default)

# Layers whose weights have the output channels first, and the dim of the channels in the output.
WEIGHTS_BY_OUTPUT = {
    aten.linear.default: -1,
    **{conv.default: 1 for conv in (aten.conv1d, aten.conv2d, aten.conv3d)},
    **{conv.padding: 1 for conv in (aten.conv1d, aten.conv2d, aten.conv3d)},
}


def scale_weights(module: fx.GraphModule) -> int:
    """Move scalar factors into weights, in place; returns how many were moved."""
    moved = 0
    for node in list(module.graph.nodes):
        _move_past(node)
    for node in list(module.graph.nodes):
        if not _is_linear_in_variance(node):
            continue
        while len(node.args[0].users) == 1 and (factor := _scalar_factor(node.args[0])):
            scaled = node.args[0]
            node.update_arg(0, scaled.args[0])
            _scale(module.graph, node, factor)
            module.graph.erase_node(scaled)
            moved += 1
        while len(node.users) == 1:
            (scaled,) = node.users
            moving = _scalar_factor(scaled) or _channel_factor(scaled, node)
            if moving is None:
                break
            _scale(module.graph, node, moving)
            scaled.replace_all_uses_with(node)
            module.graph.erase_node(scaled)
            moved += 1
    module.graph.lint()
    module.recompile()
    return moved


def _move_past(node: fx.Node) -> None:
    """``flatten(c · v)`` becomes ``c · flatten(v)``, so that the layer behind it can take c."""
    scaled = node.args[0] if node.args else None
    if node.target not in _RESHAPES or not isinstance(scaled, fx.Node) or len(scaled.users) > 1:
        return
    if _scalar_factor(scaled) is None:
        return
    node.update_arg(0, scaled.args[0])
    node.replace_all_uses_with(scaled, delete_user_cb=lambda user: user is not scaled)
    scaled.update_arg(0, node)
    node.append(scaled)
    scaled.meta = dict(node.meta)


def _is_linear_in_variance(node: fx.Node) -> bool:
    rule = RULES.get(node.target)
    if rule is None or not rule.linear_in_variance or len(node.args) <= _WEIGHT:
        return False
    weight, bias = (*node.args, None)[_WEIGHT : _BIAS + 1]
    if not isinstance(weight, fx.Node) or weight.target is not aten.mul.Tensor:
        return False
    # w · w, as the rules write it: the mean path keeps the very ops of the original network.
    return weight.args[0] is weight.args[1] and bias is None


def _scalar_factor(node: object) -> float | None:
    """c for ``x · c``, 1/c for ``x / c`` with a number c."""
    if not isinstance(node, fx.Node):
        return None
    if node.target not in (aten.mul.Tensor, aten.div.Tensor) or len(node.args) != 2:
        return None
    number = node.args[1]
    if isinstance(number, bool) or not isinstance(number, int | float) or number == 0:
        return None
    return float(number) if node.target is aten.mul.Tensor else 1 / float(number)


def _channel_factor(node: fx.Node, layer: fx.Node) -> fx.Node | None:
    """g for ``layer · g`` with a constant g that has one number for each output channel."""
    if node.target is not aten.mul.Tensor or layer.target not in WEIGHTS_BY_OUTPUT:
        return None
    value, gain = layer.meta.get("val"), node.args[1]
    if value is None or node.args[0] is not layer:
        return None
    if not isinstance(gain, fx.Node) or gain.op != "get_attr":
        return None
    channel = WEIGHTS_BY_OUTPUT[layer.target] % value.dim()
    wanted = (value.shape[channel], *[1] * (value.dim() - 1 - channel))
    return gain if tuple(gain.meta["val"].shape) == wanted else None


def _scale(graph: fx.Graph, linear: fx.Node, factor: float | fx.Node) -> None:
    squared = linear.args[_WEIGHT]
    assert isinstance(squared, fx.Node)
    with graph.inserting_before(linear):
        if isinstance(factor, fx.Node):
            shape = [-1] + [1] * (squared.meta["val"].dim() - 1)
            factor = graph.call_function(aten.reshape.default, (factor, shape))
        weight = graph.call_function(aten.mul.Tensor, (squared, factor))
    weight.meta = dict(squared.meta)
    linear.update_arg(_WEIGHT, weight)
