"""Methods side by side: how long each takes, and how each fares as the noise grows."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onesigma.whole_file import replacing

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


def _finish(figure: Figure, path: Path | str, title: str, note: str, *, left: float) -> None:
    height = float(figure.get_size_inches()[1])
    figure.text(
        0.012, 1 - 0.3 / height, title, fontsize=14, fontweight="bold", color=INK, va="center"
    )
    figure.text(0.012, 0.12 / height, note, fontsize=8.5, color=SOFT)
    figure.subplots_adjust(
        left=left, right=0.97, top=1 - 0.95 / height, bottom=0.68 / height, wspace=0.16
    )
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png")
