"""How doubt grows through a network on the way to the answer.

One pass of the engine; at every node, over all elements and inputs,

    signal = √mean(m²),   spread = √mean(v),   relative = spread / signal
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.converted import Converted
from onesigma.engine import Engine
from onesigma.graph.flow import PRIOR
from onesigma.report import Entry
from onesigma.values.gaussian import Uncertain


@dataclass(frozen=True)
class Stop:
    """One node of the graph, and what passes there.

    Attributes:
        entry: its line of the conversion report; of an input, made up for it.
        inputs: names of the nodes it takes.
        shape: of its output, without the batch.
        signal, spread: see above.
    """

    entry: Entry
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    signal: float
    spread: float

    @property
    def relative(self) -> float:
        """Spread over signal: 1 says that the doubt is as large as what it is about."""
        if self.spread == 0:
            return 0.0
        return self.spread / self.signal if self.signal else math.inf


@torch.no_grad()
def doubt_flow(converted: Converted, inputs: Sequence[Tensor]) -> tuple[Stop, ...]:
    """Every node that carries a tensor, in order."""
    entries = {entry.node: entry for entry in converted.report.entries}
    stops: dict[str, Stop] = {}

    def look(engine: Engine, node: fx.Node, compute: Callable[[], Any]) -> Any:
        value = compute()
        parts = _parts(value)
        if node.op in ("placeholder", "call_function") and parts:
            entry = entries.get(node.name) or _entry_of_input(converted, node)
            before = tuple(x.name for x in node.all_input_nodes if x.name in stops)
            stops[node.name] = Stop(entry, before, tuple(parts[0][0].shape[1:]), *_sizes(parts))
        return value

    converted.propagate(inputs, look)
    return tuple(stops.values())


def _entry_of_input(converted: Converted, node: fx.Node) -> Entry:
    noisy = converted.input_var is not None
    status, note = ("noise", PRIOR) if noisy else ("certain", "")
    return Entry(node.name, "input", "input", "", "", status, note)


def _parts(value: Any) -> list[tuple[Tensor, Tensor | None]]:
    """Means and variances of a value, which may be a list of several."""
    if isinstance(value, list | tuple):
        return [part for each in value for part in _parts(each)]
    if isinstance(value, Uncertain):
        value = value.expanded()
        return [(value.mean, value.var)]
    return [(value, None)] if isinstance(value, Tensor) and value.dim() else []


def _sizes(parts: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[float, float]:
    """Signal and spread."""
    count = sum(mean.numel() for mean, _ in parts)
    squares = sum(float(mean.double().square().sum()) for mean, _ in parts)
    variance = sum(float(var.double().sum()) for _, var in parts if var is not None)
    return math.sqrt(squares / count), math.sqrt(variance / count)
