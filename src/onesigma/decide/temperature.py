"""Temperature: correct the confidence with labels, by one number. Plain torch ops, so it exports.

    NLL(b) = mean of −b log p(label) + log Σₖ pₖᵇ,   b = 1/T
is convex in b, so its slope changes sign at most once: bisection finds where. Guo et al. 2017, on
the predictive distribution instead of the logits.

With a guard, it can grow with how unfamiliar the input is:

    T(x) = T · max(1, 0.05 / novelty)^shift
Among 20 known inputs, 19 keep their T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onesigma.errors import InputError
from onesigma.prediction import Prediction

KNOWN = 0.05  # inputs that are as odd as more than this share of the known ones keep their T
_ODDEST = 1e-6  # novelty below this cannot be told from 0
# All answers right drives T to 0, answers worse than chance to ∞: it stops here.
LIMIT = 32.0


@dataclass(frozen=True)
class Temperature:
    """One number that corrects a confidence that is too high (above 1) or too low (below 1).

        p → p^(1/T) / Σₖ pₖ^(1/T)
    The most probable class stays the same. With ``shift`` above 0 it grows with novelty.
    """

    value: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.value < math.inf:
            raise InputError(f"A temperature is a positive number, not {self.value}.")
        if not 0 <= self.shift < math.inf:
            raise InputError(f"The shift of a temperature is no number below 0: {self.shift}.")

    def apply(self, prediction: Prediction) -> Prediction:
        """The prediction with new ``probs`` and ``entropy``, all else as it was.

        ``aleatoric`` and ``epistemic`` are averages over the network's own spread, about which the
        labels say nothing: they are kept, and no longer add up to ``entropy``.
        """
        if prediction.probs is None:
            raise InputError("A regression prediction has no probabilities for a temperature.")
        log_probs = tempered(logs(prediction.probs), self.of(prediction), prediction.class_dim)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(prediction.class_dim)
        return replace(prediction, probs=probs, entropy=entropy)

    def of(self, prediction: Prediction) -> float | Tensor:
        """T of each input, shaped to divide its probabilities."""
        if not self.shift:
            return self.value
        if prediction.novelty is None or prediction.probs is None:
            raise InputError("A temperature that grows with novelty needs a guarded model.")
        novelty = prediction.novelty.clamp(_ODDEST, KNOWN)
        shape = [-1, *[1] * (prediction.probs.dim() - 1)]
        return (self.value * math.pow(KNOWN, self.shift) * novelty.pow(-self.shift)).reshape(shape)


def logs(probs: Tensor) -> Tensor:
    """Logarithms, those of an exact zero finite."""
    return probs.clamp(min=torch.finfo(probs.dtype).tiny).log()


def tempered(log_probs: Tensor, temperature: float | Tensor, class_dim: int) -> Tensor:
    return torch.log_softmax(log_probs / temperature, class_dim)


def fit_temperature(probs: Tensor, labels: Tensor, *, class_dim: int = 1) -> Temperature:
    """The temperature of least negative log-likelihood, between 1/32 and 32.

    Args:
        probs: class probabilities, as of ``Prediction.probs``.
        labels: the true classes, for inputs that neither training nor ``threshold`` uses.
        class_dim: the dimension of the classes in ``probs``.
    """
    labels = checked_labels(probs, labels, class_dim)
    log_probs = logs(probs.detach()).double().movedim(class_dim, -1).flatten(0, -2)
    # Below the top by how much: exactly 0 for uniform rows, which say nothing about T.
    log_probs = log_probs - log_probs.amax(-1, keepdim=True)
    chosen = log_probs.gather(-1, labels.reshape(-1, 1)).mean()

    def slope(inverse: float) -> float:
        weights = tempered(log_probs, 1 / inverse, -1).exp()
        return float((weights * log_probs).sum(-1).mean() - chosen)

    low = high = 1.0
    while slope(high) < 0 and high < LIMIT:
        low, high = high, 2 * high
    while slope(low) > 0 and low > 1 / LIMIT:
        low, high = low / 2, low
    while high - low > 1e-9 * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return Temperature(1 / high)


def checked_labels(probs: Tensor, labels: Tensor, class_dim: int) -> Tensor:
    """The labels as integers beside ``probs``; raises InputError if either is not what it says."""
    labels = torch.as_tensor(labels, device=probs.device)
    wanted = probs.movedim(class_dim, -1).shape
    if labels.shape != wanted[:-1] or labels.numel() == 0:
        raise InputError(
            f"Expected labels of shape {tuple(wanted[:-1])}, at least one, for probabilities of "
            f"shape {tuple(probs.shape)}; got {tuple(labels.shape)}."
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"Labels are the numbers of classes, integers, not {labels.dtype}.")
    if int(labels.min()) < 0 or int(labels.max()) >= wanted[-1]:
        raise InputError(
            f"Labels are within 0..{wanted[-1] - 1}, not {int(labels.min())}..{int(labels.max())}."
        )
    total = probs.sum(class_dim)
    if not bool((probs >= 0).all()) or not torch.allclose(total, torch.ones_like(total), atol=1e-3):
        raise InputError("Probabilities are positive and sum to 1: did you pass logits, or NaN?")
    return labels.long()
