"""The picture of the paper's noises: `python -m onesigma.lab.bench.noise_picture`.

It writes docs/noise.png: what each noise does to a stream, and when which is on.

The motion is the demo's smartwatch recordings; the sound, drawn only where the prepared datasets
are at hand, three words of Speech Commands in the rain of ESC-10.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onesigma.errors import DataError
from onesigma.lab.datasets import esc, noise, speech, watch
from onesigma.lab.datasets.mfcc import SAMPLE_RATE
from onesigma.lab.datasets.motion import Recording
from onesigma.lab.figures import save
from onesigma.lab.plots import FAINT, INK, SOFT

# Chosen for the eye: all seven noises within half an hour, no factor close to 1.
SCHEDULE_SEED, SEED = 416, 26
FROM_SECOND, SHOWN_SECONDS = 2, 10
# Of each noise two strengths, and what they mean.
SHOWN = {
    "rotation": ((0.25, "all axes alike, up to 45°"), (1, "up to 180°")),
    "permutation": ((1, "every 2.5 s in 4 pieces, shuffled"), (2, "in 7 pieces")),
    "time-warp": ((1, "speed varies by 20 %, both ends stay"), (2, "by 40 %")),
    "scaling": ((1, "each channel times a constant, 1 ± 0.1"), (2, "1 ± 0.2")),
    "magnitude-warp": ((1, "each channel times a smooth curve, 1 ± 0.2"), (2, "1 ± 0.4")),
    "jitter": ((1, "normal noise, 0.1 of the sensor's spread"), (2, "0.2")),
    "crop": ((1, "⅔ of every 2.5 s, drawn out"), (2, "½ of it")),
}
SNR_DB = (10.0, 0.0)
TITLE = "The paper's noises"
WHEN = "When: one at a time, 20 s to 2 min, with 2 to 5 min between"
FOOTNOTE = (
    "Pale (sound: grey): as recorded. Motion: three axes of a smartwatch's accelerometer "
    "(seglearn, BSD-3). Sound: Speech Commands (CC BY 4.0), ESC-10 (CC BY 3.0). Time in seconds."
)

QUIET = "#E9E9E9"
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


def motion_panels(recordings: list[Recording], number: int = 2) -> list[Panel]:
    """The accelerometer of one recording under each noise, at two strengths, from one seed."""
    unit, recording = noise.sensor_spread(recordings), recordings[number]
    rate, triads = recording.rate, recording.triads
    start = int(FROM_SECOND * rate)
    signal = recording.signal[start : start + int(SHOWN_SECONDS * rate)] / unit
    panels = []
    for kind, alter in noise.NOISES.items():
        for column, (strength, what) in enumerate(SHOWN[kind]):
            after = alter(signal, rate, triads, np.random.default_rng(SEED), strength)
            caption = f"strength {strength}: {what}"
            panels.append(Panel("" if column else kind, caption, signal[:, :3], after[:, :3], rate))
    return panels


def sound_panels(root: Path | None) -> list[Panel]:
    clips, sounds = speech.read(root).audio[:3], esc.read(root)
    before, panels = clips.reshape(-1, 1).astype(np.float64), []
    for column, snr_db in enumerate(SNR_DB):
        rng = np.random.default_rng(SEED)
        periods = noise.plan_ambient(clips.size / SAMPLE_RATE, ("rain",), rng)
        after = noise.add_ambient(clips, periods, sounds, rng, snr_db).reshape(-1, 1)
        name, what = "" if column else "ambient noise", f"three words in rain, {snr_db:g} dB"
        panels.append(Panel(name, what, before, after, SAMPLE_RATE, clean_on_top=True))
    return panels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/noise.png"))
    parser.add_argument("--data-root", type=Path, default=None)
    options = parser.parse_args()
    panels = motion_panels(watch.recordings())
    try:
        panels += sound_panels(options.data_root)
    except DataError as error:
        print(f"No picture of ambient noise: {error}")
    seconds = 30 * 60.0
    rng, gap = np.random.default_rng(SCHEDULE_SEED), noise.MOTION_GAP_SECONDS
    kinds = tuple(noise.NOISES)
    periods = noise.schedule(seconds, kinds, rng, lasting=noise.MOTION_SECONDS, gap=gap)
    draw(panels, periods, seconds, options.out)
    print(f"Wrote {options.out}.")


def draw(
    panels: Sequence[Panel], periods: Sequence[noise.Period], seconds: float, path: Path
) -> None:
    """Draw the periods of a stream and below them the panels, two in a row; PNG, and SVG beside."""
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
    time_line.set_title(WHEN, loc="left", fontsize=11, color=INK, pad=20)
    _draw_time_line(time_line, periods, seconds)
    for number, panel in enumerate(panels):
        _draw_panel(figure.add_subplot(grid[divmod(number, COLUMNS)]), panel)
    figure.text(0.012, 1 - 0.32 / height, TITLE, fontsize=16, fontweight="bold", color=INK,
                va="center")  # fmt: skip
    figure.text(0.012, 0.16 / height, FOOTNOTE, fontsize=9, color=SOFT)
    save(figure, path)


def _draw_time_line(axis: Axes, periods: Sequence[noise.Period], seconds: float) -> None:
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


def _draw_panel(axis: Axes, panel: Panel) -> None:
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


if __name__ == "__main__":
    main()
