"""The figures of a task, drawn from its results: densities, noise, latency."""

from __future__ import annotations

from pathlib import Path

from onesigma.experiments import summary
from onesigma.experiments.conditions import CLEAN
from onesigma.experiments.methods import APDEEPSENSE, OURS, PLAIN
from onesigma.experiments.summary import Result
from onesigma.plots.comparison import latency, under_noise
from onesigma.plots.density import confidence_and_entropy

# File → what a reader is told about it.
CAPTIONS = {
    "densities-clean.png": "Confidence and entropy on clean test input, right and wrong answers "
    "apart, and on random data (the paper’s Figures 1, 4 and 5). First trial.",
    "densities-noise.png": "The same under the noise of middle strength.",
    "noise.png": "As the noise grows. Mean over trials; bars are one standard deviation.",
    "latency.png": "Time of one input relative to the plain network (the paper’s Figure 6; here "
    "eager PyTorch on one CPU thread, not a Jetson).",
}
_LINES = (OURS, PLAIN, APDEEPSENSE, "MCDrop-30")


def draw(result: Result, folder: Path) -> None:
    """Write the files of CAPTIONS."""
    noisy = [name for name in result["conditions"] if name != CLEAN]
    label = f"Data: {result['data']}." + (" QUICK LOOK." if result["plan"]["quick"] else "")
    densities = result["trials"][0]["densities"]
    for name, condition in (("clean", CLEAN), ("noise", noisy[len(noisy) // 2])):
        confidence_and_entropy(
            [(_margin(method), values[condition]) for method, values in densities.items()],
            folder / f"densities-{name}.png",
            classes=len(result["classes"]),
            random_is=f"random walks of unit spread. {label.removesuffix('.')}, {condition}",
        )
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
    latency(
        {column: ratio.mean for column, (ratio, _) in summary.slower(result).items()},
        folder / "latency.png",
        highlight=OURS,
        title="Time per input, plain network = 1",
        note=f"Batch 1, eager PyTorch, one thread, fastest of the repeats. {label}",
    )


def _margin(method: str) -> str:
    """A column's name in words that wrap to the margin of the figure."""
    return method.replace("BackboneDNN", "Backbone (DNN)").replace("DeepEnsemble-", "Ensemble of ")
