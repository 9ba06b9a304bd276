"""What every baseline is made of: the original network, run plainly, and sums over several runs.

Captured as conversion captures it: a final softmax is understood, the model is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onesigma import head
from onesigma.conversion import TASKS, as_captured, require_one_of
from onesigma.converted import Converted
from onesigma.prediction import Prediction


def original(
    model: nn.Module,
    inputs: Sequence[Any],
    task: str,
    class_dim: int | None,
    output: str | int | None = None,
) -> Converted:
    """A network as it was captured from an input; a converted one has its original already."""
    if isinstance(model, Converted):
        return model
    given = inputs[0] if len(inputs) == 1 else tuple(inputs)  # the one may be a dict
    return as_captured(model, given, task, class_dim, output)


def backbone(
    model: nn.Module,
    *,
    task: str = "classification",
    class_dim: int | None = None,
    output: str | int | None = None,
) -> Backbone:
    """The plain network, dropout off, with the same ``Prediction`` as a converted one.

    Its logits have no variance, so all the entropy of its one softmax is aleatoric.

    Args:
        model: the original network, or a converted one (then its original is run).
        task: "classification" or "regression".
        class_dim: dimension of the classes; 1, or that of the model's final softmax.
        output: which of several outputs is the answer, as for ``convert``.
    """
    require_one_of("task", task, TASKS)
    return Backbone(model, task, class_dim, output)


@dataclass
class Backbone:
    """See ``backbone``. The graph is captured at the first call, from the input it gets."""

    model: nn.Module
    task: str
    class_dim: int | None
    output: str | int | None = None
    _original: Converted | None = None

    def __call__(self, *inputs: Tensor) -> Prediction:
        """The logits, without variance, and their one softmax."""
        network, logits = self.original(inputs), self.logits(*inputs)
        fields = {"mean": logits, "var": torch.zeros_like(logits)}
        dim = network.settings.class_dim
        if network.settings.task == "classification":
            fields |= head.classify_certain(logits, dim)._asdict()
        return Prediction(**fields, class_dim=dim)

    @torch.no_grad()
    def logits(self, *inputs: Tensor) -> Tensor:
        """What the network says before its softmax, shape (batch, …)."""
        network = self.original(inputs)
        logits: Tensor = network.source(*network.check_inputs(inputs))[0]
        return logits

    def original(self, inputs: tuple[Tensor, ...]) -> Converted:
        if self._original is None:
            self._original = original(self.model, inputs, self.task, self.class_dim, self.output)
        return self._original


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
            terms += head.softmax_and_entropy(values, dim)
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
