"""Exits: a fitted network in pieces, with small heads between them that may answer already.

A piece takes what the one before it computed, and returns what the next one needs and what its
exit says. The last one says what the whole network says, bit for bit if no input has left.

    f = of all that the next layer reads, the means over a few regions of each channel, and its
        energy, √ mean of h²;   z = W f + b,   g = relu(Y f + c), a few numbers
    mean … epistemic  as the student's head makes them of z and g
    novelty           the guard's own, with z in the place of the network's logits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from onesigma.converted import Converted
from onesigma.decide.early_exit import ExitRule
from onesigma.decide.plots import draw_exits
from onesigma.errors import InputError
from onesigma.forms.student import MAX_CHANNELS, Head
from onesigma.graph.eager import quicken
from onesigma.prediction import GUARDED, OUTPUTS, Prediction, hide_rows

FIELDS = OUTPUTS["classification"]


class ExitHead(nn.Module):
    """What an exit says of the tensors at its place."""

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.last, self.narrow = nn.Linear(features, classes), nn.Linear(features, hidden)
        self.head = Head(hidden, classes, hidden)

    def forward(self, *live: Tensor) -> tuple[Tensor, ...]:
        said = self.head(*self.read(summary(live)))
        return tuple(said[name] for name in FIELDS)

    def read(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The guess of the logits, and the few numbers that the head reads besides."""
        return self.last(features), torch.relu(self.narrow(features))


def summary(live: Sequence[Tensor]) -> Tensor:
    """Of each channel the means over a few regions, and the energy; rows as they are."""
    flat = [part for h in live for part in ((h,) if h.dim() == 2 else (_regions(h), _energy(h)))]
    return torch.cat(flat, 1) if len(flat) > 1 else flat[0]


def _regions(h: Tensor) -> Tensor:
    """Means over about four parts of the last axis, by two of the others; over all if it is wide.

    Of a wide layer they would be more than the head can learn from.
    """
    most = MAX_CHANNELS // h.shape[1]
    parts = [min(2, max(1, most // 4)), min(4, most)]
    if h.dim() == 3:
        return F.avg_pool1d(h, _part(h, 2, parts[1])).flatten(1)
    image = h if h.dim() == 4 else h.flatten(2, -2)
    kernel = [_part(image, 2, parts[0]), _part(image, 3, parts[1])]
    return F.avg_pool2d(image, kernel).flatten(1)


def _part(h: Tensor, dim: int, count: int) -> int:
    return max(1, h.shape[dim] // count)


def _energy(h: Tensor) -> Tensor:
    return (h * h).mean(list(range(2, h.dim()))).sqrt()


class EarlyExit(Converted):
    """A fitted model that answers as soon as it is sure enough; made by ``early_exit``.

    With another temperature or abstain rule it is a model without exits again, because they were
    fitted to the answers as they were.

    Attributes:
        segments: the network in pieces, with a head at the end of each but the last.
        rule: when an input leaves.
        costs: for each exit, and last for the whole network with its exits, the multiply-adds until
            then, as a share of those of the network without exits.
    """

    def __init__(
        self,
        whole: Converted,
        segments: Sequence[fx.GraphModule],
        rule: ExitRule,
        costs: Sequence[float],
    ) -> None:
        known = (whole.network, whole.source, whole.report, whole.settings, whole.input_var)
        super().__init__(*known, whole.own)
        if len(segments) != len(costs) or not all(0 < cost < 100 for cost in costs):
            raise InputError("Exits need a cost for each segment, as a share of the network's.")
        for segment in segments:
            quicken(segment)
        self.segments = nn.ModuleList(segments)
        self.rule, self.costs = rule, tuple(map(float, costs))

    @property
    def whole(self) -> Converted:
        """The model without exits, on the same weights."""
        return self.with_changes()

    @property
    def pieces(self) -> list[fx.GraphModule]:
        return [piece for piece in self.segments if isinstance(piece, fx.GraphModule)]

    @property
    def fields(self) -> tuple[str, ...]:
        """What each segment returns last."""
        return FIELDS + (GUARDED if self.settings.contract else ())

    def forward(self, *inputs: Tensor, **named: Tensor) -> Prediction:
        """As the whole model; ``exit`` says which exit answered. Rows that left cost no more."""
        checked = self.check_inputs(named or inputs)
        live: Sequence[Tensor] = checked
        rows = torch.arange(len(checked[0]), device=checked[0].device)
        found, order = list[Prediction](), list[Tensor]()
        for place, segment in enumerate(self.segments):
            live, said = self.say(segment(*live), checked)
            last = place == len(self.segments) - 1
            leaves = torch.ones_like(rows, dtype=torch.bool) if last else self.rule(said)
            if last or bool(leaves.any()):
                found.append(_at(said.take(leaves), place))
                order.append(rows[leaves])
                rows = rows[~leaves]
                live, checked = ([x[~leaves] for x in each] for each in (live, checked))
            if found and not len(rows):
                break
        return Prediction.cat(found).take(torch.cat(order).argsort())

    def say(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[Sequence[Tensor], Prediction]:
        """What a segment returns: what the next one takes, and the answer of its exit."""
        live, fields = outputs[: -len(self.fields)], outputs[-len(self.fields) :]
        said = self.name_outputs(fields)
        return live, self.decide(hide_rows(said, inputs))

    @torch.no_grad()
    def answers(self, *inputs: Tensor) -> list[Prediction]:
        """What every exit says of every input, the whole network last."""
        checked = self.check_inputs(inputs)
        live, found = list[Tensor](checked), list[Prediction]()
        for place, segment in enumerate(self.segments):
            outputs, said = self.say(segment(*live), checked)
            live = list(outputs)
            found.append(_at(said, place))
        return found

    def cost(self, prediction: Prediction) -> Tensor:
        """For each input the multiply-adds spent, as a share of the network's without exits."""
        if prediction.exit is None:
            raise InputError("The prediction has no exits: ask the model of early_exit.")
        return torch.tensor(self.costs, device=prediction.exit.device)[prediction.exit]

    def plot(self, inputs: Tensor, labels: Tensor, path: Path | str) -> None:
        """Draw errors, multiply-adds and coverage over all thresholds for labelled inputs."""
        draw_exits(self.answers(inputs), labels, self.costs, self.rule.threshold, path)

    def extra_repr(self) -> str:
        return f"costs={', '.join(f'{cost:.2f}' for cost in self.costs)}; {self.rule}"


def _at(said: Prediction, place: int) -> Prediction:
    return replace(said, exit=torch.full((len(said.mean),), place, device=said.mean.device))
