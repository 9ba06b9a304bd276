"""One method on one kind of input → a flat dict of figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from onesigma import metrics
from onesigma.decide.temperature import Temperature
from onesigma.head import fixed_draws
from onesigma.prediction import Prediction

Method = Callable[[Tensor], Prediction]
Figures = dict[str, float]

CHUNK = 256


@torch.no_grad()
def predict(method: Method, inputs: Tensor) -> Prediction:
    """The method's answers, in pieces that fit in memory."""
    return Prediction.cat([method(chunk) for chunk in torch.split(inputs, CHUNK)])


def evaluate(prediction: Prediction, labels: Tensor, temperature: Temperature) -> Figures:
    """How good the answers are, and the doubt; "…, T" is after the temperature.

    The temperature must come from validation data.
    """
    probs, classes = array(prediction.probs), array(labels)
    doubt = {"max-probability": 1 - metrics.confidence(probs), **scores_of(prediction)}
    right_and_wrong = metrics.right_and_wrong(probs, classes)
    tempered = array(temperature.apply(prediction).probs)
    return {
        "accuracy": metrics.accuracy(probs, classes),
        "F1 macro": metrics.f1_macro(probs, classes),
        "F1 weighted": metrics.f1_weighted(probs, classes),
        **_calibration(probs, classes),
        "Gaussian NLL": _gaussian_nll(prediction, labels),
        **{name.replace("_", " "): value for name, value in asdict(right_and_wrong).items()},
        **{
            f"error AUROC, {name}": metrics.spot_errors(scores, probs, classes).auroc
            for name, scores in doubt.items()
            if name != "energy"
        },
        "AURC": metrics.aurc(1 - metrics.confidence(probs), metrics.is_wrong(probs, classes)),
        "temperature": temperature.value,
        **{f"{name}, T": value for name, value in _calibration(tempered, classes).items()},
    }


def spot(known: Prediction, foreign: Prediction) -> dict[str, Figures]:
    """Score → how well it tells foreign input from known."""
    strange = scores_of(foreign)
    return {
        name: asdict(metrics.spot_foreign(scores, strange[name]))
        for name, scores in scores_of(known).items()
    }


def scores_of(prediction: Prediction) -> dict[str, npt.NDArray[Any]]:
    """What the method offers as a score of doubt, higher for more of it.

    The plain network: all that is usually made of a softmax. The others: entropy, and the epistemic
    part where there is one (with the single softmax of ApDeepSense there is none).
    """
    entropy, epistemic = array(prediction.entropy), array(prediction.epistemic)
    if is_plain(prediction):
        confidence, energy = array(prediction.confidence), metrics.energy(array(prediction.mean))
        return {"max-probability": 1 - confidence, "entropy": entropy, "energy": energy}
    return {"entropy": entropy} | ({"epistemic": epistemic} if epistemic.any() else {})


def is_plain(prediction: Prediction) -> bool:
    """Whether the logits have no variance at all."""
    return not prediction.var.any()


def array(tensor: Tensor | None) -> npt.NDArray[Any]:
    assert tensor is not None
    return tensor.detach().numpy()


def _calibration(probs: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Figures:
    return {
        "NLL": metrics.nll(probs, classes),
        "Brier": metrics.brier(probs, classes),
        "ECE": metrics.expected_calibration_error(probs, classes),
        "ECE adaptive": metrics.expected_calibration_error(probs, classes, equal_mass=True),
    }


def _gaussian_nll(prediction: Prediction, labels: Tensor) -> float:
    """The paper's formula, labels one-hot against mean and variance of the class probabilities.

    These are of the softmax over normal logits, for all methods alike. NaN without a variance.
    """
    if is_plain(prediction):
        return float("nan")
    mean, std = prediction.mean.double(), prediction.var.double().sqrt()
    draws = fixed_draws(64, mean.shape[1])
    probs = torch.softmax(mean[:, None] + std[:, None] * draws, -1)
    observed = F.one_hot(labels, mean.shape[1])
    moments = (array(probs.mean(1)), array(probs.var(1)))
    return metrics.gaussian_nll(*moments, np.asarray(observed))
