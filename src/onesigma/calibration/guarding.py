"""Guarding: a converted network that also says how unlike the known inputs an input is."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.converted import Converted
from onesigma.decide.guard import Guard, Layout, Measured, make_contract
from onesigma.engine import Engine, watching
from onesigma.graph.append import append
from onesigma.graph.capture import as_graph, shared_copy
from onesigma.graph.locate import output_of
from onesigma.prediction import Prediction
from onesigma.runtime.reference import Reference

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
    seed: int = 0,
) -> Converted:
    """``add_guard``, and what the model says of known inputs, for a ``Monitor``."""
    made, held_out = add_guard(converted, known, channels=channels, seed=seed)
    return made if held_out is None else with_reference(made, known, held_out)


@torch.no_grad()
def with_reference(made: Converted, known: Sequence[Tensor], held_out: Tensor) -> Converted:
    """Note what the model says of known inputs; again, once its temperature or rule is another.

    ``held_out`` is their novelty as that of new inputs would be, see ``Guard``.
    """
    parts = zip(*(torch.split(x, _ROWS) for x in (*known, held_out)), strict=True)
    said = [made.decide(replace(made.answer(*rows), novelty=novelty)) for *rows, novelty in parts]
    reference = Reference.learn(Prediction.cat(said))
    return made.with_changes(settings=replace(made.settings, reference=reference))


def add_guard(
    converted: Converted,
    known: Sequence[Tensor],
    *,
    channels: Channels | None = None,
    seed: int = 0,
) -> tuple[Converted, Tensor | None]:
    """Add ``contract`` and ``novelty`` to what the network says, learnt from known inputs.

    Also returns their novelty while their fold was left out; None, and the model as it was, if
    there is nothing to measure.
    """
    network, given = converted.network, channels or Channels()
    count = None if given.names is None else len(given.names)
    times = converted.time_dims(known, count)
    layouts = [
        Layout.of(x.shape[1:], count, time - 1) if x.is_floating_point() else None
        for x, time in zip(known, times, strict=True)
    ]
    if not any(layouts):
        note = "no guard: none of the inputs is of floating point"
        notes = (*converted.report.notes, note)
        return converted.with_changes(report=replace(converted.report, notes=notes)), None
    layer = _first_layer(network, known)
    looking = _looking(network, layer)
    dim = converted.settings.class_dim
    measured, lowest = _measure(looking, Guard(layouts, class_dim=dim), known)
    guard = Guard(layouts, signed=lowest < 0, class_dim=dim)
    generator = torch.Generator().manual_seed(seed)
    folds = torch.randperm(len(known[0]), generator=generator) % _FOLDS
    bounds = guard.learn(measured, folds)
    window = known[0].shape[times[0]] if known[0].dim() > 2 else None
    contract = make_contract(
        *(guard, bounds), channels=given.names, units=given.units, window=window, rate=given.rate
    )
    few = tuple(x[:_FEW] for x in known)
    with torch.no_grad():
        logits, output = looking(*few)
    dynamic = converted.settings.dynamic_batch
    behind = as_graph(guard, (*few, output, logits), dynamic=dynamic)
    inputs = network.graph.find_nodes(op="placeholder")
    guarded = append(network, behind, [*inputs, layer, output_of(network)], "guard")
    settings = replace(converted.settings, contract=contract)
    return converted.with_changes(network=guarded, settings=settings), guard.held_out


def _first_layer(network: fx.GraphModule, known: Sequence[Tensor]) -> fx.Node:
    """The first that has a row for each input: of what bends and has positions, else of all."""
    found = dict[fx.Node, torch.Size]()

    def note(node: fx.Node, value: Any) -> None:
        if node.op == "call_function" and isinstance(value, Tensor) and value.is_floating_point():
            found[node] = value.shape

    with torch.no_grad():
        Engine(network, {}, observer=watching(note)).run(*(x[:_FEW] for x in known))
    rows = [n for n, shape in found.items() if len(shape) > 1 and shape[0] == _FEW]
    bends = [n for n in rows if n.target in _BENDS]
    return [*(n for n in bends if len(found[n]) > 2), *bends, *rows][0]


def _looking(network: fx.GraphModule, layer: fx.Node) -> fx.GraphModule:
    """The network, returning its logits and the output of one layer."""
    looking = shared_copy(network)
    (found,) = (node for node in looking.graph.nodes if node.name == layer.name)
    looking.graph.output_node().args = ((output_of(looking), found),)
    looking.graph.eliminate_dead_code()
    return fx.GraphModule(looking, looking.graph)


@torch.no_grad()
def _measure(
    looking: fx.GraphModule, guard: Guard, known: Sequence[Tensor]
) -> tuple[Measured, float]:
    """What the guard reads of all known inputs, and the lowest value of the layer."""
    parts, lowest = list[Measured](), 0.0
    for rows in zip(*(torch.split(x, _ROWS) for x in known), strict=True):
        logits, output = looking(*rows)
        lowest = min(lowest, float(output.min()))
        parts.append(guard.measure(*rows, output, logits))
    columns = [[x for x in column if x is not None] for column in zip(*parts, strict=True)]
    means, squares, size, logits = (torch.cat(each) if each else None for each in columns)
    assert means is not None
    assert size is not None
    assert logits is not None
    return (means, squares, size, logits), lowest
