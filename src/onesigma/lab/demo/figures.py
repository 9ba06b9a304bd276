"""``onesigma demo``: a real smartwatch network, fitted and compared with Monte Carlo.

On people the network never saw: the plain network, one pass of what ``fit`` made of it, without and
with its guard, and 30 passes of Monte-Carlo dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma import metrics
from onesigma.baselines.backbone import backbone
from onesigma.baselines.mc_dropout import mc_dropout
from onesigma.calibration.guarding import with_guard
from onesigma.calibration.observation import Progress, silent
from onesigma.converted import Converted
from onesigma.fitting import fit
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.noise import random_walk, white_noise
from onesigma.lab.demo.checkpoint import Checkpoint
from onesigma.lab.timing import time_methods
from onesigma.prediction import Prediction
from onesigma.text_table import text_table

Method = Callable[[Tensor], Prediction]
FOREIGN = 200
PLAIN, GUARDED = "plain network", "one pass, guarded"


@dataclass(frozen=True)
class Row:
    """One method's figures. Entropies in nats; ``time_ratio`` per sample, plain network = 1."""

    method: str
    accuracy: float
    nll: float
    ece: float
    entropy_right: float
    entropy_wrong: float
    auroc_wrong: float
    noise_confidence: float
    walk_confidence: float
    auroc_walk: float
    time_ratio: float


@dataclass(frozen=True)
class Result:
    """What the demo found, ready to print, to store as JSON or to draw."""

    rows: tuple[Row, ...]
    test_windows: int
    densities: list[tuple[str, dict[str, dict[str, np.ndarray[Any, Any]]]]]

    def to_dict(self) -> dict[str, Any]:
        return {"test_windows": self.test_windows, "rows": [asdict(row) for row in self.rows]}


def run(
    checkpoint: Checkpoint, *, repeats: int = 50, seed: int = 0, progress: Progress = silent
) -> tuple[Result, Converted]:
    """Fit the network, predict with each method, measure."""
    data, network = watch.load(), checkpoint.network.eval()
    unlabelled = torch.cat([data.train.inputs, data.validation.inputs])
    unguarded = fit(network, unlabelled, guard=False, progress=progress)
    ready = with_guard(unguarded, (unlabelled,))
    methods: dict[str, Method] = {
        PLAIN: backbone(network),
        "one pass": unguarded,
        GUARDED: ready,
        "MC dropout, 30": mc_dropout(network, 30),
    }
    form = (FOREIGN, watch.INPUT_SHAPE, seed)
    foreign = {"noise": white_noise(*form), "walk": random_walk(*form)}
    # The plain network is timed as it is deployed: network and softmax, without entropies.
    timed = methods | {PLAIN: lambda x: network(x).softmax(1)}
    times = time_methods(timed, data.test.inputs[:1], reference=PLAIN, repeats=repeats)
    with torch.no_grad():
        predictions = {
            name: {"test": method(data.test.inputs)} | {k: method(x) for k, x in foreign.items()}
            for name, method in methods.items()
        }
    labels = data.test.labels.numpy()
    rows = tuple(_row(name, p, labels, times[name].ratio) for name, p in predictions.items())
    drawn = {name: p for name, p in predictions.items() if name != GUARDED}  # as without it
    densities = [(name, _densities(p, labels)) for name, p in drawn.items()]
    return Result(rows, len(labels), densities), ready


def _row(name: str, predictions: dict[str, Prediction], labels: Any, time_ratio: float) -> Row:
    test, walk = predictions["test"], predictions["walk"]
    probs, entropy = _numpy(test.probs), _numpy(test.entropy)
    wrong = probs.argmax(1) != labels
    # Foreign input shows in novelty; without a guard in the epistemic part, or else in the entropy.
    score = "entropy" if float(test.var.max()) == 0 else "epistemic"
    scores = np.concatenate(
        [_numpy(getattr(p, score) if p.novelty is None else -p.novelty) for p in (test, walk)]
    )
    is_foreign = np.arange(len(scores)) >= len(labels)
    return Row(
        name,
        accuracy=metrics.accuracy(probs, labels),
        nll=metrics.nll(probs, labels),
        ece=metrics.expected_calibration_error(probs, labels),
        entropy_right=float(entropy[~wrong].mean()),
        entropy_wrong=float(entropy[wrong].mean()),
        auroc_wrong=metrics.auroc(entropy, wrong),
        noise_confidence=float(_numpy(predictions["noise"].confidence).mean()),
        walk_confidence=float(_numpy(walk.confidence).mean()),
        auroc_walk=metrics.auroc(scores, is_foreign),
        time_ratio=time_ratio,
    )


def _densities(
    predictions: dict[str, Prediction], labels: Any
) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    test, walk = predictions["test"], predictions["walk"]
    right = _numpy(test.probs).argmax(1) == labels
    return {
        name: {
            "right": _numpy(getattr(test, name))[right],
            "wrong": _numpy(getattr(test, name))[~right],
            "random": _numpy(getattr(walk, name)),
        }
        for name in ("confidence", "entropy")
    }


def _numpy(tensor: Tensor | None) -> np.ndarray[Any, Any]:
    assert tensor is not None
    return tensor.detach().numpy()


def show(result: Result) -> str:
    """The table of the demo, and how to read it."""
    header = (
        *("", "accuracy", "NLL", "ECE", "entropy right", "entropy wrong", "AUROC wrong"),
        *("AUROC foreign", "sure of noise", "sure of drift", "time"),
    )
    rows = [
        (
            row.method,
            f"{100 * row.accuracy:.1f} %",
            *(f"{v:.3f}" for v in (row.nll, row.ece, row.entropy_right, row.entropy_wrong)),
            *(f"{v:.3f}" for v in (row.auroc_wrong, row.auroc_walk)),
            *(f"{100 * v:.0f} %" for v in (row.noise_confidence, row.walk_confidence)),
            f"{row.time_ratio:.1f}×",
        )
        for row in result.rows
    ]
    people = ", ".join(map(str, watch.TEST_SUBJECTS))
    return "\n".join(
        [
            f"Seven shoulder exercises from a smartwatch, {result.test_windows} windows of 5 s "
            f"of people {people}, who were not in training.",
            "",
            text_table(header, rows, numbers=True),
            "",
            "AUROC wrong: how well entropy tells wrong answers from right ones (0.5 = chance).",
            "AUROC foreign: how well novelty (without a guard: the epistemic part; plain network:",
            "  entropy) tells a drifting sensor's random walk from real motion. sure of noise and",
            "  drift: mean confidence on white noise and on that walk; both mean nothing.",
            "time: per sample, batch 1, eager PyTorch, one thread, relative to the plain network.",
        ]
    )


def draw(result: Result, folder: Path) -> Path:
    """Density histograms of confidence and entropy, as in the paper's motivation figure."""
    from onesigma.lab.plots import confidence_and_entropy

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.png"
    confidence_and_entropy(
        result.densities,
        path,
        classes=len(watch.CLASS_NAMES),
        random_is="random walks of unit spread, as of a drifting sensor",
    )
    return path
