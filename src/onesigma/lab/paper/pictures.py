"""The figures of a task, drawn from its results: densities, noise, foreign input, latency."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onesigma.lab.figures import save
from onesigma.lab.paper import summary
from onesigma.lab.paper.conditions import CLEAN
from onesigma.lab.paper.methods import APDEEPSENSE, OURS, PLAIN
from onesigma.lab.paper.summary import Result
from onesigma.lab.plots import FAINT, INK, SOFT, confidence_and_entropy

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
# Method → figure → (mean, std), one pair per condition.
Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]

BLUE, GREY = "#0072B2", "#C3C8CE"
# Okabe & Ito's colours; markers say it again in grey.
LINES = (
    ("#0072B2", "o"), ("#D55E00", "s"), ("#8A8A8A", "D"), ("#009E73", "^"), ("#CC79A7", "v"),
)  # fmt: skip
_SHOWN = (OURS, PLAIN, APDEEPSENSE, "MCDrop-30")
_SPOTTERS = (OURS, PLAIN, "MCDrop-30", "DeepEnsemble-10")


def draw(result: Result, folder: Path) -> None:
    """Write the files of CAPTIONS."""
    label = f"Data: {result['data']}." + (" QUICK LOOK." if result["plan"]["quick"] else "")
    _densities(result, folder, label)
    _noise(result, folder, label)
    _foreign(result, folder, label)
    ratios = {column: ratio.mean for column, (ratio, _) in summary.latencies(result).items()}
    draw_latency(ratios, folder / "latency.png", label)


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
    table = summary.tabulate(result)
    curves = {
        method: {
            figure: [table[c][method][figure][:2] for c in result["conditions"]]
            for figure in ("NLL", "ECE")
        }
        for method in _SHOWN
    }
    # The plain network with one parameter more, the cheapest rival of all.
    curves["BackboneDNN, temperature"] = {
        figure: [table[c][PLAIN][f"{figure}, T"][:2] for c in result["conditions"]]
        for figure in ("NLL", "ECE")
    }
    short = [name.removeprefix("noise, ") for name in result["conditions"]]
    draw_noise(short, curves, folder / "noise.png", label)


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
    draw_spotting([kind.name for kind in kinds], areas, folder / "foreign.png", label)


def _margin(method: str) -> str:
    """A column's name in words that wrap to the margin of the figure."""
    return method.replace("BackboneDNN", "Backbone (DNN)").replace("DeepEnsemble-", "Ensemble of ")


def draw_latency(ratios: Mapping[str, float], path: Path, label: str) -> None:
    """Bars of time relative to the plain network, in the order given."""
    names = list(ratios)
    figure = Figure(figsize=(9.0, 1.5 + 0.36 * len(names)), dpi=90, facecolor="white")
    axis = figure.subplots()
    colours = [BLUE if name == OURS else GREY for name in names]
    axis.barh(names, list(ratios.values()), color=colours, height=0.68)
    axis.invert_yaxis()
    largest = max(ratios.values())
    axis.set_xlim(0, 1.1 * largest)
    for row, value in enumerate(ratios.values()):
        axis.text(
            value + 0.01 * largest, row, f"{value:.1f}×", va="center", fontsize=9.5, color=INK
        )
    axis.set_xticks([])
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    axis.spines["left"].set_color(FAINT)
    axis.tick_params(length=0, labelsize=10, colors=INK)
    note = f"Batch 1, eager PyTorch, one thread, fastest of the repeats. {label}"
    _finish(figure, path, "Time per input, plain network = 1", note, left=0.17)


def draw_noise(conditions: Sequence[str], curves: Curves, path: Path, label: str) -> None:
    """One panel per figure, one line per method, conditions from left to right."""
    figures = list(next(iter(curves.values())))
    figure = Figure(figsize=(5.6 * len(figures), 4.6), dpi=90, facecolor="white")
    axes = figure.subplots(1, len(figures), squeeze=False)[0]
    for axis, name in zip(axes, figures, strict=True):
        _draw_lines(axis, {method: values[name] for method, values in curves.items()})
        axis.set_title(name, loc="left", fontsize=12, fontweight="bold", color=INK)
        axis.set_xticks(range(len(conditions)), conditions)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=9.5, colors=INK)
    axes[0].legend(frameon=False, fontsize=9.5)
    _finish(figure, path, "As the noise grows; lower is better", label, left=0.06)


def draw_spotting(
    kinds: Sequence[str],
    areas: Mapping[str, Sequence[tuple[float, float]]],
    path: Path,
    label: str,
) -> None:
    """One panel per kind of foreign input, one row per score: AUROC, mean and std, from 0 to 1."""
    width, margin = 2.8 + 2.6 * len(kinds), 2.4
    figure = Figure(figsize=(width, 1.65 + 0.31 * len(areas)), dpi=90, facecolor="white")
    axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for column, (axis, kind) in enumerate(zip(axes, kinds, strict=True)):
        for row, (score, points) in enumerate(areas.items()):
            colour = BLUE if score == f"{OURS}, epistemic" else FAINT
            _draw_area(axis, row, *points[column], colour)
        axis.axvline(0.5, color=FAINT, linewidth=0.8)
        axis.set_title(textwrap.fill(kind, 26), loc="left", fontsize=10, color=INK)
        axis.set_xlim(0, 1.2)
        axis.set_xticks([0, 0.5, 1], ["0", "chance", "1"])
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.spines["bottom"].set_color(FAINT)
        axis.spines["bottom"].set_bounds(0, 1)
        axis.tick_params(length=0, labelsize=9.5, colors=INK)
    axes[0].set_yticks(range(len(areas)), list(areas))
    axes[0].invert_yaxis()
    title = "Which score spots foreign input? AUROC, higher is better"
    note = f"Mean over trials; bars are one standard deviation. {label}"
    _finish(figure, path, title, note, left=margin / width, top=1.05)


def _draw_area(axis: Axes, row: int, mean: float, std: float, colour: str) -> None:
    """A dot at the area, a stem from chance to it, and the number at the right border."""
    axis.plot([0.5, mean], [row, row], color=colour, linewidth=2, alpha=0.5)
    error = 0.0 if math.isnan(std) else std
    axis.errorbar([mean], [row], xerr=[error], fmt="o", markersize=5.5, color=colour)
    axis.text(1.2, row, f"{mean:.2f}", fontsize=9, color=INK, va="center", ha="right")


def _draw_lines(axis: Axes, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    for (method, points), (colour, marker) in zip(lines.items(), LINES, strict=False):
        errors = [0.0 if math.isnan(std) else std for _, std in points]
        axis.errorbar(
            range(len(points)),
            [mean for mean, _ in points],
            errors,
            color=colour,
            marker=marker,
            linewidth=2,
            capsize=3,
            label=method,
        )


def _finish(
    figure: Figure, path: Path | str, title: str, note: str, *, left: float, top: float = 0.95
) -> None:
    height = float(figure.get_size_inches()[1])
    figure.text(
        0.012, 1 - 0.3 / height, title, fontsize=14, fontweight="bold", color=INK, va="center"
    )
    figure.text(0.012, 0.12 / height, note, fontsize=8.5, color=SOFT)
    figure.subplots_adjust(
        left=left, right=0.97, top=1 - top / height, bottom=0.68 / height, wspace=0.16
    )
    save(figure, path)
