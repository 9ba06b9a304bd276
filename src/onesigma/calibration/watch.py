"""Look into a converted model: the mean and variance it carries at each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.conversion import uncertain
from onesigma.converted import Converted
from onesigma.engine import Propagate
from onesigma.report import Entry
from onesigma.values.gaussian import Gaussian

# What moves elements around or adds the noise itself tells nothing new.
_DULL = {"passthrough", "dropout"}


def layers_of(converted: Converted) -> dict[str, Entry]:
    """The report's entries of all ops that compute something uncertain, by node name."""
    return {
        entry.node: entry
        for entry in converted.report.entries
        if entry.status in ("exact", "approximate") and entry.rule not in _DULL
    }


@torch.no_grad()
def watch(converted: Converted, inputs: Sequence[Tensor], nodes: set[str]) -> dict[str, Gaussian]:
    """The values that the engine carries at ``nodes``, as tuned."""
    watcher = _Watcher(converted, nodes)
    watcher.run(*uncertain(inputs, converted.input_var))
    return watcher.seen


class _Watcher(Propagate):
    def __init__(self, converted: Converted, nodes: set[str]) -> None:
        super().__init__(converted.source, **converted.settings.engine())
        self.nodes = nodes
        self.seen: dict[str, Gaussian] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self.nodes and isinstance(value, Gaussian):
            self.seen[n.name] = value.expanded()
        return value
