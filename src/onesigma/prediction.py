"""``Prediction``: what every method here returns, so that metrics and plots are written once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from onesigma.answer import Answer

# What a converted network computes, in the order of its outputs.
OUTPUTS = {
    "classification": ("mean", "var", "probs", "entropy", "aleatoric", "epistemic"),
    "regression": ("mean", "var"),
}
GUARDED = ("contract", "novelty")  # what a guarded network says besides


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Answer[Tensor]):
    """An answer and its uncertainty for a batch, as tensors; ``Answer`` explains the fields."""

    @property
    def std(self) -> Tensor:
        """Standard deviation of the logits."""
        return self.var.sqrt()

    @property
    def valid(self) -> Tensor:
        """For each row, whether its answer is finite; not so if the input holds NaN or infinity."""
        return torch.isfinite(torch.stack([self.mean, self.var], 1)).flatten(1).all(1)

    @property
    def confidence(self) -> Tensor:
        """The probability of the most probable class."""
        return self._probabilities().amax(self.class_dim)

    @property
    def in_contract(self) -> Tensor:
        """For each input, whether all of its channels are as ``fit`` knows them."""
        return self._places().abs().amax(1) <= 1

    def detach(self) -> Prediction:
        """On the CPU and without gradients, as numpy takes it."""
        return self.each(lambda value: value.detach().cpu())

    @staticmethod
    def cat(predictions: Sequence[Prediction]) -> Prediction:
        """Join the predictions of several batches."""

        def column(name: str) -> Any:
            parts = [getattr(p, name) for p in predictions]
            return None if any(part is None for part in parts) else torch.cat(parts)

        columns = {f.name: column(f.name) for f in fields(Prediction) if f.name != "class_dim"}
        return Prediction(**columns, class_dim=predictions[0].class_dim)


def hide_rows(prediction: Prediction, inputs: Sequence[Tensor]) -> Prediction:
    """NaN in place of every number of a row whose input holds NaN or infinity."""
    floating = [x for x in inputs if x.is_floating_point()]
    if _are_finite(floating):
        return prediction
    # 0 or NaN for each row, to be added: there is no branch, so that it can be compiled.
    marks = [(x * 0).unsqueeze(-1).flatten(1).sum(1) for x in floating]

    def hide(value: Tensor) -> Tensor:
        for mark in marks:
            own = mark if value.shape[0] == mark.shape[0] else mark.sum(0, keepdim=True)
            value = value + own.to(value.dtype).reshape(-1, *[1] * (value.dim() - 1))
        return value

    return prediction.each(hide)


def _are_finite(inputs: Sequence[Tensor]) -> bool:
    """Whether a quick look at the sums says so; False where values cannot be looked at."""
    if torch.compiler.is_compiling() or not all(x.is_cpu for x in inputs):
        return False
    try:
        return all(math.isfinite(x.sum().item()) for x in inputs)
    except RuntimeError:  # under vmap, or while it is traced
        return False


torch.export.register_dataclass(Prediction)
