"""Where time lies in an input: last, as convolutions have it, or before the channels.

Recurrent layers and attention take inputs (instants, channels). What fails in a sensor fails along
time, and a channel is what has a name. So it matters which is which, and it is found in

1. how many channels were named, if only one reading has so many;
2. the first layer that mixes numbers of an input. A recurrent one has time before the channels, a
   convolution behind them; one of two dims has it where its kernel is longer than 1. A linear layer
   mixes channels, or in some networks instants: it counts if there are more of these.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import fx

from onesigma.graph.capture import RECURRENT

aten = torch.ops.aten

_NEW = -1  # in place of a dim of the input: one that the input has not
Order = list[int]  # which dim of the input each dim of a value is


def time_dims(
    network: fx.GraphModule, sizes: dict[fx.Node, torch.Size], channels: int | None = None
) -> list[int]:
    """The dim of time in each input; ``sizes`` of all values, ``channels``: how many were named."""
    sources = network.graph.find_nodes(op="placeholder")
    return [_time_dim(node, sizes, channels) for node in sources]


def _time_dim(source: fx.Node, sizes: dict[fx.Node, torch.Size], channels: int | None) -> int:
    shape = sizes[source]
    last = len(shape) - 1
    if last < 2:
        return last
    if channels is not None and channels not in (shape[1], prod(shape[1:-1])):
        behind = (dim for dim in range(1, last) if prod(shape[dim + 1 :]) == channels)
        return next(behind, last)
    found = _told_by_layers(source, sizes)
    return found if channels in (None, prod(shape[found + 1 :])) else last


def _told_by_layers(source: fx.Node, sizes: dict[fx.Node, torch.Size]) -> int:
    last = len(sizes[source]) - 1
    orders: dict[fx.Node, Order] = {source: [*range(last + 1)]}
    for node in source.graph.nodes:
        given = node.args[0] if node.args else None
        if not isinstance(given, fx.Node) or given not in orders:
            continue
        if node.target in _TELLS:
            found = _TELLS[node.target](node, orders[given], sizes[source], sizes)
            return last if found in (None, _NEW) else found
        if node in sizes and (moved := _moved(node, orders[given], sizes)) is not None:
            orders[node] = moved
    return last


def _by_convolution(
    node: fx.Node, order: Order, shape: torch.Size, sizes: dict[fx.Node, torch.Size]
) -> int | None:
    kernel = sizes[node.args[1]][2:]  # type: ignore[index]
    if len(kernel) == 2 and kernel[1] == 1 < kernel[0]:
        return order[2]
    return len(shape) - 2 if order[1] == len(shape) - 1 else order[-1]


def _by_linear(node: fx.Node, order: Order, shape: torch.Size, _: Any) -> int | None:
    if node.target is aten.matmul.default and node.args[1].op != "get_attr":  # type: ignore[union-attr]
        return None
    return 1 if order[-1] == len(shape) - 1 and shape[1] > prod(shape[2:]) else None


_TELLS: dict[Any, Callable[..., int | None]] = {
    **{op.default: _by_linear for op in (aten.linear, aten.layer_norm, aten.matmul)},
    **dict.fromkeys(RECURRENT, lambda node, order, *_: order[1]),
    **{getattr(aten, f"conv{dims}d").default: _by_convolution for dims in (1, 2, 3)},
}


def _moved(node: fx.Node, order: Order, sizes: dict[fx.Node, torch.Size]) -> Order | None:
    """The order of the result; None if that cannot be said."""
    args: Any = node.args
    if node.target is aten.permute.default:
        return [order[dim] for dim in args[1]]
    if node.target is aten.transpose.int:
        _, first, second = args
        moved = list(order)
        moved[first], moved[second] = order[second], order[first]
        return moved
    if node.target is aten.select.int:
        return [dim for place, dim in enumerate(order) if place != args[1] % len(order)]
    # The same sizes; dims of 1 may come or go.
    kept = [(dim, n) for dim, n in zip(order, sizes[args[0]], strict=True) if n != 1]
    if [n for _, n in kept] != [n for n in sizes[node] if n != 1]:
        return None
    rest = iter(kept)
    return [_NEW if n == 1 else next(rest)[0] for n in sizes[node]]
