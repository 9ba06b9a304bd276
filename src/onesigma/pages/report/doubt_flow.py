"""How doubt grows through a network on the way to the answer.

One pass of the engine; at every node, over all elements and inputs,

    signal = √mean(m²),   spread = √mean(v),   relative = spread / signal
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.conversion import uncertain
from onesigma.converted import Converted
from onesigma.engine import Propagate
from onesigma.graph.flow import PRIOR
from onesigma.report import Entry
from onesigma.values.gaussian import Gaussian


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
    recorder = _Recorder(converted)
    recorder.run(*uncertain(inputs, converted.input_var))
    return tuple(recorder.stops.values())


class _Recorder(Propagate):
    """The engine, noting the figures of every node; values are not kept."""

    def __init__(self, converted: Converted) -> None:
        super().__init__(converted.source, **converted.settings.engine())
        self.entries = {entry.node: entry for entry in converted.report.entries}
        self.noisy_inputs = converted.input_var is not None
        self.stops: dict[str, Stop] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        parts = _parts(value)
        if n.op in ("placeholder", "call_function") and parts:
            entry = self.entries.get(n.name) or self._of_input(n)
            inputs = tuple(x.name for x in n.all_input_nodes if x.name in self.stops)
            self.stops[n.name] = Stop(entry, inputs, tuple(parts[0][0].shape[1:]), *_sizes(parts))
        return value

    def _of_input(self, node: fx.Node) -> Entry:
        status = "noise" if self.noisy_inputs else "certain"
        note = PRIOR if self.noisy_inputs else ""
        return Entry(node.name, "input", "input", "", "", status, note)


def _parts(value: Any) -> list[tuple[Tensor, Tensor | None]]:
    """Means and variances of a value, which may be a list of several."""
    if isinstance(value, list | tuple):
        return [part for each in value for part in _parts(each)]
    if isinstance(value, Gaussian):
        value = value.expanded()
        return [(value.mean, value.var)]
    return [(value, None)] if isinstance(value, Tensor) and value.dim() else []


def _sizes(parts: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[float, float]:
    """Signal and spread."""
    count = sum(mean.numel() for mean, _ in parts)
    squares = sum(float(mean.double().square().sum()) for mean, _ in parts)
    variance = sum(float(var.double().sum()) for _, var in parts if var is not None)
    return math.sqrt(squares / count), math.sqrt(variance / count)
