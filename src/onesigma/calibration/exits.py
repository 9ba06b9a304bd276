"""``early_exit``: let a fitted network answer as soon as it is sure, at a limited cost in errors.

1. The network is cut in front of layers with weights, at a few shares of its multiply-adds.
2. Unlabelled inputs, clean and corrupted, teach a head at each cut what the whole network says. Its
   layers stay as they are.
3. Labelled inputs say how sure an exit has to be (``decide.early_exit``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.flop_counter import FlopCounterMode

from onesigma.arguments import typed
from onesigma.baselines.mc_dropout import seeded
from onesigma.calibration.corruption import FITTED_ON
from onesigma.calibration.distillation import Targets, Training, teach_head
from onesigma.calibration.labelled import Labelled, checked_labelled, first_half
from onesigma.calibration.observation import silent
from onesigma.calibration.teacher import corrupt
from onesigma.converted import Converted, Inputs
from onesigma.decide.early_exit import DELTA, SCORE, ExitRule, exit_rule
from onesigma.errors import InputError
from onesigma.forms.exits import EarlyExit, ExitHead, summary
from onesigma.forms.student import MAX_CHANNELS
from onesigma.graph.append import append
from onesigma.graph.capture import as_graph
from onesigma.graph.split import crossing, cut, nodes_behind, weights_alone
from onesigma.prediction import Prediction

SHARES = (0.1, 0.25, 0.5)  # of the multiply-adds, where exits are placed
STEPS = 1500
_HIDDEN, _RIDGE = 16, 1e-3
_ROWS = 256
_MOST = 1000  # inputs to learn from: with all their copies they take minutes
_FEW = (3, 5)  # rows: what has as many of them in both cases has one for each input


@typed
def early_exit(
    ready: Converted,
    *,
    labelled: Labelled,
    unlabelled: Inputs | None = None,
    at: Sequence[float] | Sequence[str] | None = None,
    excess_risk: float = 0.01,
    groups: Tensor | None = None,
) -> EarlyExit:
    """Add exits to a fitted classifier: an input that is answered early costs less.

    Args:
        ready: what ``fit`` returned. Its layers are not changed.
        labelled: inputs that neither training nor ``fit`` has seen, and their classes. They set how
            sure the exits have to be: 299 are needed for ``excess_risk=0.01``, and 1,000 let more
            inputs leave.
        unlabelled: what trains the exits, such as the inputs of ``fit``; up to 1,000 are drawn. If
            there are none, one half of the labelled inputs does, and the other half sets the rule.
        at: where exits are placed: shares of the multiply-adds, or names of nodes of
            ``ready.network.graph``.
        excess_risk: by how much the share of wrong answers may grow, in 95 of 100 cases at least.
        groups: for each labelled input a number, such as that of a person: the promise is then for
            new people.

    Returns:
        The model with its exits: ``model(x).exit`` says which of them answered, ``model.cost`` what
        that cost.
    """
    if ready.settings.task != "classification" or not ready.settings.dynamic_batch:
        raise InputError("early_exit takes a classifier whose batch is left open: see fit.")
    inputs, labels = checked_labelled(ready, labelled, groups)
    cuts = _Walk(ready, inputs).cuts(at)
    if unlabelled is None:
        first = first_half(len(labels), groups, 0)
        taught = tuple(x[first] for x in inputs)
    else:
        first = torch.zeros(len(labels), dtype=torch.bool)
        taught = tuple(ready.check_inputs(unlabelled))
    segments = _with_exits(ready, cuts, taught)
    never = ExitRule(SCORE, -math.inf, excess_risk, DELTA, 0, 0.0, 0.0)
    model = EarlyExit(ready, segments, never, _costs(ready, segments, inputs)).eval()
    *exits, whole = everything_said(model, tuple(x[~first] for x in inputs))
    theirs = None if groups is None else groups[~first]
    rule = exit_rule(exits, whole, labels[~first], excess_risk=excess_risk, groups=theirs)
    return EarlyExit(ready, segments, rule, model.costs).eval()


def everything_said(model: EarlyExit, inputs: Sequence[Tensor]) -> list[Prediction]:
    """``model.answers`` in pieces that fit in memory."""
    parts = [model.answers(*rows) for rows in _in_parts(inputs)]
    return [Prediction.cat(part) for part in zip(*parts, strict=True)]


def _in_parts(inputs: Sequence[Tensor]) -> Iterable[tuple[Tensor, ...]]:
    return zip(*(torch.split(x, _ROWS) for x in inputs), strict=True)


@dataclass(frozen=True)
class _Cut:
    """What lies behind it, and what of the layers before it the next layers read."""

    behind: set[fx.Node]
    read: list[str]


class _Walk(fx.Interpreter):
    """The network op by op: its multiply-adds, and what has a row for each input."""

    def __init__(self, ready: Converted, inputs: Sequence[Tensor]) -> None:
        super().__init__(ready.network)
        self.macs, self.shapes = dict[fx.Node, int](), dict[fx.Node, list[Any]]()
        with torch.no_grad():
            for rows in _FEW:
                with FlopCounterMode(display=False) as self._counter:
                    self.run(*(x[:rows] for x in inputs))
        graph = ready.network.graph
        outputs: Sequence[fx.Node] = graph.output_node().args[0]  # type: ignore[assignment]
        self.graph, ahead = graph, _nodes_before(outputs[:1])
        self.main = [n for n in graph.nodes if n in ahead and n.op == "call_function"]
        self.guarding, self.fixed = _guard_of(ready)[0], weights_alone(graph)

    def run_node(self, n: fx.Node) -> Any:
        before = self._counter.get_total_flops()
        value = super().run_node(n)
        self.macs[n] = (self._counter.get_total_flops() - before) // 2
        real = isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0
        self.shapes.setdefault(n, []).append(value.shape if real else ())
        return value

    def cuts(self, at: Sequence[float] | Sequence[str] | None) -> list[_Cut]:
        """The cuts that were asked for, in order, each once."""
        before = [0, *accumulate(self.macs[node] for node in self.main)]
        places = [k for k, n in enumerate(self.main) if self.macs[n] and before[k] and self._cut(k)]
        if not places:
            raise InputError(
                "There is no place for an exit: nowhere behind the first layer has all that is "
                "computed one row for each input, and at most 512 channels."
            )
        chosen = set[int]()
        for wanted in SHARES if at is None else at:
            if isinstance(wanted, str):
                chosen.add(self._behind_name(wanted))
            elif 0 < wanted < 1:
                chosen.add(min(places, key=lambda k: abs(before[k] / before[-1] - wanted)))
            else:
                raise InputError(f"at={wanted}: a share of the multiply-adds is between 0 and 1.")
        return [found for k in sorted(chosen) if (found := self._cut(k))]

    def _behind_name(self, name: str) -> int:
        place = next((k + 1 for k, n in enumerate(self.main[:-1]) if n.name == name), 0)
        if not place or not self._cut(place):
            raise InputError(
                f"at={name!r}: no exit can be placed there. Name a node of ready.network.graph "
                "that the logits depend on, behind the first layer, or give shares such as 0.3."
            )
        return place

    def _cut(self, place: int) -> _Cut | None:
        """In front of an op on the way to the logits; None if something there has no rows."""
        done = {n for n in self.graph.nodes if n.op in ("placeholder", "get_attr")}
        early, late = {*self.main[:place]}, {*self.main[place:]}
        # What else there is, such as the guard's statistics, is computed as soon as it can be.
        for node in self.graph.nodes:
            if node in early or (node not in late and done.issuperset(node.all_input_nodes)):
                done.add(node)
        behind = {n for n in self.graph.nodes if n.op == "call_function" and n not in done}
        crossed = [n for n in crossing(self.graph, behind) if n not in self.fixed]
        if not all(map(self._has_rows, crossed)):
            return None
        if not done.issuperset(self.guarding):
            return None
        read = [n for n in crossed if late.intersection(n.users)]
        if not all(len(s := self.shapes[n][0]) > 1 and s[1] <= MAX_CHANNELS for n in read):
            return None
        return _Cut(behind, [n.name for n in read])

    def _has_rows(self, node: fx.Node) -> bool:
        return all(len(s) and s[0] == n for s, n in zip(self.shapes[node], _FEW, strict=True))


def _nodes_before(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes, and all that they depend on."""
    found, waiting = set[fx.Node](), [*nodes]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _guard_of(ready: Converted) -> tuple[list[fx.Node], fx.GraphModule | None]:
    """What the guard needs besides the logits; and from these and them, the novelty."""
    if ready.settings.contract is None:
        return [], None
    graph, part = ready.network.graph, fx.Graph()
    outputs: Sequence[fx.Node] = graph.output_node().args[0]  # type: ignore[assignment]
    logits, novelty = outputs[0], outputs[-1]
    own = (nodes_behind(graph, [logits]) & _nodes_before([novelty])) - {logits}
    ops = [node for node in graph.nodes if node in own]
    known = {logits, *ops, *weights_alone(graph)}
    read = [*dict.fromkeys(n for op in ops for n in op.all_input_nodes if n not in known)]
    copies = {node: part.placeholder(node.name) for node in (*read, logits)}
    for node in graph.nodes:
        if node.op == "get_attr" or node in own:
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output((copies[novelty],))
    part.eliminate_dead_code()
    return read, fx.GraphModule(ready.network, part)


def _with_exits(
    ready: Converted, cuts: Sequence[_Cut], taught: tuple[Tensor, ...]
) -> list[fx.GraphModule]:
    """The network in pieces, each but the last with a head of its own that has learnt."""
    generator = torch.Generator().manual_seed(0)
    clean_and_not = [lambda x, _: x, *FITTED_ON.values()]
    drawn = torch.randperm(len(taught[0]), generator=generator)[:_MOST]
    times = ready.time_dims(taught)
    given = corrupt([x[drawn] for x in taught], clean_and_not, generator, times)
    with torch.no_grad():
        said = Prediction.cat([ready.answer(*rows) for rows in _in_parts(given)])
    targets = Targets.said_by(said, len(clean_and_not))
    *pieces, last = cut(ready.network, [each.behind for each in cuts])
    ends: list[Sequence[fx.Node]] = [p.graph.output_node().args[0] for p in pieces]  # type: ignore[misc]
    read = [[n for n in end if n.name in each.read] for end, each in zip(ends, cuts, strict=True)]

    def lives(rows: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        """What the head at each cut takes."""
        for piece, end, nodes in zip(pieces, ends, read, strict=True):
            rows = piece(*rows)
            yield [x for x, node in zip(rows, end, strict=True) if node in nodes]

    with torch.no_grad():
        parts = [[*map(summary, lives(rows))] for rows in _in_parts(given)]
        few = [*lives([x[:4] for x in given])]
    found = list[fx.GraphModule]()
    for place, (piece, nodes) in enumerate(zip(pieces, read, strict=True)):
        head = _taught_head(torch.cat([part[place] for part in parts]), targets)
        graph = as_graph(head, tuple(few[place]), dynamic=True)
        found.append(_join(ready, piece, graph, nodes, f"exit_{place}"))
    return [*found, last]


@torch.no_grad()
def _taught_head(features: Tensor, targets: Targets) -> ExitHead:
    """A head that has learnt on features of unit size, whose weights then take them as they are."""
    mean, std = features.mean(0), features.std(0).clamp(min=1e-6)
    scaled, (count, classes) = (features - mean) / std, targets.mean.shape
    with seeded(0, 0, features.device):
        made = ExitHead(features.shape[1], classes, _HIDDEN).to(features)
    # The best linear guess of the logits, which learning starts from.
    both = scaled.T @ scaled + _RIDGE * count * torch.eye(scaled.shape[1]).to(scaled)
    middle = targets.mean.mean(0)
    made.last.weight.copy_(torch.linalg.solve(both, scaled.T @ (targets.mean - middle)).T)
    made.last.bias.copy_(middle)

    def read(rows: Tensor) -> tuple[Tensor, Tensor]:
        return made.read(scaled[rows])

    layers = (made.last, made.narrow)
    moves: list[Tensor] = [weight for layer in layers for weight in layer.parameters()]
    teach_head(made.head, read, moves, targets, Training(STEPS, 0, silent))
    for layer in layers:
        layer.weight.div_(std)
        layer.bias.sub_(layer.weight @ mean)
    return made.requires_grad_(False).eval()


def _join(
    ready: Converted, piece: fx.GraphModule, head: fx.GraphModule, read: list[fx.Node], name: str
) -> fx.GraphModule:
    """A piece with a head that reads some of its outputs, and with the guard behind that."""
    live = len(piece.graph.output_node().args[0])  # type: ignore[arg-type]
    joined, (guarding, guard) = append(piece, head, read, name), _guard_of(ready)
    if guard is None:
        return joined
    nodes = {node.name: node for node in joined.graph.nodes}
    outputs: Sequence[fx.Node] = joined.graph.output_node().args[0]  # type: ignore[assignment]
    # Names are those of the network, of which the contract is an output.
    contract = nodes[ready.network.graph.output_node().args[0][-2].name]  # type: ignore[index, union-attr]
    reads = [*(nodes[node.name] for node in guarding), outputs[live]]
    joined.graph.output_node().args = ((*outputs, contract),)
    return append(joined, guard, reads, name)


@torch.no_grad()
def _costs(
    ready: Converted, segments: Sequence[fx.GraphModule], inputs: Sequence[Tensor]
) -> list[float]:
    """The multiply-adds up to the end of each segment, as a share of the network's."""

    def run(piece: fx.GraphModule, live: Sequence[Tensor]) -> tuple[int, Sequence[Tensor]]:
        with FlopCounterMode(display=False) as counter:
            outputs = fx.Interpreter(piece).run(*live)
        return counter.get_total_flops(), outputs

    live: Sequence[Tensor] = [x[:1] for x in inputs]
    whole, outputs = run(ready.network, live)
    each = list[int]()
    for piece in segments:
        spent, found = run(piece, live)
        each.append(spent)
        live = found[: len(found) - len(outputs)]
    return [spent / whole for spent in accumulate(each)]
