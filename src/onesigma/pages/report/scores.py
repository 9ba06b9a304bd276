"""The figures of answers beside the truth, for classes and for numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from onesigma import metrics
from onesigma.prediction import Prediction

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """The answers of one method as arrays, positions of one input side by side with others'."""

    probs: Floats
    entropy: Floats
    epistemic: Floats
    labels: npt.NDArray[np.int64] | None

    @property
    def wrong(self) -> npt.NDArray[np.bool_]:
        assert self.labels is not None
        return metrics.is_wrong(self.probs, self.labels)


def answers(prediction: Prediction, labels: Tensor | None) -> Answers:
    assert prediction.probs is not None
    probs = prediction.probs.movedim(prediction.class_dim, -1)
    return Answers(
        array(probs.reshape(-1, probs.shape[-1])),
        array(prediction.entropy).reshape(-1),
        array(prediction.epistemic).reshape(-1),
        None if labels is None else labels.reshape(-1).cpu().numpy().astype(np.int64),
    )


def of_classes(found: Answers) -> dict[str, float]:
    """How good the answers are, and how good the doubt."""
    assert found.labels is not None
    both = (found.probs, found.labels)
    return {
        "accuracy": metrics.accuracy(*both),
        "F1 macro": metrics.f1_macro(*both),
        "NLL": metrics.nll(*both),
        "Brier": metrics.brier(*both),
        "ECE": metrics.expected_calibration_error(*both),
        "AUROC wrong": metrics.auroc(found.entropy, found.wrong),
        "AURC": metrics.aurc(found.entropy, found.wrong),
    }


def of_numbers(prediction: Prediction, truth: Tensor) -> dict[str, float]:
    """The same for a regression; without variance only the error is known."""
    mean, std, true = array(prediction.mean), array(prediction.std), array(truth)
    error = np.abs(true - mean)
    known = {"RMSE": float(np.sqrt(np.square(error).mean())), "mean error": float(error.mean())}
    if not std.any():
        return known
    return known | {
        "NLL": metrics.gaussian_nll(mean, std**2, true),
        "within 1 std": float((error <= std).mean()),
        "within 2 std": float((error <= 2 * std).mean()),
    }


def error_by_coverage(doubt: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Mean error of the most certain k answers, for every k, as (share kept, error)."""
    kept = np.arange(1, len(doubt) + 1)
    return kept / len(doubt), np.cumsum(error[np.argsort(doubt, kind="stable")]) / kept


def doubt_per_input(prediction: Prediction) -> Floats:
    """One number for each input: entropy, or the standard deviation of a regression."""
    value = prediction.std if prediction.entropy is None else prediction.entropy
    return np.asarray(array(value).reshape(len(value), -1).mean(1))


def array(tensor: Tensor | None) -> Floats:
    assert tensor is not None
    return tensor.detach().double().cpu().numpy()
