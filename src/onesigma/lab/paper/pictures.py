"""The figures of a task, drawn from its results: densities, noise, foreign input, latency."""

from __future__ import annotations

from pathlib import Path

from onesigma.lab.paper import summary
from onesigma.lab.paper.conditions import CLEAN
from onesigma.lab.paper.methods import APDEEPSENSE, OURS, PLAIN
from onesigma.lab.paper.summary import Result
from onesigma.lab.plots.comparison import latency, spotting, under_noise
from onesigma.lab.plots.density import confidence_and_entropy

# Name of the files (PNG and SVG) → what a reader is told about it.
CAPTIONS = {
    "densities-clean": "Confidence and entropy on clean test input, right and wrong answers apart, "
    "and on random data (the paper’s Figures 1, 4 and 5). First trial.",
    "densities-noise": "The same under the noise of middle strength.",
    "noise": "As the noise grows. Mean over trials; bars are one standard deviation.",
    "foreign": "How well each score tells foreign input from clean test input. 0.5 is chance; "
    "below it, the score takes the foreign input for the better known.",
    "latency": "Time of one input relative to the plain network (the paper’s Figure 6; here eager "
    "PyTorch on one CPU thread, not a Jetson).",
}
_LINES = (OURS, PLAIN, APDEEPSENSE, "MCDrop-30")
_SPOTTERS = (OURS, PLAIN, "MCDrop-30", "DeepEnsemble-10")


def draw(result: Result, folder: Path) -> None:
    """Write the files of CAPTIONS."""
    label = f"Data: {result['data']}." + (" QUICK LOOK." if result["plan"]["quick"] else "")
    _densities(result, folder, label)
    _noise(result, folder, label)
    _foreign(result, folder, label)
    latency(
        {column: ratio.mean for column, (ratio, _) in summary.slower(result).items()},
        folder / "latency.png",
        highlight=OURS,
        title="Time per input, plain network = 1",
        note=f"Batch 1, eager PyTorch, one thread, fastest of the repeats. {label}",
    )


def middle(result: Result) -> str:
    """The noise of middle strength."""
    noisy = [str(name) for name in result["conditions"] if name != CLEAN]
    return noisy[len(noisy) // 2]


def _densities(result: Result, folder: Path, label: str) -> None:
    densities = result["trials"][0]["densities"]
    for name, condition in (("clean", CLEAN), ("noise", middle(result))):
        confidence_and_entropy(
            [(_margin(method), values[condition]) for method, values in densities.items()],
            folder / f"densities-{name}.png",
            classes=len(result["classes"]),
            random_is=f"random walks of unit spread. {label.removesuffix('.')}, {condition}",
        )


def _noise(result: Result, folder: Path, label: str) -> None:
    table = summary.labelled(result)
    curves = {
        method: {
            figure: [table[c][method][figure][:2] for c in result["conditions"]]
            for figure in ("NLL", "ECE")
        }
        for method in _LINES
    }
    # The plain network with one parameter more, the cheapest rival of all.
    curves["BackboneDNN, temperature"] = {
        figure: [table[c][PLAIN][f"{figure}, T"][:2] for c in result["conditions"]]
        for figure in ("NLL", "ECE")
    }
    short = [name.removeprefix("noise, ") for name in result["conditions"]]
    path = folder / "noise.png"
    under_noise(short, curves, path, title="As the noise grows; lower is better", note=label)


def _foreign(result: Result, folder: Path, label: str) -> None:
    kinds = summary.foreign_kinds(result)
    # The study of a held-out activity has no ensemble of ten: only what all kinds have is drawn.
    shared = [key for key in summary.areas(kinds[0]) if all(key in summary.areas(k) for k in kinds)]
    areas = {
        f"{method}, {score}": [
            summary.Spread.of(summary.areas(kind)[method, score])[:2] for kind in kinds
        ]
        for method, score in shared
        if method in _SPOTTERS
    }
    spotting(
        [kind.name for kind in kinds],
        areas,
        folder / "foreign.png",
        highlight=f"{OURS}, epistemic",
        title="Which score spots foreign input? AUROC, higher is better",
        note=f"Mean over trials; bars are one standard deviation. {label}",
    )


def _margin(method: str) -> str:
    """A column's name in words that wrap to the margin of the figure."""
    return method.replace("BackboneDNN", "Backbone (DNN)").replace("DeepEnsemble-", "Ensemble of ")
