"""Methods side by side: how long each takes, how each fares in noise, and what each spots."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onesigma.pages.figures import save

INK, SOFT, FAINT, BLUE, GREY = "#222222", "#555555", "#8A8A8A", "#0072B2", "#C3C8CE"
# Okabe & Ito's colours; markers say it again in grey.
LINES = (
    ("#0072B2", "o"), ("#D55E00", "s"), ("#8A8A8A", "D"), ("#009E73", "^"), ("#CC79A7", "v"),
)  # fmt: skip

# Method → figure → (mean, std), one pair per condition.
Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def latency(
    ratios: Mapping[str, float], path: Path | str, *, highlight: str, title: str, note: str
) -> None:
    """Bars of time relative to the plain network, in the order given."""
    names = list(ratios)
    figure = Figure(figsize=(9.0, 1.5 + 0.36 * len(names)), dpi=150, facecolor="white")
    axis = figure.subplots()
    colours = [BLUE if name == highlight else GREY for name in names]
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
    _finish(figure, path, title, note, left=0.17)


def under_noise(
    conditions: Sequence[str], curves: Curves, path: Path | str, *, title: str, note: str
) -> None:
    """One panel per figure, one line per method, conditions from left to right."""
    figures = list(next(iter(curves.values())))
    figure = Figure(figsize=(5.6 * len(figures), 4.6), dpi=150, facecolor="white")
    axes = figure.subplots(1, len(figures), squeeze=False)[0]
    for axis, name in zip(axes, figures, strict=True):
        _draw_lines(axis, {method: values[name] for method, values in curves.items()})
        axis.set_title(name, loc="left", fontsize=12, fontweight="bold", color=INK)
        axis.set_xticks(range(len(conditions)), conditions)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=9.5, colors=INK)
    axes[0].legend(frameon=False, fontsize=9.5)
    _finish(figure, path, title, note, left=0.06)


def spotting(
    kinds: Sequence[str],
    areas: Mapping[str, Sequence[tuple[float, float]]],
    path: Path | str,
    *,
    highlight: str,
    title: str,
    note: str,
) -> None:
    """One panel per kind of foreign input, one row per score: AUROC, mean and std, from 0 to 1."""
    width, margin = 2.8 + 2.6 * len(kinds), 2.4
    figure = Figure(figsize=(width, 1.65 + 0.31 * len(areas)), dpi=150, facecolor="white")
    axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for column, (axis, kind) in enumerate(zip(axes, kinds, strict=True)):
        for row, (score, points) in enumerate(areas.items()):
            _draw_area(axis, row, *points[column], BLUE if score == highlight else FAINT)
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
