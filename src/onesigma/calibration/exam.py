"""``Exam``: how far an answer is from that of Monte Carlo, in nats and in passes.

    distance of k passes to R others = D / k + D / R

D is that of one pass. A few passes of the reference, held against its others, tell it. The distance
of anything else to R passes holds D / R, too, which is not its own: that is subtracted. It matters:
with R = 400, what is worth 100 passes would be taken for what is worth 80.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from onesigma.calibration.teacher import Lesson
from onesigma.converted import Converted
from onesigma.report import Closeness

_FEW = 30  # passes


@dataclass(frozen=True)
class Exam:
    """What Monte Carlo says of held-out inputs.

    Probabilities are compared, or, for regression, normal distributions.
    """

    reference: Lesson
    task: str = "classification"

    @property
    def passes(self) -> int:
        return self.reference.logits.shape[1]

    @cached_property
    def one_pass(self) -> Tensor:
        """D for each input, from groups of a few passes against the rest."""
        parts, found = torch.split(self.reference.logits, _FEW, 1), []
        for k in range(self.passes // _FEW):
            rest = torch.cat([*parts[:k], *parts[k + 1 :]], 1)
            found.append(self._apart(self._say(rest), self._say(parts[k])))
        return torch.stack(found).mean(0) / (1 / _FEW + 1 / (self.passes - _FEW))

    def _say(self, passes: Tensor) -> Tensor:
        """What is compared, of passes: probabilities, or (mean, variance)."""
        if self.task == "classification":
            return passes.softmax(-1).mean(1)
        return torch.stack([passes.mean(1), passes.var(1)])

    def _apart(self, reference: Tensor, found: Tensor) -> Tensor:
        """The distance for each input, the average over its rows."""
        between = divergences if self.task == "classification" else normal_divergences
        return between(reference, found).reshape(len(self.reference.inputs[0]), -1).mean(1)

    def distances(self, said: Tensor) -> Tensor:
        """Of probabilities, or (mean, variance), for each input, without that of the reference."""
        return self._apart(self._say(self.reference.logits), said) - self.one_pass / self.passes

    def mark(self, kind: str, made: Converted) -> Closeness:
        answer, rows = made.answer(*self.reference.inputs), self.reference.places.rows
        mean, var = rows(answer.mean), rows(answer.var)
        said = torch.stack([mean, var]) if answer.probs is None else rows(answer.probs)
        one, own = self.one_pass, self.distances(said)
        least = one.mean() / (10 * self.passes)  # closer than this cannot be told
        distance = float(torch.maximum(own.mean(), least).clamp(min=1e-12))
        worth = float(one.mean()) / distance
        # Of a ratio of two means over the same inputs, by the delta method.
        error = float((one - worth * own).std()) / (distance * len(own) ** 0.5)
        wanted = self.reference.logits.std(1).mean(1).clamp(min=1e-12)
        ratio = float((var.sqrt().mean(1) / wanted).median())
        return Closeness(kind, distance, worth, error, ratio)


def divergences(reference: Tensor, probs: Tensor) -> Tensor:
    """KL(reference ‖ probs) in nats, classes last."""
    p, q = (each.double().clamp(min=1e-12) for each in (reference, probs))
    return (p * (p / q).log()).sum(-1)


def normal_divergences(reference: Tensor, found: Tensor) -> Tensor:
    """KL of two normal distributions, given as (mean, variance), for each row of outputs."""
    (mean, var), (own, given) = (each.double() for each in (reference, found))
    least = 1e-6 * var.mean(0) + 1e-30  # what never varies would make it infinite
    var, given = var + least, given + least
    ratio = var / given
    each: Tensor = (mean - own).square() / given + ratio - 1 - ratio.log()
    return 0.5 * each.sum(-1)
