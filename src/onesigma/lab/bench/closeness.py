"""How far a method's probabilities are from those of Monte Carlo, in nats and in passes.

    KL(reference ‖ method)                 mean over inputs; the reference is many passes
    passes = 30 · KL(30 passes) / KL(method)          what it is worth: KL falls as 1 / passes

The reference is a mean p̂ of R passes and not p itself. That adds the same to every method q that
is independent of it, a fixed one or other passes:

    E KL(p̂ ‖ q) − KL(p ‖ q) = H(p) − E H(p̂) = D / R + O(1 / R²)          D / k is KL of k passes

It would matter: with R = 1,000 a method worth 300 passes would be taken for one worth 230. So it is
subtracted. For B parts of the reference, mean H(p̂) falls short by B times as much, hence

    D / R ≈ (H(p̂) − mean of H(part)) / (B − 1)
and what is left is capped: nobody is said to be worth more passes than the reference has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onesigma.calibration.observation import silent
from onesigma.calibration.teacher import Teacher

FEW = 30
_PARTS = 4
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


@dataclass(frozen=True)
class Reference:
    """Probabilities and logits' std over all passes, and what their noise adds to each KL."""

    probs: Tensor
    std: Tensor
    noise: Tensor
    passes: int

    def divergences(self, probs: Tensor) -> Tensor:
        """KL(Monte Carlo ‖ probs) for each input, without the reference's noise."""
        own = probs.double().clamp(min=1e-12)
        return -entropy(self.probs) - (self.probs * own.log()).sum(-1) - self.noise


def entropy(probs: Tensor) -> Tensor:
    return torch.special.entr(probs).sum(-1)  # type: ignore[no-any-return]


def make_reference(logits: Tensor) -> Reference:
    """From the logits of many passes: (passes, inputs, classes)."""
    each = logits.double().softmax(-1)
    probs = each.mean(0)
    parts = torch.stack([part.mean(0) for part in each.tensor_split(_PARTS)])
    noise = (entropy(probs) - entropy(parts).mean(0)) / (_PARTS - 1)
    return Reference(probs, logits.double().std(0), noise, len(logits))


def noisy_logits(teacher: Teacher, x: Tensor, passes: int, seed: int) -> Tensor:
    """The logits of Monte Carlo of the user's own network: (passes, inputs, classes)."""
    return teacher.teach((x,), passes, seed, silent).logits.transpose(0, 1)


def compare(
    reference: Reference,
    few: Mapping[int, Tensor],
    answers: Mapping[str, tuple[Tensor, Tensor | None]],
) -> dict[str, Distance]:
    """The distance of every method.

    Args:
        reference: what they are compared with.
        few: for each number of passes the probabilities of several runs: (runs, inputs, classes).
        answers: for each method its probabilities, and the logits' standard deviation if it has it.
    """
    runs = {
        count: torch.stack([reference.divergences(run) for run in probs]).mean(0)
        for count, probs in few.items()
    }
    measure = runs[FEW]
    found = {name_of(count): _distance(reference, own, measure) for count, own in runs.items()}
    for name, (probs, std) in answers.items():
        distance = _distance(reference, reference.divergences(probs), measure)
        ratio = None if std is None else float((std / reference.std.clamp(min=1e-12)).median())
        found[name] = replace(distance, std_ratio=ratio)
    return found


def name_of(passes: int) -> str:
    return f"MC-{passes}"


def _distance(reference: Reference, own: Tensor, few: Tensor) -> Distance:
    most = reference.passes
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(len(own), (_RESAMPLED, len(own)), generator=generator)
    again = _worth(own[rows].mean(1), few[rows].mean(1), most)
    low, high = torch.quantile(again, torch.tensor([0.05, 0.95], dtype=again.dtype)).tolist()
    passes = float(_worth(own.mean(), few.mean(), most))
    return Distance(float(own.mean()), passes, low, high)


def _worth(own: Tensor, few: Tensor, most: int) -> Tensor:
    """How many passes; where nothing but noise is left, as many as can be told."""
    return torch.where(own > 0, FEW * few / own, float(most)).clamp(max=most)
