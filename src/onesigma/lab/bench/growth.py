"""How the cost of one pass grows with width, depth, input size and classes: a table and a picture.

From the paper's CNN one thing is changed at a time. ONNX Runtime, one thread, batch 1; each network
with all its contenders in one interleaved run, so a point is a ratio of that run.

    python -m onesigma.lab.bench.growth --output docs/scaling.png
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from onesigma.conversion import convert
from onesigma.lab.bench.contenders import CONVERTED, FITTED, PLAIN, subject_of_model
from onesigma.lab.bench.measurement import Bench, Plan, machine
from onesigma.lab.figures import save
from onesigma.lab.networks import INPUT_SHAPE, seeded_cnn
from onesigma.lab.plots import INK, SOFT
from onesigma.storage.atomic import replacing
from onesigma.text_table import text_table

MC = "MC-10, one batch"
SHOWN = (CONVERTED, FITTED, MC)
GRIDS = {
    "width": (8, 16, 32, 64, 128),
    "depth": (1, 2, 4, 8),
    "size": (8, 14, 20, 28, 40),
    "classes": (2, 6, 20, 100),
}
LABELS = {
    "width": "filters per layer",
    "depth": "convolutions",
    "size": "input size (6 × n × n)",
    "classes": "classes",
}
NOTE = (
    "ONNX Runtime, one thread, batch 1, processor's time. One thing changed at a time from the "
    "paper's CNN: 4 convolutions of 64 filters, input 6 × 20 × 20, 6 classes."
)

GRID = "#DDDDDD"
# Okabe & Ito's colours; markers say it again in grey.
LINES = (("#D55E00", "s"), ("#0072B2", "o"), ("#8A8A8A", "D"))
TICKS = (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)

# What is changed → method → (value, ratio) of each network.
Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def measure(change: dict[str, int], runtime: str, repeats: int) -> dict[str, Any]:
    """Milliseconds of the plain network, and the ratios of the others to it."""
    size = change.get("size", INPUT_SHAPE[-1])
    converted = convert(seeded_cnn(**change), torch.zeros(2, INPUT_SHAPE[0], size, size))
    plan = Plan((runtime,), threads=(1,), batches=(1,), repeats=repeats, seconds=3, processes=0)
    with TemporaryDirectory() as folder:
        measured = subject_of_model("", converted, Path(folder), passes=(10,), sizes=())
        entries = [entry for entry in measured.contenders if entry.name in (PLAIN, *SHOWN)]
        result = Bench("", entries, measured.inputs, plan).run()
    for what, why in result.skipped.items():
        print(f"left out: {what}: {why}", file=sys.stderr)
    found = {row.contender: row.timing for row in result.rows}
    return {
        "plain_ms": 1e3 * found[PLAIN].minimum,
        **{name: found[name].cpu_ratio for name in SHOWN if name in found},
    }


def _cell(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--repeats", type=int, default=300, help="rounds of timing per network")
    parser.add_argument("--output", type=Path, default=Path("out") / "scaling.png")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"machine": machine()}
    for name, values in GRIDS.items():
        points = {}
        for value in values:
            print(f"{name} {value}", file=sys.stderr, flush=True)
            points[value] = measure({name: value}, options.runtime, options.repeats)
        figures[name] = points
        rows = [
            (str(value), f"{point['plain_ms']:.2f}", *(_cell(point.get(name)) for name in SHOWN))
            for value, point in points.items()
        ]
        print(text_table((name, "plain ms", *SHOWN), rows, numbers=True), end="\n\n", flush=True)
    curves = {
        LABELS[name]: {
            line.removeprefix("one pass, "): [
                (value, point[line]) for value, point in figures[name].items() if line in point
            ]
            for line in SHOWN
        }
        for name in GRIDS
    }
    draw(curves, options.output, title="Time of one pass over the plain network", note=NOTE)
    with replacing(options.output.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(figures, indent=2))
    print(f"Picture: {options.output}")


def draw(curves: Curves, path: Path | str, *, title: str, note: str) -> None:
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
    axis.grid(axis="y", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=9.5, colors=INK)


if __name__ == "__main__":
    main()
