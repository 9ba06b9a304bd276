"""``Prediction``: what every method here returns, so that metrics and plots are written once."""

from __future__ import annotations

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


@dataclass(frozen=True, eq=False)
class Prediction(Answer[Tensor]):
    """An answer and its uncertainty for a batch, as tensors; ``Answer`` explains the fields."""

    @property
    def std(self) -> Tensor:
        """Standard deviation of the logits."""
        return self.var.sqrt()

    @property
    def label(self) -> Tensor:
        """The most probable class."""
        return self._probabilities().argmax(self.class_dim)

    @property
    def confidence(self) -> Tensor:
        """The probability of the most probable class."""
        return self._probabilities().amax(self.class_dim)

    @staticmethod
    def cat(predictions: Sequence[Prediction]) -> Prediction:
        """Join the predictions of several batches."""

        def column(name: str) -> Any:
            parts = [getattr(p, name) for p in predictions]
            return None if any(part is None for part in parts) else torch.cat(parts)

        columns = {f.name: column(f.name) for f in fields(Prediction) if f.name != "class_dim"}
        return Prediction(**columns, class_dim=predictions[0].class_dim)


torch.export.register_dataclass(Prediction)
