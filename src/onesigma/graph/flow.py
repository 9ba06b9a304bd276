"""Flow: which noise reaches which node, and whether its rule is exact there.

A static walk over the graph; nothing is computed. For each uncertain value it keeps what a rule's
exactness depends on: the noise sites upstream, whether the elements are still independent of each
other, whether they are still normal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import fx

from onesigma.rules.dropout import RATE_ARGUMENT
from onesigma.rules.table import Assumption, Rule, RuleTable

PRIOR = "input prior"


@dataclass(frozen=True)
class Noise:
    """What is known of an uncertain value."""

    sites: frozenset[str]
    independent: bool
    normal: bool


@dataclass(frozen=True)
class Step:
    """One op that meets uncertainty: its rule, or None, and which assumptions fail there."""

    node: fx.Node
    rule: Rule | None
    noise: Noise
    broken: tuple[Assumption, ...]


@dataclass
class Flow:
    """The walk's result: a step for each uncertain node, in order."""

    steps: dict[fx.Node, Step] = field(default_factory=dict)
    reaches_output: bool = False


def trace_noise(module: fx.GraphModule, rules: RuleTable, *, prior: bool) -> Flow:
    """Follow the noise from its sources (and the inputs, with a prior) to the output."""
    flow = Flow()
    known: dict[fx.Node, Noise] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder" and prior:
            known[node] = Noise(frozenset({PRIOR}), independent=True, normal=True)
        incoming = [known[n] for n in node.all_input_nodes if n in known]
        if node.op == "output":
            flow.reaches_output = bool(incoming)
        if node.op != "call_function" or _is_size(node):
            continue
        rule = rules.get(node.target) if callable(node.target) else None
        if not incoming and not adds_noise(node, rules):
            continue
        step = _step(node, rule, incoming, adds_noise(node, rules))
        flow.steps[node] = step
        known[node] = step.noise
    return flow


def adds_noise(node: fx.Node, rules: RuleTable) -> bool:
    """A dropout with a rate above zero."""
    rule = rules.get(node.target) if callable(node.target) else None
    return rule is not None and rule.adds_noise and float(node.args[RATE_ARGUMENT]) > 0  # type: ignore[arg-type]


def _step(node: fx.Node, rule: Rule | None, incoming: list[Noise], source: bool) -> Step:
    sites = frozenset().union(*(n.sites for n in incoming))
    overlap = sum(len(n.sites) for n in incoming) > len(sites)
    independent = all(n.independent for n in incoming)
    normal = all(n.normal for n in incoming)
    if source:
        sites, normal = sites | {node.name}, False
    if rule is None:
        return Step(node, None, Noise(sites, False, False), ())
    holds = {
        Assumption.INDEPENDENT: independent,
        Assumption.NORMAL: normal,
        Assumption.SEPARATE: not overlap,
        Assumption.ALWAYS_APPROXIMATE: False,
    }
    broken = tuple(a for a in Assumption if a in rule.assumes and not holds[a])
    mixes = Assumption.INDEPENDENT in rule.assumes
    bends = rule.bends or (rule.multiplies and len(incoming) > 1)
    noise = Noise(
        sites,
        independent=independent and not mixes and not rule.shares_noise and not overlap,
        normal=normal and not bends and Assumption.ALWAYS_APPROXIMATE not in rule.assumes,
    )
    return Step(node, rule, noise, broken)


def _is_size(node: fx.Node) -> bool:
    """Sizes are certain, whatever they are the sizes of."""
    return isinstance(node.meta.get("val"), int | torch.SymInt)
