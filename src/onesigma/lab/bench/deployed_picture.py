"""The picture of ``deployed``: what one pass costs, and how many of Monte Carlo's it is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullLocator

from onesigma.lab.bench.closeness import FEW, name_of
from onesigma.lab.bench.deployed_result import (
    CLEAN,
    FITTED,
    MOMENTS,
    PASSES,
    PLAIN,
    Measured,
    Settings,
)
from onesigma.lab.bench.result import show_ratio
from onesigma.lab.figures import save
from onesigma.lab.plots import FAINT, INK, SOFT

# Okabe & Ito's, told apart with any colour vision; markers say it again in grey.
BLUE, ORANGE, GREEN, GREY, GRID = "#0072B2", "#D55E00", "#009E73", "#8A8A8A", "#E6E6E6"
MARKERS = {False: (BLUE, "o"), True: (ORANGE, "D")}
X_TICKS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200)
Y_TICKS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
# Names stand one below the other right of all dots, but at least here, and no further than there.
COLUMN, FURTHEST = 1.8, 4.0
LINE = 0.04  # from one name to the next, as a share of the height

NAMES = {
    "paper_cnn": "the paper's CNN",
    "ds_cnn": "DS-CNN",
    "resnet8": "ResNet-8",
    "mobilenet_v1": "MobileNet v1",
    "mobilenet_v3": "MobileNet v3",
    "tc_resnet": "TC-ResNet8",
    "vgg": "VGG",
    "tcn": "TCN",
    "ecg_resnet": "ECG ResNet",
    "mlp": "MLP",
    "eegnet": "EEGNet",
    "inception_time": "InceptionTime",
}


def draw(found: Sequence[Measured], path: Path | str, settings: Settings) -> None:
    """One dot for each network that could be timed, and Monte Carlo; PNG, and SVG beside it."""
    found = [each for each in found if math.isfinite(each.cost(FITTED))]
    if not found:
        return
    # Drawn for 800 pixels, saved with twice as many.
    figure = Figure(figsize=(8, 5.6), dpi=200, facecolor="white")
    axis = figure.add_axes((0.085, 0.175, 0.9, 0.695))
    _dress(axis, found, settings.passes)
    _draw_monte_carlo(axis, found)
    _draw_plain(axis, found)
    _draw_moments(axis, found)
    _draw_fitted(axis, found)
    _caption(figure, found, settings)
    save(figure, path)


def _dress(axis: Axes, found: Sequence[Measured], most: int) -> None:
    axis.set(xscale="log", yscale="log")
    right = max(_finite([each.cost(name_of(k)) for each in found for k in PASSES], 100))
    lowest = min(each.distances[CLEAN][PLAIN].passes for each in found)
    axis.set_xlim(0.88, 2.1 * right)  # room for what is written there
    axis.set_ylim(max(0.1, 0.6 * min(lowest, 3)), 1.35 * most)
    ticks = [tick for tick in Y_TICKS if axis.get_ylim()[0] <= tick < most]
    axis.set_yticks([*ticks, most], [*(f"{tick:g}" for tick in ticks), f"≥ {most:,}"])
    ticks = [tick for tick in X_TICKS if tick <= axis.get_xlim()[1]]
    axis.set_xticks(ticks, [f"{tick}×" for tick in ticks])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_locator(NullLocator())
    axis.grid(color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(labelsize=9.5, colors=INK, length=3)
    axis.set_xlabel(
        "time of one answer over the plain network's (ONNX Runtime, one thread)",
        fontsize=10, color=INK,
    )  # fmt: skip


def _draw_monte_carlo(axis: Axes, found: Sequence[Measured]) -> None:
    """A thin line for each network; the numbers of passes stand right of all lines."""
    for each in found:
        costs = [each.cost(name_of(k)) for k in PASSES]
        axis.plot(costs, PASSES, "-s", color=GREY, alpha=0.45, linewidth=0.9, markersize=3)
    text: dict[str, Any] = {"textcoords": "offset points", "color": SOFT, "va": "center"}
    for k in PASSES:
        costs = _finite([each.cost(name_of(k)) for each in found], k)
        axis.annotate(f"{k} passes", (max(costs), k), xytext=(6, 0), fontsize=9.5, **text)
    costs = _finite([each.cost(name_of(max(PASSES))) for each in found], max(PASSES))
    axis.annotate(
        *("Monte Carlo", (max(costs), max(PASSES))),
        **(text | {"xytext": (0, 14), "ha": "center", "fontsize": 11.5, "fontweight": "bold"}),
    )


def _draw_plain(axis: Axes, found: Sequence[Measured]) -> None:
    worth = [each.distances[CLEAN][PLAIN].passes for each in found]
    axis.plot([1] * len(worth), worth, "s", color=GREY, markersize=4.5, alpha=0.6)
    axis.annotate(
        "plain network", (1, median(worth)), xytext=(9, -4), textcoords="offset points",
        fontsize=11.5, fontweight="bold", color=SOFT,
    )  # fmt: skip


def _draw_moments(axis: Axes, found: Sequence[Measured]) -> None:
    """Where they were compared, too."""
    each = [(m.cost(MOMENTS), m.distances[CLEAN].get(MOMENTS)) for m in found]
    points = [(cost, distance.passes) for cost, distance in each if distance]
    if points:
        costs, worth = zip(*points, strict=True)
        axis.plot(costs, worth, "^", color=GREEN, markersize=5.5, alpha=0.8)
        axis.annotate(
            "moments", (median(costs), max(worth)), xytext=(0, 9), textcoords="offset points",
            ha="center", fontsize=11.5, fontweight="bold", color=GREEN,
        )  # fmt: skip


def _draw_fitted(axis: Axes, found: Sequence[Measured]) -> None:
    """Clean inputs: a full dot with its name. The worst kind of shift: a hollow one."""
    for each in found:
        colour, marker = MARKERS[each.kept_aside]
        cost, worth = each.cost(FITTED), each.distances[CLEAN][FITTED]
        worst = each.worst_shift(FITTED).passes
        axis.plot([cost] * 2, [worth.passes, worst], color=colour, linewidth=0.8, alpha=0.35)
        axis.plot(cost, worst, marker, color=colour, fillstyle="none", markersize=4.5, alpha=0.8)
        axis.plot(cost, worth.passes, marker, color=colour, markersize=6.5, markeredgecolor="white")
    near = [each for each in found if each.cost(FITTED) < FURTHEST]
    column = max(COLUMN, *(1.25 * each.cost(FITTED) for each in near), 0)
    for each, height in zip(near, _heights(axis, near), strict=True):
        _name(axis, each, (column, height))
    for each in found:
        if each not in near:
            _name(axis, each, (1.1 * each.cost(FITTED), each.distances[CLEAN][FITTED].passes))


def _name(axis: Axes, each: Measured, place: tuple[float, float]) -> None:
    """At the end of a thin line from its dot."""
    colour, _ = MARKERS[each.kept_aside]
    line = {"arrowstyle": "-", "color": colour, "alpha": 0.35, "linewidth": 0.8, "shrinkB": 4}
    axis.annotate(
        NAMES.get(each.network, each.network),
        (each.cost(FITTED), each.distances[CLEAN][FITTED].passes),
        xytext=place,
        va="center",
        fontsize=9.5,
        color=colour,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
        arrowprops={**line, "relpos": (0, 0.5)},
    )


def _heights(axis: Axes, near: Sequence[Measured]) -> list[float]:
    """Where the names go: level with their dots, or as little above or below as leaves room."""
    low, high = (math.log(limit) for limit in axis.get_ylim())
    gap = LINE * (high - low)
    wanted = [math.log(each.distances[CLEAN][FITTED].passes) for each in near]
    order = sorted(range(len(near)), key=lambda i: (wanted[i], near[i].cost(FITTED)))
    placed = spread([wanted[index] for index in order], gap, high)
    heights = dict(zip(order, placed, strict=True))
    return [math.exp(heights[index]) for index in range(len(near))]


def spread(wanted: Sequence[float], gap: float, highest: float) -> list[float]:
    """Heights in rising order, moved so that they are ``gap`` apart and below the highest.

    Neighbours that would touch are moved as one, about the mean of where they belong.
    """

    def lowest(block: list[float]) -> float:
        middle = sum(block) / len(block)
        return min(middle + len(block) * gap / 2, highest) - len(block) * gap

    blocks: list[list[float]] = []
    for each in wanted:
        blocks.append([each])
        while len(blocks) > 1 and (lowest(blocks[-2]) + len(blocks[-2]) * gap > lowest(blocks[-1])):
            last = blocks.pop()
            blocks[-1] += last
    return [lowest(block) + (i + 0.5) * gap for block in blocks for i in range(len(block))]


def _caption(figure: Figure, found: Sequence[Measured], settings: Settings) -> None:
    cost = median(each.cost(FITTED) for each in found)
    worth = median(each.distances[CLEAN][FITTED].passes for each in found)
    worst = median(each.worst_shift(FITTED).passes for each in found)
    title = f"One pass at {show_ratio(cost)}× the time, worth {worth:.0f} Monte-Carlo passes"
    figure.text(0.012, 0.957, title, fontsize=14, fontweight="bold", color=INK, va="center")
    what = "How many passes of Monte Carlo are as close"
    figure.text(0.012, 0.895, what, fontsize=10, color=INK)
    note = (
        f"Medians over {len(found)} networks. Full dots: {settings.inputs} clean test inputs; "
        f"hollow: the worst kind of shifted input (median {worst:.0f}).\nClose: by KL to "
        f"{settings.passes:,} passes, over that of {FEW} on the same network. Monte Carlo is run "
        "as one batch."
    )
    figure.text(0.012, 0.02, note, fontsize=8.5, color=SOFT, linespacing=1.4)
    legend = {"onesigma.fit": False}
    if any(each.kept_aside for each in found):
        legend["kept aside"] = True  # nothing was tuned on these
    for place, (words, aside) in zip((0.68, 0.85), legend.items(), strict=False):
        colour, marker = MARKERS[aside]
        figure.add_artist(Line2D([place], [0.903], color=colour, marker=marker, linestyle="none"))
        figure.text(place + 0.014, 0.895, words, fontsize=10, color=colour, fontweight="bold")


def _finite(values: Sequence[float], otherwise: float) -> list[float]:
    """What could not be measured is NaN."""
    return [value for value in values if math.isfinite(value)] or [otherwise]
