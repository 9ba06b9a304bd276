"""``onesigma demo``: a real smartwatch network, fitted, on people it never saw and on broken input.

The plain network, one pass of what ``fit`` made of it, without and with its guard, and 30 passes of
Monte-Carlo dropout. Inputs are raw, in g and rad/s, so that the guard speaks of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma import metrics
from onesigma.answer import SURE, UNSURE
from onesigma.baselines.backbone import backbone
from onesigma.baselines.mc_dropout import mc_dropout
from onesigma.calibration.guarding import Channels, add_guard, with_reference
from onesigma.calibration.labelled import first_half, learn_from_labels
from onesigma.calibration.observation import Progress, silent
from onesigma.converted import Converted
from onesigma.decide.threshold import AbstainRule, threshold
from onesigma.fitting import fit
from onesigma.lab.bench import report_cost
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.noise import random_walk
from onesigma.lab.datasets.split import Splits
from onesigma.pages.report.findings import OURS, PLAIN, SAMPLED, Cost, Findings, gather
from onesigma.pages.report.sections import percent
from onesigma.prediction import Prediction
from onesigma.text_table import text_table

FOREIGN, GRAVITY, RISK = 200, 9.81, 0.05
BARE, SAMPLING = f"{OURS}, no guard", report_cost.SAMPLING
CHANNELS = tuple(f"{sensor} {axis}" for sensor in ("acc", "gyro") for axis in watch.AXES)
UNITS = ("g",) * 3 + ("rad/s",) * 3
KNOWN, DRIFT, DEAD, OTHER_UNITS = "new people", "drifting sensor", "dead axis", "other units"
NOTES = {
    KNOWN: "exercises it knows",
    DRIFT: "foreign: no motion at all",
    DEAD: "broken: acc z reads 0",
    OTHER_UNITS: "broken: m/s² in place of g",
}
TITLE = "It acts where it knows what it sees"


@dataclass(frozen=True)
class Row:
    """One method's figures; ``times`` are multiples of the plain network's, by runtime.

    Of the processor, because on a busy machine long calls are interrupted and short ones are not.
    """

    method: str
    accuracy: float
    nll: float
    auroc_wrong: float
    auroc_foreign: float
    times: dict[str, float]


@dataclass(frozen=True)
class Acts:
    """What a network does with one kind of input, as shares, and the commonest reason it gives."""

    method: str
    kind: str
    acted: float
    wrong: float  # acted on and answered wrongly, of all
    reason: str


@dataclass(frozen=True)
class Result:
    """What the demo found, ready to print, to store as JSON or to draw."""

    rows: tuple[Row, ...]
    acts: tuple[Acts, ...]
    test_windows: int
    skipped: tuple[tuple[str, str], ...] = ()  # what could not be timed, and why

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def raw(data: Splits, inputs: Tensor) -> Tensor:
    """In the units of the sensors."""
    return inputs * data.input_std + data.input_mean


def fit_watch(
    network: torch.nn.Module, data: Splits, progress: Progress = silent
) -> tuple[Converted, Converted]:
    """As ``fit`` with all of its options does, but also the model before guard and labels.

    Six people are the unlabelled inputs; a seventh, of whom training knows only when to stop, has
    the labels.
    """
    known = raw(data, data.train.inputs)
    scaling = (data.input_mean, data.input_std)
    names = watch.CLASS_NAMES
    unguarded = fit(
        network, known, guard=False, class_names=names, scaling=scaling, progress=progress
    )
    about = Channels(CHANNELS, UNITS, watch.SAMPLE_RATE)
    guarded, held_out = add_guard(unguarded, (known,), channels=about)
    assert held_out is not None
    labelled = (raw(data, data.validation.inputs), data.validation.labels)
    return unguarded, with_reference(
        learn_from_labels(guarded, labelled, risk=RISK), (known,), held_out
    )


def run(
    network: torch.nn.Module, *, quick: bool = False, progress: Progress = silent
) -> tuple[Result, Findings, Cost | str]:
    """Fit the network, predict with each method, measure."""
    data = watch.load()
    unguarded, ready = fit_watch(network, data, progress)
    kinds = make_kinds(data)
    plan = report_cost.PLAN
    plan = replace(plan, repeats=50, seconds=0.3) if quick else plan
    cost = report_cost.measure_cost(ready, kinds[KNOWN][:2], plan=plan, others={BARE: unguarded})
    found = gather(
        "demo.safetensors",
        ready,
        kinds[KNOWN],
        data.test.labels,
        class_names=watch.CLASS_NAMES,
        passes=report_cost.PASSES,
        foreign=kinds[DRIFT],
    )
    rows = tuple(_rows(found, unguarded, kinds[DRIFT], cost))
    acts = tuple(_acts(found, data, kinds))
    skipped = cost.skipped if isinstance(cost, Cost) else (("times", cost),)
    return Result(rows, acts, len(data.test), skipped), found, cost


def make_kinds(data: Splits) -> dict[str, Tensor]:
    """What people do, and what a fault makes of it."""
    known = raw(data, data.test.inputs)
    dead, other = known.clone(), known.clone()
    dead[:, 0, 2] = 0.0
    other[:, 0] *= GRAVITY
    walk = raw(data, random_walk(FOREIGN, watch.INPUT_SHAPE))
    return {KNOWN: known, DRIFT: walk, DEAD: dead, OTHER_UNITS: other}


@torch.no_grad()
def _rows(found: Findings, unguarded: Converted, walk: Tensor, cost: Cost | str) -> Iterator[Row]:
    ready, labels = found.converted, found.labels
    assert labels is not None
    assert found.foreign is not None
    said = {
        PLAIN: (found.predictions[PLAIN], backbone(ready)(walk)),
        BARE: (unguarded(found.inputs), unguarded(walk)),
        OURS: (found.ours, found.foreign),
        SAMPLING: (found.predictions[SAMPLED], mc_dropout(ready, report_cost.PASSES)(walk)),
    }
    timed = cost.rows if isinstance(cost, Cost) else ()
    for method, (test, foreign) in said.items():
        probs, entropy = _numpy(test.probs), _numpy(test.entropy)
        scores = np.concatenate([_oddness(test), _oddness(foreign)])
        yield Row(
            method,
            accuracy=metrics.accuracy(probs, labels.numpy()),
            nll=metrics.nll(probs, labels.numpy()),
            auroc_wrong=metrics.auroc(entropy, probs.argmax(1) != labels.numpy()),
            auroc_foreign=metrics.auroc(scores, np.arange(len(scores)) >= len(probs)),
            times={row.runtime: row.cpu_ratio for row in timed if row.contender == method},
        )


def _oddness(said: Prediction) -> np.ndarray[Any, Any]:
    """Foreign input shows in novelty; without a guard in the epistemic part, or in the entropy."""
    if said.novelty is not None:
        return -_numpy(said.novelty)
    return _numpy(said.epistemic if bool(said.var.any()) else said.entropy)


def _numpy(tensor: Tensor | None) -> np.ndarray[Any, Any]:
    assert tensor is not None
    return tensor.detach().numpy()


@torch.no_grad()
def _acts(found: Findings, data: Splits, kinds: dict[str, Tensor]) -> Iterator[Acts]:
    """The plain network has a threshold on its own entropy, of the same labels and risk."""
    ready, labels = found.converted, data.validation.labels
    plain, examples = backbone(ready), raw(data, data.validation.inputs)
    second = ~first_half(len(labels), None, 0)
    rules: dict[str, tuple[Callable[[Tensor], Prediction], AbstainRule | None]] = {
        PLAIN: (plain, threshold(plain(examples[second]), labels[second], risk=RISK)),
        OURS: (ready, ready.abstain),
    }
    for kind, inputs in kinds.items():
        truth = data.test.labels if len(inputs) == len(data.test) else None
        for method, (predict, rule) in rules.items():
            assert rule is not None
            said = predict(inputs)
            act = rule(said)
            # Of a sensor that drifts, no answer is right.
            wrong = act if truth is None else act & (said.label != truth)
            shares = float(act.double().mean()), float(wrong.double().mean())
            yield Acts(method, kind, *shares, _reason(ready, replace(said, act=act)))


def _reason(ready: Converted, said: Prediction) -> str:
    """The commonest; if it is the guard's, with the commonest oddity in the words of its first."""
    ((reason, _),) = Counter(said.reason).most_common(1)
    contract = ready.settings.contract
    if reason in (SURE, UNSURE) or contract is None:
        return reason
    kinds = contract.explain(said.detach(), figures=False)
    ((kind, _),) = Counter(filter(None, kinds)).most_common(1)
    return f"{reason}: {contract.explain(said.detach())[kinds.index(kind)]}"


def show(result: Result) -> str:
    """The tables of the demo, and how to read them."""
    runtimes = list(result.rows[0].times)
    head = (
        "",
        "accuracy",
        "NLL",
        "AUROC wrong",
        "AUROC foreign",
        *(f"time, {r}" for r in runtimes),
    )
    rows = [
        (
            row.method,
            f"{100 * row.accuracy:.1f} %",
            *(f"{value:.3f}" for value in (row.nll, row.auroc_wrong, row.auroc_foreign)),
            *(f"{row.times[name]:.2f}×" if name in row.times else "–" for name in runtimes),
        )
        for row in result.rows
    ]
    acts = [(a.kind, a.method, percent(a.acted), percent(a.wrong), a.reason) for a in result.acts]
    people = ", ".join(map(str, watch.TEST_SUBJECTS))
    return "\n".join(
        [
            f"Seven shoulder exercises from a smartwatch, {result.test_windows} windows of 5 s "
            f"of people {people}, who were not in training.",
            "",
            text_table(head, rows, numbers=True),
            "",
            "AUROC wrong: how well entropy tells wrong answers from right ones (0.5 = chance).",
            "AUROC foreign: how well novelty (no guard: the epistemic part; plain network:",
            "  entropy) tells a drifting sensor's random walk from real motion.",
            "time: of the processor for one window, relative to the plain network in that runtime.",
            *(f"not timed: {what}: {why}" for what, why in result.skipped),
            "",
            f"When to act, at a risk of {100 * RISK:g} %. Both rules are made of the labels of one "
            "other person:",
            "",
            text_table(("input", "", "acted on", "and wrong", "commonest reason"), acts),
        ]
    )


def draw(result: Result, path: Path) -> None:
    """One panel: how much of known, foreign and broken input is acted on, and how much wrongly."""
    from matplotlib.figure import Figure

    from onesigma.lab.figures import BLUE, INK, ORANGE, SOFT, save

    kinds = list(dict.fromkeys(each.kind for each in result.acts))
    figure = Figure(figsize=(9, 4.6), dpi=150, facecolor="white")
    axis = figure.subplots()
    for each in result.acts:
        ours = each.method == OURS
        y = kinds.index(each.kind) + (0.2 if ours else -0.2)
        right = each.acted - each.wrong
        axis.barh(y, right, 0.34, color=BLUE if ours else "#9AA3AD")
        axis.barh(y, each.wrong, 0.34, left=right, color=ORANGE, hatch="///", edgecolor="white")
        text = f"{percent(each.acted)}, {'with onesigma' if ours else 'plain network'}"
        axis.text(each.acted + 0.01, y, text, va="center", fontsize=10, color=INK if ours else SOFT)
    titles = [f"{kind}\n({NOTES[kind]})" for kind in kinds]
    axis.set_yticks(range(len(kinds)), titles, fontsize=10.5, color=INK)
    axis.set_ylim(len(kinds) - 0.5, -0.5)
    axis.set_xlim(0, 1.28)
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    figure.text(0.02, 0.935, TITLE, fontsize=15, fontweight="bold", color=INK)
    figure.text(0.02, 0.875, "Share of inputs that are acted on; hatched: wrongly", color=SOFT)
    figure.subplots_adjust(left=0.24, right=0.99, top=0.85, bottom=0.03)
    save(figure, path)
