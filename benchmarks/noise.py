"""The picture of the paper's noises: `python benchmarks/noise.py` writes docs/noise.png.

The motion is the demo's smartwatch recordings; the sound, drawn only where the prepared datasets
are at hand, three words of Speech Commands in the rain of ESC-10.
"""

import argparse
from pathlib import Path

import numpy as np

from onesigma.errors import DataError
from onesigma.lab.datasets import ambient, augment, esc, speech, watch
from onesigma.lab.datasets.recording import Recording
from onesigma.lab.datasets.schedule import schedule
from onesigma.lab.plots.augment import Panel, noises

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


def watch_recordings() -> list[Recording]:
    """The demo's recordings: ax ay az in g, wx wy wz in rad/s."""
    file = watch.read_verified(watch.locate())
    return [
        Recording(
            signal=signal.astype(np.float32),
            rate=watch.SAMPLE_RATE,
            labels=np.full(len(signal), int(label)),
            user=str(subject),
            triads=((0, 1, 2), (3, 4, 5)),
        )
        for signal, label, subject in zip(file["X"], file["y"], file["subject"], strict=True)
    ]


def motion_panels(recordings: list[Recording], number: int = 2) -> list[Panel]:
    """The accelerometer of one recording under each noise, at two strengths, from one seed."""
    unit, recording = augment.sensor_spread(recordings), recordings[number]
    rate, triads = recording.rate, recording.triads
    start = int(FROM_SECOND * rate)
    signal = recording.signal[start : start + int(SHOWN_SECONDS * rate)] / unit
    panels = []
    for kind, noise in augment.NOISES.items():
        for column, (strength, what) in enumerate(SHOWN[kind]):
            after = noise(signal, rate, triads, np.random.default_rng(SEED), strength)
            caption = f"strength {strength}: {what}"
            panels.append(Panel("" if column else kind, caption, signal[:, :3], after[:, :3], rate))
    return panels


def sound_panels(root: Path | None) -> list[Panel]:
    clips, noise = speech.read(root).audio[:3], esc.read(root)
    before, panels = clips.reshape(-1, 1).astype(np.float64), []
    for column, snr_db in enumerate(SNR_DB):
        rng = np.random.default_rng(SEED)
        periods = ambient.plan(clips.size / speech.SAMPLE_RATE, ("rain",), rng)
        after = ambient.add_ambient(clips, periods, noise, rng, snr_db).reshape(-1, 1)
        name, what = "" if column else "ambient noise", f"three words in rain, {snr_db:g} dB"
        panels.append(Panel(name, what, before, after, speech.SAMPLE_RATE, clean_on_top=True))
    return panels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/noise.png"))
    parser.add_argument("--data-root", type=Path, default=None)
    options = parser.parse_args()
    panels = motion_panels(watch_recordings())
    try:
        panels += sound_panels(options.data_root)
    except DataError as error:
        print(f"No picture of ambient noise: {error}")
    seconds = 30 * 60.0
    periods = schedule(
        seconds, tuple(augment.NOISES), np.random.default_rng(SCHEDULE_SEED),
        lasting=augment.LASTING_SECONDS, gap=augment.GAP_SECONDS,
    )  # fmt: skip
    noises(panels, periods, seconds, options.out, title=TITLE, when=WHEN, footnote=FOOTNOTE)
    print(f"Wrote {options.out}.")


if __name__ == "__main__":
    main()
