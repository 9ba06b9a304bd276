"""Where time lies in an input: last, as convolutions have it, or before the channels.

Recurrent layers and attention take inputs (instants, channels). What fails in a sensor fails along
time, and a channel is what has a name. So it matters which is which, and it is found in

1. how many channels were named, if only one reading has so many;
2. the first layer that mixes channels: a recurrent or linear one has them last, a convolution in
   dim 1. A linear layer mixes instants in some networks: it counts if there are more of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.graph.capture import RECURRENT

aten = torch.ops.aten

_CONVOLUTIONS = {getattr(aten, f"conv{dims}d").default for dims in (1, 2, 3)}
_LAST = {aten.linear.default, aten.layer_norm.default}


def time_dims(
    network: fx.GraphModule, inputs: Sequence[Tensor], channels: int | None = None
) -> list[int]:
    """The dim of time in each input; ``channels`` is how many were named."""
    sources = network.graph.find_nodes(op="placeholder")
    return [_time_dim(node, x.shape, channels) for node, x in zip(sources, inputs, strict=True)]


def _time_dim(source: fx.Node, shape: Sequence[int], channels: int | None) -> int:
    last = len(shape) - 1
    if last < 2:
        return last
    if channels is not None and channels not in (shape[1], prod(shape[1:-1])):
        behind = (k - 1 for k in range(2, len(shape)) if prod(shape[k:]) == channels)
        return next(behind, last)
    named_otherwise = channels not in (None, prod(shape[2:]))
    return 1 if _channels_last(source, shape) and not named_otherwise else last


def _channels_last(source: fx.Node, shape: Sequence[int]) -> bool:
    """Whether the first layer that mixes channels finds them in the last dim of the input."""
    last = len(shape) - 1
    orders: dict[fx.Node, list[int]] = {source: [*range(len(shape))]}
    for node in source.graph.nodes:
        given = node.args[0] if node.args else None
        order = orders.get(given) if isinstance(given, fx.Node) else None
        if order is None:
            continue
        if node.target in RECURRENT:
            return order[-1] == last
        if node.target in _LAST:
            return order[-1] == last and shape[1] > prod(shape[2:])
        if node.target in _CONVOLUTIONS:
            return order[1] == last
        if (moved := _moved(node, order)) is not None:
            orders[node] = moved
    return False


def _moved(node: fx.Node, order: list[int]) -> list[int] | None:
    """Which dim of the input each dim of the result is; None if that cannot be said."""
    args: Any = node.args
    if node.target is aten.permute.default:
        return [order[dim] for dim in args[1]]
    if node.target is aten.transpose.int:
        _, first, second = args
        moved = list(order)
        moved[first], moved[second] = order[second], order[first]
        return moved
    given, made = (each.meta.get("val") for each in (args[0], node))
    if not isinstance(given, Tensor) or not isinstance(made, Tensor):
        return None
    return order if given.shape == made.shape else None
