"""BackboneDNN: the plain network behind the same call, a baseline without uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from onesigma.baselines.original import Original, check_task, original
from onesigma.head import classify_certain
from onesigma.prediction import Prediction


def backbone(
    model: nn.Module, *, task: str = "classification", class_dim: int | None = None
) -> Backbone:
    """The plain network, dropout off, with the same ``Prediction`` as a converted one.

    Its logits have no variance, so all the entropy of its one softmax is aleatoric.

    Args:
        model: the original network, or a converted one (then its original is run).
        task: "classification" or "regression".
        class_dim: dimension of the classes; 1, or that of the model's final softmax.
    """
    check_task(task)
    return Backbone(model, task, class_dim)


@dataclass
class Backbone:
    """See ``backbone``. The graph is captured at the first call, from the input it gets."""

    model: nn.Module
    task: str
    class_dim: int | None
    _original: Original | None = None

    def __call__(self, *inputs: Tensor) -> Prediction:
        """The logits, without variance, and their one softmax."""
        network, logits = self.original(inputs), self.logits(*inputs)
        fields = {"mean": logits, "var": torch.zeros_like(logits)}
        if network.task == "classification":
            fields |= classify_certain(logits, network.class_dim)._asdict()
        return Prediction(**fields, class_dim=network.class_dim)

    @torch.no_grad()
    def logits(self, *inputs: Tensor) -> Tensor:
        """What the network says before its softmax, shape (batch, …)."""
        network = self.original(inputs)
        logits: Tensor = network.graph(*network.check_inputs(inputs))[0]
        return logits

    def original(self, inputs: tuple[Tensor, ...]) -> Original:
        if self._original is None:
            self._original = original(self.model, inputs, self.task, self.class_dim)
        return self._original
