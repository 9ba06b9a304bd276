"""``Prediction``: what every method here returns, so that metrics and plots are written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Prediction:
    """An answer and its doubt, for a batch.

    Attributes:
        mean: mean of the logits (of the output itself for regression).
        var: variance of the logits.
        probs: class probabilities, the mean softmax over the output distribution.
        entropy: predictive entropy of ``probs`` in nats: all the doubt there is.
        aleatoric: expected entropy, the doubt that lies in the data.
        epistemic: mutual information, the doubt that lies in the network. It spots foreign input.
        plain_probs: the original network's softmax, where the method yields it.
        class_dim: the dimension of the classes in ``mean``, ``var`` and the probabilities.
    """

    mean: Tensor
    var: Tensor
    probs: Tensor | None = None
    entropy: Tensor | None = None
    aleatoric: Tensor | None = None
    epistemic: Tensor | None = None
    plain_probs: Tensor | None = None
    class_dim: int = field(default=1, kw_only=True)

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

    def _probabilities(self) -> Tensor:
        if self.probs is None:
            raise AttributeError("A regression prediction has no classes: use mean and var.")
        return self.probs

    @staticmethod
    def cat(predictions: Sequence[Prediction]) -> Prediction:
        """Join the predictions of several batches."""

        def column(name: str) -> Any:
            parts = [getattr(p, name) for p in predictions]
            return None if any(part is None for part in parts) else torch.cat(parts)

        columns = {f.name: column(f.name) for f in fields(Prediction) if f.name != "class_dim"}
        return Prediction(**columns, class_dim=predictions[0].class_dim)


torch.export.register_dataclass(Prediction)
