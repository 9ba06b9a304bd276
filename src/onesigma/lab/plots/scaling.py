"""How cost grows: a panel per thing that is changed, a line per method, on logarithmic axes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from onesigma.pages.figures import save

INK, SOFT, FAINT = "#222222", "#555555", "#DDDDDD"
# Okabe & Ito's colours; markers say it again in grey.
LINES = (("#D55E00", "s"), ("#0072B2", "o"), ("#009E73", "^"), ("#8A8A8A", "D"))
TICKS = (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)

# What is changed → method → (value, ratio) of each network.
Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def growth(curves: Curves, path: Path | str, *, title: str, note: str) -> None:
    """Draw the ratios; the line at 1 is the plain network."""
    panels = list(curves)
    figure = Figure(figsize=(3.4 * len(panels), 4.4), dpi=150, facecolor="white")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    ratios = [ratio for lines in curves.values() for line in lines.values() for _, ratio in line]
    for axis, name in zip(axes, panels, strict=True):
        _draw(axis, curves[name])
        axis.set_xlabel(name, fontsize=10, color=INK)
        axis.set_ylim(0.92 * min(1.0, *ratios), 1.15 * max(ratios))
    axes[0].set_yticks(TICKS, [f"{tick:g}×" for tick in TICKS])
    axes[0].set_ylim(0.92 * min(1.0, *ratios), 1.15 * max(ratios))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper right", ncols=len(labels), frameon=False, fontsize=9.5,
        bbox_to_anchor=(0.99, 0.995),
    )  # fmt: skip
    figure.text(0.012, 0.94, title, fontsize=14, fontweight="bold", color=INK, va="center")
    figure.text(0.012, 0.025, note, fontsize=8.5, color=SOFT)
    figure.subplots_adjust(left=0.05, right=0.985, top=0.86, bottom=0.22, wspace=0.08)
    save(figure, path)


def _draw(axis: Axes, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.axhline(1, color=SOFT, linewidth=1)
    for (name, points), (colour, marker) in zip(lines.items(), LINES, strict=False):
        axis.plot(
            [value for value, _ in points],
            [ratio for _, ratio in points],
            color=colour,
            marker=marker,
            linewidth=2,
            label=name,
        )
    values = sorted({value for points in lines.values() for value, _ in points})
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(axis="y", color=FAINT, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=9.5, colors=INK)
