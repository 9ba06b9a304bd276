"""Flow: which noise reaches which node, and whether its rule is proved to be exact there.

A static walk over the graph; nothing is computed. For each uncertain value it keeps what a rule's
exactness depends on: the noise sites upstream, whether its elements are proved to share no noise,
whether they are still normal. What cannot be proved counts as broken, and the report says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx

from onesigma.graph.capture import rate_of
from onesigma.rules.by_cases import POINTWISE, takes_cases
from onesigma.rules.table import Assumption, Reach, Rule, RuleTable

PRIOR = "input prior"


@dataclass(frozen=True)
class Noise:
    """What is known of an uncertain value.

    Attributes:
        sites: the sources of noise that reach it.
        apart: True if it is proved that no two elements depend on the same noise.
        normal: True if each element is normal, as far as the rules say.
        mask: the node whose mask makes each element one of two values, as far as it is known.
    """

    sites: frozenset[str]
    apart: bool
    normal: bool
    mask: str | None = None


@dataclass(frozen=True)
class Step:
    """One op that meets uncertainty: its rule, or None, and which assumptions are not proved."""

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
            known[node] = Noise(frozenset({f"{PRIOR} {node.name}"}), apart=True, normal=True)
        if node.op == "output":
            flow.reaches_output = any(n in known for n in node.all_input_nodes)
        rule = rules.get(node.target)
        if node.op != "call_function" or (rule is not None and rule.certain):
            continue
        incoming = [n for n in _inputs(node) if n in known]
        if not incoming and not adds_noise(node, rules):
            continue
        step = _step(node, rule, incoming, known, adds_noise(node, rules))
        flow.steps[node] = step
        known[node] = step.noise
    return flow


def adds_noise(node: fx.Node, rules: RuleTable) -> bool:
    """A dropout with a rate above zero."""
    rule = rules.get(node.target)
    return rule is not None and rule.adds_noise and rate_of(node) > 0


def _inputs(node: fx.Node, first: int = 0) -> list[fx.Node]:
    """The nodes among its arguments from the ``first`` on, one that is used twice listed twice."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args[first:], node.kwargs), found.append)
    return found


def _step(
    node: fx.Node,
    rule: Rule | None,
    incoming: list[fx.Node],
    known: dict[fx.Node, Noise],
    source: bool,
) -> Step:
    noises = [known[n] for n in incoming]
    sites = frozenset().union(*(n.sites for n in noises))
    mask = _common_mask(node, rule, known)
    rule = POINTWISE if rule is None and mask else rule
    if rule is None:
        return Step(node, None, Noise(sites, False, False), ())
    # One value twice is a case of its own, which some rules know how to treat.
    same = len(incoming) == 2 and incoming[0] is incoming[1] and rule.same_twice
    aligned = mask is not None and rule.reach is Reach.EACH
    separate = same or aligned or sum(len(n.sites) for n in noises) == len(sites)
    apart, normal = all(n.apart for n in noises), all(n.normal for n in noises)
    holds = {
        Assumption.INDEPENDENT: apart,
        Assumption.NORMAL: normal,
        Assumption.SEPARATE: separate,
        Assumption.ALWAYS_APPROXIMATE: False,
    }
    assumed = rule.assumes | ({Assumption.NORMAL} if same and rule.multiplies else set())
    assumed = frozenset() if mask else assumed  # then it is the op itself, on both values
    broken = tuple(a for a in Assumption if a in assumed and not holds[a])
    bends = rule.bends or (rule.multiplies and len(incoming) > 1)
    stays_normal = not bends and not source and Assumption.ALWAYS_APPROXIMATE not in assumed
    if not aligned:  # moved: it is another mask, or none
        mask = node.name if mask or (rule.two_valued and not incoming) else None
    noise = Noise(
        sites | {node.name} if source else sites,
        apart=apart and separate and _keeps_apart(node, rule, incoming),
        normal=normal and stays_normal and separate,
        mask=mask,
    )
    return Step(node, rule, noise, broken)


def _common_mask(node: fx.Node, rule: Rule | None, known: dict[fx.Node, Noise]) -> str | None:
    """The one mask of all uncertain inputs, if the op is then applied to both of their values."""
    masks = {known[n].mask for n in _inputs(node) if n in known}
    moved_by = any(n in known for n in _inputs(node, first=1))
    taken = len(masks) == 1 and takes_cases(node.target, rule, moved_by=moved_by)  # type: ignore[arg-type]
    return masks.pop() if taken else None


def _keeps_apart(node: fx.Node, rule: Rule, incoming: list[fx.Node]) -> bool:
    """Whether elements that share no noise before the op share none after it."""
    values: Any = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta.get("val"))
    reach = rule.reach_of(*values)
    if reach is Reach.EACH:  # an uncertain input that is broadcast is copied
        return all(_shape(n) == _shape(node) for n in incoming)
    if reach is Reach.MOVES:  # more elements than came in would be copies, whatever the rule says
        return _size(node) <= sum(_size(n) for n in _inputs(node))
    return reach is Reach.GROUPS


def _shape(node: fx.Node) -> tuple[Any, ...] | None:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _size(node: fx.Node) -> int:
    """How many elements it has, all tensors of a list together."""
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return sum(prod(v.shape) for v in values if isinstance(v, torch.Tensor))
