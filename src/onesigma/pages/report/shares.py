"""Where the doubt comes from: the output's variance with one source of noise on at a time.

By Monte Carlo and not by one pass: what elements share is the larger, the earlier a dropout stands,
and one pass leaves it out. On the demo's network it would give the last of four dropouts 88 %
of the doubt; it has about half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, fx

from onesigma.baselines.mc_dropout import seeded, with_dropout_on
from onesigma.calibration.observation import RunningMoments
from onesigma.converted import Converted
from onesigma.graph.capture import is_site
from onesigma.rules.dropout import RATE_ARGUMENT

Progress = Callable[[Iterable[int]], Iterable[int]]


@torch.no_grad()
def shares(
    converted: Converted, inputs: Tensor, passes: int, progress: Progress = iter
) -> dict[str, float]:
    """By node, a dropout's or that of the input with a prior: its part of them all."""
    draws: dict[str, Callable[[], Tensor]] = {
        site.node: partial(_output, _only(converted, site.node), inputs)
        for site in converted.report.sites
        if site.rate > 0
    }
    if converted.input_var is not None:
        source, std = converted.source, converted.input_var.sqrt()
        first = next(node for node in source.graph.nodes if node.op == "placeholder")
        draws[first.name] = lambda: _output(source, inputs + std * torch.randn_like(inputs))
    seen = {name: RunningMoments() for name in draws}
    for index in progress(range(passes)):
        for name, draw in draws.items():
            with seeded(0, index, inputs.device):
                seen[name].add(draw())
    alone = {name: float(moments.var.mean()) for name, moments in seen.items()}
    total = sum(alone.values())
    return {name: variance / total for name, variance in alone.items()} if total else {}


def _output(graph: fx.GraphModule, inputs: Tensor) -> Tensor:
    logits: Tensor = graph(inputs)[0]
    return logits


def _only(converted: Converted, site: str) -> fx.GraphModule:
    """The original with one dropout on."""
    graph = with_dropout_on(converted.source, converted.settings.dropout)
    for node in graph.graph.nodes:
        if is_site(node) and node.name != site:
            node.args = (*node.args[:RATE_ARGUMENT], 0.0, *node.args[RATE_ARGUMENT + 1 :])
    graph.recompile()
    return graph
