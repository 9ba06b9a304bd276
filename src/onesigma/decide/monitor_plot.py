"""The history of a ``Monitor`` as a picture: what it averages, the evidence, the alarms."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onesigma.errors import InputError, PackageError
from onesigma.runtime.reference import SHOWN, Values

if TYPE_CHECKING:
    from onesigma.decide.monitor import Monitor

INK, SOFT, BLUE, ORANGE = "#222222", "#666666", "#0072B2", "#D55E00"


def draw(monitor: Monitor, path: Path | str) -> None:
    """Write it to ``path`` as PNG."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PackageError("A plot needs matplotlib: pip install matplotlib") from error
    known, history = monitor.reference.known, monitor.history
    if not len(history["index"]):
        raise InputError("There is nothing to draw yet: the monitor has seen no input.")
    names = [name for name in SHOWN if name in known]
    if history["invalid"].any():
        names.append("invalid")
    height = 1.5 + 1.35 * (len(names) + 1)
    figure = Figure(figsize=(9, height), dpi=150, facecolor="white")
    axes = figure.subplots(len(names) + 1, 1, sharex=True, squeeze=False)[:, 0]
    for axis, name in zip(axes, names, strict=False):
        _draw_average(axis, monitor, name)
    _draw_evidence(axes[-1], monitor)
    for axis in axes:
        _mark_alarms(axis, monitor)
    title = monitor.verdict[0].upper() + monitor.verdict[1:]
    colour = ORANGE if monitor.drifting else INK
    figure.text(0.02, 1 - 0.3 / height, title, fontsize=13, fontweight="bold", color=colour)
    top, bottom = 1 - 0.75 / height, 0.5 / height
    figure.subplots_adjust(left=0.09, right=0.88, top=top, bottom=bottom, hspace=0.42)
    picture = BytesIO()  # whole or not at all
    figure.savefig(picture, format="png")
    Path(path).write_bytes(picture.getvalue())


def running(values: Values, blocks: int) -> Values:
    """The mean of each value and those before it, ``blocks`` in all; NaN is left out."""
    both = np.nan_to_num(values), ~np.isnan(values)
    sums, counts = (np.insert(np.cumsum(each, dtype=float), 0, 0.0) for each in both)
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - blocks, 0)
    with np.errstate(invalid="ignore"):
        mean: Values = (sums[end] - sums[start]) / (counts[end] - counts[start])
    return mean


def _draw_average(axis: Any, monitor: Monitor, name: str) -> None:
    history, known = monitor.history, monitor.reference.known.get(name)
    scale = 1 if name == "entropy" else 100
    blocks = max(1, round(monitor.window / monitor._history.length))
    mean = scale * running(history[name], blocks)
    # The first few inputs say nothing on a share yet.
    mean[: min(blocks, len(mean)) // 5] = np.nan
    axis.plot(history["index"], mean, color=BLUE, linewidth=1.6)
    top = np.nanmax(np.append(mean, 0 if known is None else scale * known))
    axis.set_ylim(0, 1.2 * top if top > 0 else 1)
    _name(axis, SHOWN.get(name, name) + (", nats" if scale == 1 else ", %"))
    if known is not None:
        _reference(axis, scale * known, "known")


def _draw_evidence(axis: Any, monitor: Monitor) -> None:
    history, limit = monitor.history, 1 / monitor.false_alarms
    axis.plot(history["index"], np.maximum(history["evidence"], 1), color=BLUE, linewidth=1.2)
    axis.set_yscale("log")
    axis.set_ylim(1, 10 * max(limit, history["evidence"].max()))
    _name(axis, "evidence of drift (orange: alarms)")
    _reference(axis, limit, "alarm", ORANGE)
    axis.set_xlabel("input", fontsize=9, color=SOFT)
    axis.set_xlim(0, monitor.inputs)


def _reference(axis: Any, value: float, name: str, colour: str = SOFT) -> None:
    axis.axhline(value, color=colour, linewidth=1, linestyle=(0, (5, 2)))
    axis.annotate(
        f" {name} {_short(value)}", (1, value), xycoords=axis.get_yaxis_transform(), va="center",
        fontsize=9, color=colour, annotation_clip=False,
    )  # fmt: skip


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _name(axis: Any, title: str) -> None:
    axis.set_title(title, fontsize=9.5, color=INK, loc="left", pad=4)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(SOFT)
    axis.tick_params(labelsize=8.5, colors=SOFT, length=3)


def _mark_alarms(axis: Any, monitor: Monitor) -> None:
    """A line for the first of several in a row, and a band to the last."""
    index = np.array([alarm.index for alarm in monitor.alarms])
    breaks = np.flatnonzero(np.diff(index) > monitor.window * monitor.every) + 1
    for group in np.split(index, breaks):
        if len(group):
            axis.axvspan(group[0], group[-1], color=ORANGE, alpha=0.15, linewidth=0, zorder=0)
            axis.axvline(group[0], color=ORANGE, linewidth=1.2, zorder=1)
