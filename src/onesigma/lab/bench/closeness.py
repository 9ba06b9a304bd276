"""How far methods are from Monte Carlo, in nats and in passes, by an ``Exam`` of many passes.

    passes = 30 · KL(30 passes) / KL(method)          what it is worth: KL falls as 1 / passes

What is left is capped: nobody is said to be worth more passes than the reference has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onesigma.calibration.exam import Exam

FEW = 30
_RESAMPLED = 2000


@dataclass(frozen=True)
class Distance:
    """Of one method to Monte Carlo, on inputs of one kind.

    Attributes:
        kl: in nats, without what the reference's own noise adds.
        passes: of Monte Carlo that are as close; at most those of the reference.
        low: 5 % quantile of ``passes`` when the inputs are resampled.
        high: 95 % quantile.
        std_ratio: standard deviation of the logits over the reference's, median over all.
    """

    kl: float
    passes: float
    low: float
    high: float
    std_ratio: float | None = None


def compare(
    exam: Exam,
    few: Mapping[int, Tensor],
    answers: Mapping[str, tuple[Tensor, Tensor | None]],
) -> dict[str, Distance]:
    """The distance of every method.

    Args:
        exam: what they are compared with.
        few: for each number of passes the probabilities of several runs: (runs, inputs, classes).
        answers: for each method its probabilities, and the logits' standard deviation if it has it.
    """
    runs = {
        count: torch.stack([exam.distances(run) for run in probs]).mean(0)
        for count, probs in few.items()
    }
    measure = runs[FEW]
    found = {name_of(n): _distance(own, measure, exam.passes) for n, own in runs.items()}
    spread = exam.reference.logits.double().std(1).clamp(min=1e-12)
    for name, (probs, std) in answers.items():
        distance = _distance(exam.distances(probs), measure, exam.passes)
        ratio = None if std is None else float((std / spread).median())
        found[name] = replace(distance, std_ratio=ratio)
    return found


def name_of(passes: int) -> str:
    return f"MC-{passes}"


def _distance(own: Tensor, few: Tensor, most: int) -> Distance:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(len(own), (_RESAMPLED, len(own)), generator=generator)
    again = _worth(own[rows].mean(1), few[rows].mean(1), most)
    low, high = torch.quantile(again, torch.tensor([0.05, 0.95], dtype=again.dtype)).tolist()
    passes = float(_worth(own.mean(), few.mean(), most))
    return Distance(float(own.mean()), passes, low, high)


def _worth(own: Tensor, few: Tensor, most: int) -> Tensor:
    """How many passes; where nothing but noise is left, as many as can be told."""
    return torch.where(own > 0, FEW * few / own, float(most)).clamp(max=most)
