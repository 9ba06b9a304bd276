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

import torch
from torch import Tensor

from onesigma.decide.temperature import fit_temperature
from onesigma.lab.datasets.prepared import Splits
from onesigma.lab.paper import methods
from onesigma.lab.paper.conditions import CLEAN, DRIFT, Condition, some_rows
from onesigma.lab.paper.evaluate import Method, array, evaluate, predict, spot
from onesigma.lab.paper.recipes import Pools
from onesigma.lab.training.train import TrainingSettings
from onesigma.metrics import is_wrong
from onesigma.prediction import Prediction
from onesigma.storage.atomic import remove_leftovers, replacing
from onesigma.version import __version__

Say = Callable[[str], None]
# Raise it when what a trial computes changes: trials kept by older code are then run again.
FORMAT = 1
DRAWN = (methods.OURS, methods.PLAIN, "MCDrop-30")


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
        """Of all that decides the outcome of a trial; how many others there are does not."""
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
    content = {"key": key, "trial": trial, **_run(study, plan, trial, say)}
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(without_nan(content)), encoding="utf-8")
    # Read back, so that a resumed run cannot differ from one in a go.
    return read_json(path)


def without_nan(value: Any) -> Any:
    """NaN, which JSON does not know, as null."""
    if isinstance(value, dict):
        return {key: without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> dict[str, Any]:
    """What is kept; nothing if there is none or it is damaged, for it can be made again."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _run(study: Study, plan: Plan, trial: int, say: Say) -> dict[str, Any]:
    train = study.splits.train
    rows = some_rows(len(train.inputs), plan.calibration_inputs, plan.seed)
    say(f"trial {trial + 1} of {plan.trials}: calibrating ours on {len(rows)} training inputs")
    built = methods.build(
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
    wrong = is_wrong(array(known.probs), array(labels))
    values, foreign = (array(getattr(p, quantity)).round(4) for p in (known, random))
    return {
        "right": values[~wrong].tolist(),
        "wrong": values[wrong].tolist(),
        "random": foreign.tolist(),
    }
