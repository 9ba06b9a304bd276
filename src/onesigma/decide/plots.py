"""Pictures as PNG: the history of a ``Monitor``, and what exits save and cost."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onesigma.decide.early_exit import exit_scores
from onesigma.errors import InputError, PackageError
from onesigma.runtime.reference import SHOWN

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.decide.monitor import Monitor
    from onesigma.prediction import Prediction

SOFT, BLUE, ORANGE = "#666666", "#0072B2", "#D55E00"
_DASHED: Any = (0, (5, 2))
_POINTS = 200
Numbers = npt.NDArray[np.float64]


def draw_monitor(monitor: Monitor, path: Path | str) -> None:
    """Averages over the stream, as long as the monitor's window; the evidence; the alarms."""
    history, known = monitor.history, monitor.reference.known
    place, limit = history["index"], 1 / monitor.false_alarms
    if not len(place):
        raise InputError("There is nothing to draw yet: the monitor has seen no input.")
    blocks = max(1, round(monitor.window * monitor.every / place[0]))
    names = [*(name for name in SHOWN if name in known), "invalid"]
    panels = _Panels([*(SHOWN.get(name, name) for name in names), "evidence"])
    panels.figure.suptitle(monitor.verdict, color=ORANGE if monitor.drifting else SOFT)
    for axis, name in zip(panels.axes, names, strict=False):
        axis.plot(place, _running(history[name], blocks), color=BLUE)
        axis.axhline(known.get(name, 0), color=SOFT, linestyle=_DASHED)
        axis.set_ylim(bottom=0)
    last = panels.axes[-1]
    last.semilogy(place, np.maximum(history["evidence"], 1), color=BLUE)
    last.axhline(limit, color=ORANGE, linestyle=_DASHED)
    last.set_ylim(1, 10 * max(limit, history["evidence"].max()))
    for axis in panels.axes:
        index = [alarm.index for alarm in monitor.alarms]
        axis.vlines(index, *axis.get_ylim(), color=ORANGE, alpha=0.2)
    panels.save(path, "input (dashed: of known inputs, and where an alarm is raised)")


def _running(values: Numbers, blocks: int) -> Numbers:
    """The mean of each value and those before it, ``blocks`` in all; NaN is left out."""
    both = (np.nan_to_num(values), (~np.isnan(values)).astype(float))
    total, count = (np.convolve(each, np.ones(blocks))[: len(values)] for each in both)
    with np.errstate(invalid="ignore"):
        mean: Numbers = total / count
    return mean


class Curve(NamedTuple):
    """For each threshold: the mean cost, the share of wrong answers, and that which left early."""

    costs: Numbers
    errors: Numbers
    coverage: Numbers


def curve(
    said: Sequence[Prediction], labels: Tensor, costs: Sequence[float], thresholds: Numbers
) -> Curve:
    """What thresholds would do to inputs of which every exit was asked, the whole network last."""
    scores = np.stack([exit_scores(each) for each in said[:-1]])
    wrong = np.stack([(each.label != labels).cpu().numpy() for each in said])
    columns = np.arange(wrong.shape[1])
    rows = []
    for threshold in thresholds:
        leaves = np.vstack([scores < threshold, np.ones(len(columns), bool)])
        place = leaves.argmax(0)
        left = place < len(said) - 1
        rows.append((np.take(costs, place).mean(), wrong[place, columns].mean(), left.mean()))
    return Curve(*np.array(rows).T)


def draw_exits(
    said: Sequence[Prediction],
    labels: Tensor,
    costs: Sequence[float],
    chosen: float,
    path: Path | str,
) -> None:
    """Errors and coverage over multiply-adds; a dot where the chosen threshold lies."""
    scores = np.concatenate([exit_scores(each) for each in said[:-1]])
    known = scores[np.isfinite(scores)]
    levels = np.quantile(known, np.linspace(0, 1, _POINTS)) if len(known) else np.zeros(1)
    every = curve(said, labels, costs, np.append(levels, levels[-1] + 1))
    here = curve(said, labels, costs, np.array([chosen]))
    panels = _Panels(["wrong answers, % (dashed: whole network)", "answered early, %"])
    for axis, values, point in zip(panels.axes, every[1:], here[1:], strict=True):
        axis.plot(100 * every.costs, 100 * values, color=BLUE)
        axis.plot(100 * here.costs, 100 * point, "o", color=ORANGE)
    whole = 100 * float((said[-1].label != labels).double().mean())
    panels.axes[0].axhline(whole, color=SOFT, linestyle=_DASHED)
    panels.save(path, "multiply-adds, % of the network (dot: the rule)")


class _Panels:
    """A figure of some panels, one below the other."""

    def __init__(self, titles: Sequence[str]) -> None:
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError as error:
            raise PackageError("A plot needs matplotlib: pip install matplotlib") from error
        size = (8, 1 + 1.6 * len(titles))
        self.figure = Figure(figsize=size, dpi=150, layout="constrained")
        self.axes = self.figure.subplots(len(titles), 1, sharex=True, squeeze=False)[:, 0]
        for axis, title in zip(self.axes, titles, strict=True):
            axis.set_title(title, fontsize=9.5, loc="left")
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelsize=8.5, colors=SOFT)

    def save(self, path: Path | str, unit: str) -> None:
        self.axes[-1].set_xlabel(unit, fontsize=9, color=SOFT)
        picture = BytesIO()  # whole or not at all
        self.figure.savefig(picture, format="png")
        Path(path).write_bytes(picture.getvalue())
