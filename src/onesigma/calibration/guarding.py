"""Guarding: a converted network that also says how unlike the known inputs an input is."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.converted import Converted
from onesigma.decide.guard import Guard, Layout, make_contract
from onesigma.graph.append import append
from onesigma.graph.capture import as_graph, shared_copy

aten = torch.ops.aten

_FOLDS = 5
_ROWS = 256
_FEW = 4
# What bends, and the outputs of recurrent layers: there a network shows what it makes of an input.
_BENDS = {
    *(aten.relu.default, aten.hardtanh.default, aten.leaky_relu.default, aten.elu.default),
    *(aten.gelu.default, aten.silu.default, aten.hardswish.default, aten.tanh.default),
    *(aten.softplus.default, aten.mish.default, operator.getitem),
}


@dataclass(frozen=True)
class Channels:
    """What a user may say of the inputs; nothing of it is needed."""

    names: Sequence[str] | None = None
    units: Sequence[str] | None = None
    rate: float | None = None


def with_guard(
    converted: Converted,
    known: Sequence[Tensor],
    *,
    channels: Channels | None = None,
    groups: Tensor | None = None,
    seed: int = 0,
) -> Converted:
    """Add ``contract`` and ``novelty`` to what the network says, learnt from known inputs.

    ``groups`` has a number for each of them, such as that of a person: new inputs are then taken to
    be as unlike the known ones as one group is unlike all others.
    """
    network, given = converted.network, channels or Channels()
    count = None if given.names is None else len(given.names)
    layouts = [Layout.of(x.shape[1:], count) if x.is_floating_point() else None for x in known]
    if not any(layouts):
        note = "no guard: none of the inputs is of floating point"
        notes = (*converted.report.notes, note)
        return converted.with_changes(report=replace(converted.report, notes=notes))
    layers = _choose_layers(network, known)
    looking = _looking(network, layers)
    guard = Guard(layouts, [True] * len(layers))
    measured, lowest = _measure(looking, guard, known)
    guard.signed = tuple(low < 0 for low in lowest)
    bounds = guard.learn(*measured, folds=_folds(len(known[0]), groups, seed))
    window = known[0].shape[-1] if known[0].dim() > 2 else None
    contract = make_contract(
        *(guard, bounds), channels=given.names, units=given.units, window=window, rate=given.rate
    )
    few = tuple(x[:_FEW] for x in known)
    with torch.no_grad():
        logits, *outputs = looking(*few)
    dynamic = converted.settings.dynamic_batch
    behind = as_graph(guard, (*few, *outputs, logits), dynamic=dynamic)
    inputs = [node for node in network.graph.nodes if node.op == "placeholder"]
    guarded = append(network, behind, [*inputs, *layers, _logits(network)], "guard")
    settings = replace(converted.settings, contract=contract)
    return converted.with_changes(network=guarded, settings=settings)


def _logits(network: fx.GraphModule) -> fx.Node:
    first: fx.Node = network.graph.output_node().args[0][0]  # type: ignore[index, assignment]
    return first


def _choose_layers(network: fx.GraphModule, known: Sequence[Tensor]) -> list[fx.Node]:
    """The first, one in the middle and the last of those with a row for each input.

    Of what bends and has positions, else of what there is.
    """
    found = _Shapes(network).of(*(x[:_FEW] for x in known))
    rows = [n for n, shape in found.items() if len(shape) > 1 and shape[0] == _FEW]
    bends = [n for n in rows if n.target in _BENDS]
    usable = [n for n in bends if len(found[n]) > 2] or bends or rows
    return [usable[place] for place in sorted({0, len(usable) // 2, len(usable) - 1})]


class _Shapes(fx.Interpreter):
    """Runs a graph, and notes the shape of each floating-point tensor that an op returns."""

    def of(self, *inputs: Tensor) -> dict[fx.Node, torch.Size]:
        self.found = dict[fx.Node, torch.Size]()
        with torch.no_grad():
            self.run(*inputs)
        return self.found

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function" and isinstance(value, Tensor) and value.is_floating_point():
            self.found[n] = value.shape
        return value


def _looking(network: fx.GraphModule, layers: Sequence[fx.Node]) -> fx.GraphModule:
    """The network, returning its logits and the outputs of some layers."""
    looking = shared_copy(network)
    named = {node.name: node for node in looking.graph.nodes}
    looking.graph.output_node().args = ((_logits(looking), *(named[n.name] for n in layers)),)
    looking.graph.eliminate_dead_code()
    return fx.GraphModule(looking, looking.graph)


@torch.no_grad()
def _measure(
    looking: fx.GraphModule, guard: Guard, known: Sequence[Tensor]
) -> tuple[tuple[Tensor, Tensor, Tensor], list[float]]:
    """What the guard reads of all known inputs, and the lowest value of each layer."""
    parts, lowest = list[tuple[Tensor, ...]](), [0.0] * len(guard.signed)
    for rows in zip(*(torch.split(x, _ROWS) for x in known), strict=True):
        logits, *outputs = looking(*rows)
        lowest = [min(low, float(h.min())) for low, h in zip(lowest, outputs, strict=True)]
        parts.append(guard.measure(*rows, *outputs, logits))
    means, positive, answers = (torch.cat(part) for part in zip(*parts, strict=True))
    return (means, positive, answers), lowest


def _folds(count: int, groups: Tensor | None, seed: int) -> Tensor:
    """Which part each row is in; those of a group stay together."""
    generator = torch.Generator().manual_seed(seed)
    if groups is None:
        return torch.randperm(count, generator=generator) % _FOLDS
    names = sorted({*groups.tolist()})
    if len(names) < 2:
        return _folds(count, None, seed)
    order = torch.randperm(len(names), generator=generator) % min(_FOLDS, len(names))
    place = {name: int(order[k]) for k, name in enumerate(names)}
    return torch.tensor([place[name] for name in groups.tolist()])
