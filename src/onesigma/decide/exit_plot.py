"""What exits save and what they cost in errors, for every threshold, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from onesigma.decide.early_exit import exit_scores
from onesigma.errors import PackageError

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.prediction import Prediction

INK, SOFT, BLUE, ORANGE = "#222222", "#666666", "#0072B2", "#D55E00"
_POINTS = 200
Numbers = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """For each threshold: the mean cost, the share of wrong answers, and that which left early."""

    thresholds: Numbers
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
    return Curve(thresholds, *np.array(rows).T)


def draw(
    said: Sequence[Prediction],
    labels: Tensor,
    costs: Sequence[float],
    chosen: float,
    path: Path | str,
) -> None:
    """Errors and coverage over multiply-adds, and where the chosen threshold lies, as PNG."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PackageError("A plot needs matplotlib: pip install matplotlib") from error
    scores = np.concatenate([exit_scores(each) for each in said[:-1]])
    known = scores[np.isfinite(scores)]
    levels = np.quantile(known, np.linspace(0, 1, _POINTS)) if len(known) else np.zeros(1)
    every = curve(said, labels, costs, np.append(levels, levels[-1] + 1))
    here = curve(said, labels, costs, np.array([chosen]))
    figure = Figure(figsize=(7, 4.6), dpi=150, facecolor="white")
    top, below = figure.subplots(2, 1, sharex=True)
    for axis, values, point, title in (
        (top, every.errors, here.errors, "wrong answers, %"),
        (below, every.coverage, here.coverage, "answered early, %"),
    ):
        axis.plot(100 * every.costs, 100 * values, color=BLUE, linewidth=1.6)
        axis.plot(100 * here.costs, 100 * point, "o", color=ORANGE)
        axis.set_title(title, fontsize=9.5, color=INK, loc="left", pad=4)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8.5, colors=SOFT, length=3)
    whole = 100 * float((said[-1].label != labels).double().mean())
    top.axhline(whole, color=SOFT, linewidth=1, linestyle=(0, (5, 2)))
    top.annotate("whole network", (100, whole), fontsize=8.5, color=SOFT, va="bottom", ha="right")
    below.set_xlabel("multiply-adds, % of the network (dot: the rule)", fontsize=9, color=SOFT)
    figure.tight_layout()
    picture = BytesIO()  # whole or not at all
    figure.savefig(picture, format="png")
    Path(path).write_bytes(picture.getvalue())
