"""What each noise does to a stream, and when which is on."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onesigma.pages.figures import save

INK, SOFT, FAINT, QUIET = "#222222", "#555555", "#B0B0B0", "#E9E9E9"
# Okabe & Ito's, told apart with any colour vision.
LINES = ("#0072B2", "#D55E00", "#009E73")
COLUMNS = 2


class Panel(NamedTuple):
    """A stream before and after, both (n, lines), on one axis."""

    name: str
    what: str
    before: npt.NDArray[np.floating]
    after: npt.NDArray[np.floating]
    rate: float
    clean_on_top: bool = False  # for sound, which is too dense to see through


class Period(Protocol):
    """What is drawn of a period; see ``data.schedule.Period``."""

    @property
    def start(self) -> float: ...
    @property
    def stop(self) -> float: ...
    @property
    def kind(self) -> str: ...


def noises(
    panels: Sequence[Panel],
    periods: Sequence[Period],
    seconds: float,
    path: Path | str,
    *,
    title: str,
    when: str,
    footnote: str,
) -> None:
    """Draw a time line of `periods` and below it the panels, two in a row, and write it to `path`.

    Args:
        panels: row by row.
        periods: of a stream of `seconds`.
        seconds: how long that stream is.
        path: the PNG to write, and as SVG beside it; its folder must exist.
        title: above everything.
        when: what the time line shows.
        footnote: where the streams come from.
    """
    if not panels:
        raise ValueError("No noise to draw: pass at least one panel.")
    rows = -(-len(panels) // COLUMNS)
    height = 2.9 + 1.6 * rows
    figure = Figure(figsize=(13.0, height), dpi=90, facecolor="white")
    grid = figure.add_gridspec(
        rows, COLUMNS, left=0.03, right=0.985, top=1 - 2.3 / height, bottom=0.7 / height,
        hspace=0.55, wspace=0.07,
    )  # fmt: skip
    time_line = figure.add_axes((0.03, 1 - 1.4 / height, 0.955, 0.3 / height))
    time_line.set_title(when, loc="left", fontsize=11, color=INK, pad=20)
    _draw_time_line(time_line, periods, seconds)
    for number, panel in enumerate(panels):
        _draw(figure.add_subplot(grid[divmod(number, COLUMNS)]), panel)
    figure.text(0.012, 1 - 0.32 / height, title, fontsize=16, fontweight="bold", color=INK,
                va="center")  # fmt: skip
    figure.text(0.012, 0.16 / height, footnote, fontsize=9, color=SOFT)
    save(figure, path)


def _draw_time_line(axis: Axes, periods: Sequence[Period], seconds: float) -> None:
    axis.set_facecolor(QUIET)
    for period in periods:
        start, stop = period.start / 60, period.stop / 60
        axis.axvspan(start, stop, color=LINES[0], linewidth=0)
        axis.text((start + stop) / 2, 1.15, period.kind, transform=axis.get_xaxis_transform(),
                  fontsize=9, color=LINES[0], ha="center", va="bottom")  # fmt: skip
    axis.set_xlim(0, seconds / 60)
    axis.set_yticks([])
    axis.set_xlabel("minutes", fontsize=9, color=SOFT)
    _dress(axis)


def _draw(axis: Axes, panel: Panel) -> None:
    times = np.arange(len(panel.before)) / panel.rate
    for before, after, colour in zip(panel.before.T, panel.after.T, cycle(LINES), strict=False):
        axis.plot(times, after, color=colour, linewidth=1.0, zorder=2)
        if panel.clean_on_top:
            axis.plot(times, before, color=SOFT, linewidth=1.0, zorder=3)
        else:
            axis.plot(times, before, color=colour, linewidth=2.4, alpha=0.3, zorder=1)
    axis.set_yticks([])
    axis.set_xlim(0, len(times) / panel.rate)
    axis.set_title(panel.name, loc="left", fontsize=12, fontweight="bold", color=INK)
    axis.set_title(panel.what, loc="right", fontsize=9.5, color=SOFT)
    _dress(axis)


def _dress(axis: Axes) -> None:
    axis.spines[["left", "right", "top"]].set_visible(False)
    axis.spines["bottom"].set_color(FAINT)
    axis.tick_params(length=0, labelsize=9, colors=SOFT)
