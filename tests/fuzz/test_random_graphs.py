"""No graph with shared noise is silently wrong: see ``random_graphs``.

A graph is right, or its report says "approximate", or it is refused. In the suite a few hundred are
tried; ``make fuzz`` tries EFFORT times as many, others in every run.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

import pytest
import torch
from fuzz.harness import EFFORT
from fuzz.random_graphs import random_graph
from torch import Tensor, fx
from truth.verdicts import REFUSED, RIGHT, SAID, SILENT, distance

import onesigma
from onesigma.baselines.mc_dropout import with_dropout_on
from onesigma.conversion import starting_corrections
from onesigma.engine import Engine
from onesigma.graph.expand import compose, expand
from onesigma.graph.flow import trace_noise
from onesigma.graph.functionalize import functionalize
from onesigma.report import make_report
from onesigma.rules import RULES
from onesigma.values.gaussian import Uncertain

PASSES, CHUNK = 20_000, 20_000
COUNT, BATCHES = 400, 8
FIRST = 0 if EFFORT == 1 else time.time_ns() % 10**9


@dataclass(frozen=True)
class Moments:
    mean: Tensor
    var: Tensor


@torch.no_grad()
def judge(seed: int, passes: int = PASSES) -> str:
    graph, x = random_graph(seed)
    source = copy.deepcopy(graph)
    try:
        expand(source)
        functionalize(source)
        compose(source, prior=False)
        flow = trace_noise(source, RULES, prior=False)
        (out,) = Engine(source, RULES, starting_corrections(flow)).run(x)
    except onesigma.OnesigmaError:
        return REFUSED
    assert flow.reaches_output == isinstance(out, Uncertain)
    if not isinstance(out, Uncertain):
        return RIGHT
    found = out.expanded()
    assert torch.isfinite(found.mean).all()
    assert torch.isfinite(found.var).all()
    assert (found.var >= 0).all()
    if distance(found, *monte_carlo(graph, x, passes)) <= 1:  # type: ignore[arg-type]
        return RIGHT
    if make_report(source, flow, RULES, []).approximate:
        return SAID
    # Among thousands of graphs, five error bars are exceeded by chance: ask again, ten times.
    return SILENT if passes > PASSES else judge(seed, 10 * PASSES)


def monte_carlo(
    graph: fx.GraphModule, x: Tensor, passes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    noisy = with_dropout_on(graph)
    torch.manual_seed(passes)
    parts = [noisy(x.repeat(CHUNK, 1, 1))[0].double() for _ in range(passes // CHUNK)]
    draws = torch.cat(parts)
    mean, var = draws.mean(0, keepdim=True), draws.var(0, keepdim=True)
    fourth = (draws - mean).pow(4).mean(0, keepdim=True)
    return mean, var, (var / passes).sqrt(), ((fourth - var * var).clamp(min=0) / passes).sqrt()


@pytest.mark.parametrize("part", range(BATCHES))
def test_none_is_silently_wrong(part):
    share = COUNT * EFFORT // BATCHES
    seeds = range(FIRST + part * share, FIRST + (part + 1) * share)
    verdicts = {seed: judge(seed) for seed in seeds}
    assert [seed for seed, verdict in verdicts.items() if verdict == SILENT] == []
    # A test of refusals alone, or of nothing but approximations, would prove little.
    assert {RIGHT, SAID} <= {*verdicts.values()}
