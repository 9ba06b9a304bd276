"""Figures for files, drawn with matplotlib: the audit layer by layer, and how figures are saved."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onesigma.calibration.comparison import LayerAudit
from onesigma.storage.atomic import replacing

INK, SOFT, BLUE, ORANGE, BAND = "#222222", "#555555", "#0072B2", "#D55E00", "#E8F1F8"


def save(figure: Figure, path: Path | str) -> None:
    """Write the figure to `path` as PNG and beside it as SVG, each whole or not at all."""
    # Without a salt and a date of its own, an SVG differs from run to run.
    with rc_context({"svg.hashsalt": "onesigma"}):
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            with replacing(Path(path).with_suffix(f".{kind}")) as temporary:
                figure.savefig(temporary, format=kind, metadata=metadata)


def draw_audit(layers: Sequence[LayerAudit], path: Path | str, *, mean_noise: float = 0.0) -> None:
    """Draw std ratio (median, 5 to 95 %) and mean error of each layer, first layer on top."""
    if not layers:
        raise ValueError("No layers to draw: the audit is empty.")
    figure = Figure(figsize=(10.5, 1.9 + 0.34 * len(layers)), dpi=150, facecolor="white")
    spread, error = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    _draw_spread(spread, layers)
    _draw_error(error, layers, mean_noise)
    for axis in (spread, error):
        axis.set_ylim(len(layers) - 0.4, -0.6)
        axis.tick_params(length=0, labelsize=9, colors=INK)
        axis.spines[["top", "right", "left"]].set_visible(False)
    height = float(figure.get_size_inches()[1])
    title = "One pass against Monte Carlo, layer by layer"
    figure.text(0.02, 1 - 0.3 / height, title, fontsize=13, fontweight="bold", color=INK)
    figure.subplots_adjust(
        left=0.27, right=0.97, top=1 - 0.85 / height, bottom=0.55 / height, wspace=0.08
    )
    save(figure, path)


def _draw_spread(axis: Axes, layers: Sequence[LayerAudit]) -> None:
    rows = list(range(len(layers)))
    axis.axvspan(0.9, 1.1, color=BAND, linewidth=0)
    axis.axvline(1.0, color=SOFT, linewidth=1)
    axis.hlines(rows, [s.low for s in layers], [s.high for s in layers], color=BLUE, linewidth=2)
    axis.plot([s.std_ratio for s in layers], rows, "o", color=BLUE, markersize=7)
    axis.set_xscale("log")
    low = min(0.5, *(s.low for s in layers)) / 1.1
    high = max(2.0, *(s.high for s in layers)) * 1.1
    axis.set_xlim(low, high)
    ticks = [t for t in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if low <= t <= high]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.set_yticks(rows, [f"{s.where}  {s.op.removeprefix('aten.')}" for s in layers])
    _name(axis, "spread / MC spread: median, 5–95 %; shaded ±10 %", "left of 1: too sure")


def _draw_error(axis: Axes, layers: Sequence[LayerAudit], mean_noise: float) -> None:
    axis.barh(range(len(layers)), [s.mean_error for s in layers], color=BLUE, height=0.45)
    axis.set_xlim(0, max(0.2, *(1.15 * s.mean_error for s in layers)))
    unit = "in Monte-Carlo std"
    if mean_noise:
        axis.axvline(mean_noise, color=ORANGE, linewidth=1.5, linestyle=(0, (4, 2)))
        unit += "; dashed: noise of the passes"
    _name(axis, "median error of the mean", unit)


def _name(axis: Axes, title: str, unit: str) -> None:
    axis.set_title(title, fontsize=9.5, color=SOFT, loc="left")
    axis.set_xlabel(unit, fontsize=9, color=SOFT)
