"""One trial of a study: every method on every condition, kept as one JSON file.

A study is a task with its networks and its test input. A finished trial is read again instead of
run again, as long as nothing that decides its outcome has changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from onesigma import metrics
from onesigma.decide.temperature import Temperature, fit_temperature
from onesigma.head import fixed_draws
from onesigma.lab import spotting
from onesigma.lab.datasets.split import Splits
from onesigma.lab.paper import methods
from onesigma.lab.paper.conditions import CLEAN, DRIFT, Condition, some_rows
from onesigma.lab.paper.methods import Method, Pools
from onesigma.lab.training.train import TrainingSettings
from onesigma.prediction import Prediction
from onesigma.storage.atomic import write_text
from onesigma.version import __version__

Say = Callable[[str], None]
Figures = dict[str, float]
# Raise it when what a trial computes changes: trials kept by older code are then run again.
FORMAT = 1
DRAWN = (methods.OURS, methods.PLAIN, "MCDrop-30")
CHUNK = 256


@dataclass(frozen=True)
class Plan:
    """How much work a run is; `quick` only labels it."""

    settings: TrainingSettings
    members: int
    trials: int
    seed: int = 0
    quick: bool = False
    limit: int | None = None  # rows per test condition
    calibration_inputs: int = 200
    calibration_passes: int = 100
    repeats: int = 300


@dataclass(frozen=True)
class Study:
    """What is tested, on which networks."""

    splits: Splits
    pools: Pools
    conditions: list[Condition]
    foreign: dict[str, Tensor]

    def digest(self, plan: Plan, trial: int) -> str:
        """Of all that decides the outcome of a trial; the number of other trials does not."""
        settings = {"format": FORMAT, "version": __version__, "torch": torch.__version__}
        names = [*(c.name for c in self.conditions), *self.foreign]
        words = [settings, asdict(plan) | {"trials": None}, names]
        found = hashlib.sha256(json.dumps(words).encode())
        networks = [trained.network for trained in self.pools.convolutional.members]
        networks += self.pools.fully_connected.draw(1, trial)
        tensors = [value for network in networks for value in network.state_dict().values()]
        for tensor in (
            *(*tensors, self.splits.train.inputs),
            *(self.splits.validation.inputs, self.splits.validation.labels),
            *(t for condition in self.conditions for t in condition[1:]),
            *self.foreign.values(),
        ):
            found.update(tensor.contiguous().numpy().data)
        return found.hexdigest()[:16]


def run_or_read(study: Study, plan: Plan, trial: int, path: Path, say: Say) -> dict[str, Any]:
    """The content of the trial's file, made if there is none of this very study."""
    key = study.digest(plan, trial)
    kept = read_json(path)
    if kept.get("key") == key:
        say(f"trial {trial + 1} of {plan.trials}: already there, in {path}")
        return kept
    content = {"key": key, "trial": trial, **run_trial(study, plan, trial, say)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(without_nan(content)))
    # Read back, so that a resumed run cannot differ from an uninterrupted one.
    return read_json(path)


def without_nan(value: Any) -> Any:
    """NaN, which JSON does not know, as null."""
    if isinstance(value, dict):
        return {key: without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> dict[str, Any]:
    """What is kept. Nothing if it is absent or damaged, because it can be made again."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def run_trial(study: Study, plan: Plan, trial: int, say: Say) -> dict[str, Any]:
    train = study.splits.train
    rows = some_rows(len(train.inputs), plan.calibration_inputs, plan.seed)
    say(f"trial {trial + 1} of {plan.trials}: calibrating ours on {len(rows)} training inputs")
    built = methods.build_methods(
        *(study.pools, trial, train.inputs[rows]), passes=plan.calibration_passes, seed=plan.seed
    )
    content: dict[str, Any] = {"labelled": [], "foreign": [], "densities": {}}
    largest = next(name for name in reversed(methods.COLUMNS) if name in built)
    for name, method in built.items():
        say(f"trial {trial + 1} of {plan.trials}: {name}")
        predictions, strange = _measure(study, plan, name, method, content)
        if trial == 0 and name in (*DRAWN, largest):
            content["densities"][name] = _densities(study, predictions, strange)
    (network,) = study.pools.convolutional.draw(1, trial)
    one = study.conditions[0].inputs[:1]
    content["milliseconds"] = methods.milliseconds(built, network, one, plan.repeats)
    return content


def _measure(
    study: Study, plan: Plan, name: str, method: Method, content: dict[str, Any]
) -> tuple[dict[str, Prediction], dict[str, Prediction]]:
    """Add the rows of one method; returns its predictions on labelled and on foreign input."""
    validation = study.splits.validation
    few = some_rows(len(validation.inputs), plan.limit, plan.seed)
    probs = predict(method, validation.inputs[few]).probs
    assert probs is not None
    temperature = fit_temperature(probs, validation.labels[few])
    predictions = {c.name: predict(method, c.inputs) for c in study.conditions}
    strange = {kind: predict(method, x) for kind, x in study.foreign.items()}
    content["labelled"] += [
        {"method": name, "condition": c.name} | evaluate(predictions[c.name], c.labels, temperature)
        for c in study.conditions
    ]
    content["foreign"] += [
        {"method": name, "input": kind, "score": score, **figures}
        for kind, prediction in strange.items()
        for score, figures in spot(predictions[CLEAN], prediction).items()
    ]
    return predictions, strange


def _densities(
    study: Study, predictions: dict[str, Prediction], strange: dict[str, Prediction]
) -> dict[str, Any]:
    """Per condition, confidence and entropy of right and wrong answers and of random data."""
    return {
        c.name: {
            quantity: _groups(quantity, predictions[c.name], c.labels, strange[DRIFT])
            for quantity in ("confidence", "entropy")
        }
        for c in study.conditions
    }


def _groups(
    quantity: str, known: Prediction, labels: Tensor, random: Prediction
) -> dict[str, list[float]]:
    wrong = metrics.is_wrong(array(known.probs), array(labels))
    values, foreign = (array(getattr(p, quantity)).round(4) for p in (known, random))
    return {
        "right": values[~wrong].tolist(),
        "wrong": values[wrong].tolist(),
        "random": foreign.tolist(),
    }


@torch.no_grad()
def predict(method: Method, inputs: Tensor) -> Prediction:
    """The method's answers, in pieces that fit in memory."""
    return Prediction.cat([method(chunk) for chunk in torch.split(inputs, CHUNK)])


def evaluate(prediction: Prediction, labels: Tensor, temperature: Temperature) -> Figures:
    """How good the answers and their uncertainty are; "…, T" is after the temperature.

    The temperature must come from validation data.
    """
    probs, classes = array(prediction.probs), array(labels)
    scores = {"max-probability": 1 - spotting.confidence(probs), **scores_of(prediction)}
    right_and_wrong = spotting.right_and_wrong(probs, classes)
    softened = array(temperature.apply(prediction).probs)
    return {
        "accuracy": metrics.accuracy(probs, classes),
        "F1 macro": metrics.f1_macro(probs, classes),
        "F1 weighted": metrics.f1_weighted(probs, classes),
        **_calibration(probs, classes),
        "Gaussian NLL": _gaussian_nll(prediction, labels),
        **{name.replace("_", " "): value for name, value in asdict(right_and_wrong).items()},
        **{
            f"error AUROC, {name}": spotting.spot_errors(score, probs, classes).auroc
            for name, score in scores.items()
            if name != "energy"
        },
        "AURC": metrics.aurc(1 - spotting.confidence(probs), metrics.is_wrong(probs, classes)),
        "temperature": temperature.value,
        **{f"{name}, T": value for name, value in _calibration(softened, classes).items()},
    }


def spot(known: Prediction, foreign: Prediction) -> dict[str, Figures]:
    """Score → how well it tells foreign input from known."""
    strange = scores_of(foreign)
    return {
        name: asdict(spotting.spot_foreign(scores, strange[name]))
        for name, scores in scores_of(known).items()
    }


def scores_of(prediction: Prediction) -> dict[str, npt.NDArray[Any]]:
    """What the method offers as a score of uncertainty, higher for more of it.

    The plain network offers all that is usually made of a softmax. The others offer entropy, and
    the epistemic part where there is one (the single softmax of ApDeepSense has none).
    """
    entropy, epistemic = array(prediction.entropy), array(prediction.epistemic)
    if is_plain(prediction):
        confidence, energy = array(prediction.confidence), spotting.energy(array(prediction.mean))
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
