"""From the logits of several passes, or several networks, to one ``Prediction``."""

from __future__ import annotations

import torch
from torch import Tensor

from onesigma import head
from onesigma.prediction import Prediction


class Totals:
    """Running sums, in float64: memory does not grow with the number of passes.

    mean, var   of the logits over the passes; var is the unbiased one, and 0 for one pass
    probs       the average softmax;   epistemic   the mutual information
    """

    def __init__(self, task: str, class_dim: int) -> None:
        self.task = task
        self.class_dim = class_dim
        self.passes = 0
        self.sums: list[Tensor] = []

    def add(self, logits: Tensor) -> None:
        """Take in the logits of some passes, shape (passes, batch, …)."""
        values = logits.double()
        terms = [values, values.square()]
        if self.task == "classification":
            # One dim more than the logits: the passes come first.
            dim = self.class_dim + 1 if self.class_dim >= 0 else self.class_dim
            log_probs = torch.log_softmax(values.movedim(dim, -1), -1)
            probs = log_probs.exp()
            terms += [probs, -(probs * log_probs).sum(-1)]
        sums = [term.sum(0) for term in terms]
        self.sums = [a + b for a, b in zip(self.sums, sums, strict=True)] if self.sums else sums
        self.passes += len(logits)
        self.dtype = logits.dtype

    def prediction(self) -> Prediction:
        mean, square, *rest = (total / self.passes for total in self.sums)
        unbiased = self.passes / max(1, self.passes - 1)
        var = (square - mean.square()).clamp(min=0) * unbiased
        fields = {"mean": mean, "var": var}
        if rest:
            fields |= head.with_entropies(rest[0], rest[1], self.class_dim)._asdict()
        cast = {name: value.to(self.dtype) for name, value in fields.items()}
        return Prediction(**cast, class_dim=self.class_dim)
