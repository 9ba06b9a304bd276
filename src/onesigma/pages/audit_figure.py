"""An audit as a picture: per layer, how the carried spread compares with Monte Carlo's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onesigma.pages.figure_file import save

INK, SOFT, BLUE, BAND = "#222222", "#555555", "#0072B2", "#E8F1F8"


class Layer(Protocol):
    """What is drawn of a layer; see ``fidelity.audit.LayerAudit``."""

    @property
    def where(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def std_ratio(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def mean_error(self) -> float: ...


def layer_spread(
    layers: Sequence[Layer], path: Path | str, *, title: str = "", mean_noise: float = 0.0
) -> None:
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
    figure.text(0.02, 1 - 0.3 / height, title or "One pass against Monte Carlo, layer by layer",
                fontsize=13, fontweight="bold", color=INK, va="center")  # fmt: skip
    figure.subplots_adjust(
        left=0.27, right=0.97, top=1 - 0.85 / height, bottom=0.55 / height, wspace=0.08
    )
    save(figure, path)


def _draw_spread(axis: Axes, layers: Sequence[Layer]) -> None:
    rows = list(range(len(layers)))
    axis.axvspan(0.9, 1.1, color=BAND, linewidth=0)
    axis.axvline(1.0, color=SOFT, linewidth=1)
    axis.hlines(rows, [s.low for s in layers], [s.high for s in layers], color=BLUE, linewidth=2)
    axis.plot([s.std_ratio for s in layers], rows, "o", color=BLUE, markersize=7)
    axis.set_xscale("log")
    low, high = min(0.5, *(s.low for s in layers)), max(2.0, *(s.high for s in layers))
    axis.set_xlim(low / 1.1, high * 1.1)
    ticks = [t for t in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if low / 1.1 <= t <= high * 1.1]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.set_yticks(rows, [f"{s.where}  {s.op.removeprefix('aten.')}" for s in layers])
    axis.set_title(
        "spread / MC spread: median, 5–95 %; shaded ±10 %",
        fontsize=9.5, color=SOFT, loc="left",
    )  # fmt: skip
    axis.set_xlabel("left of 1: too sure", fontsize=9, color=SOFT)


def _draw_error(axis: Axes, layers: Sequence[Layer], mean_noise: float) -> None:
    rows = list(range(len(layers)))
    axis.barh(rows, [s.mean_error for s in layers], color=BLUE, height=0.45)
    if mean_noise:
        axis.axvline(mean_noise, color="#D55E00", linewidth=1.5, linestyle=(0, (4, 2)))
    axis.set_xlim(0, max(0.2, *(1.15 * s.mean_error for s in layers)))
    axis.set_title("median error of the mean", fontsize=9.5, color=SOFT, loc="left")
    axis.set_xlabel(
        "in Monte-Carlo std; dashed: noise of the passes" if mean_noise else "in Monte-Carlo std",
        fontsize=9, color=SOFT,
    )  # fmt: skip
