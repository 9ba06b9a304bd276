"""ApDeepSense (Yao et al. 2018): moments carried through a fully connected network.

The paper names it as a baseline in two sentences, and this is how they are read here:

- "a 5-layer neural network composed of fully connected layers with 512 hidden dimensions and ReLU":
  four hidden layers of 512 and the output layer, counted as the paper counts its own network (four
  convolutions and one linear are "five-layer"), with dropout 0.5 at each internal layer. It is
  ``experiments.networks.fully_connected``, trained as the others are.
- "the result based on only one softmax operation": probs = softmax(mean of the logits). No draws;
  the variance is there, in ``var``, and has no part in the probabilities. So the doubt of a class
  has no epistemic part: that is what the paper means by "does not translate to classification".

The moments are those of ``convert``: on fully connected layers with dropout and ReLU both methods
use the same equations. The input prior (``input_std``) is ours, so it is off unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from onesigma.conversion import convert
from onesigma.converted import Converted
from onesigma.head import classify_certain
from onesigma.prediction import Prediction


def apdeepsense(
    model: nn.Module, *, input_std: float | Tensor | None = None, class_dim: int = 1
) -> ApDeepSense:
    """Moment propagation with one softmax of the mean logits, and the same ``Prediction``.

    Args:
        model: a fully connected network with dropout that returns logits.
        input_std: standard deviation of the input noise, as for ``convert``.
        class_dim: dimension of the classes.
    """
    return ApDeepSense(model, input_std, class_dim)


@dataclass
class ApDeepSense:
    """See ``apdeepsense``. The model is converted at the first call, from the input it gets."""

    model: nn.Module
    input_std: float | Tensor | None
    class_dim: int
    _converted: Converted | None = None

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> Prediction:
        moments = self._network(inputs)(*inputs)
        classes = classify_certain(moments.mean, self.class_dim)
        return Prediction(moments.mean, moments.var, **classes._asdict(), class_dim=self.class_dim)

    def _network(self, inputs: tuple[Tensor, ...]) -> Converted:
        if self._converted is None:
            # "regression" stops at mean and variance: there is no head, hence nothing is drawn.
            self._converted = convert(
                self.model, inputs, input_std=self.input_std, task="regression"
            )
        return self._converted
