"""The paper's noise on sound: real ambient noise, one kind at a time, at a stated ratio.

Clips are laid end to end to a stream. Each kind of noise lasts 15 to 60 s, made of recordings of
that kind in a row; the paper names no gaps, so by default there are none. The recordings are those
of ESC; see `data.esc`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.lab.datasets.schedule import Period, schedule

FloatArray = npt.NDArray[np.float64]
# Kind of noise → its recordings (clips, samples), at the rate of the sound they are added to.
NoiseClips = Mapping[str, npt.NDArray[Any]]

LASTING_SECONDS = (15.0, 60.0)


def plan(
    seconds: float,
    kinds: Sequence[str],
    rng: np.random.Generator,
    gap: tuple[float, float] = (0.0, 0.0),
) -> tuple[Period, ...]:
    """The paper's periods: one kind at a time, 15 to 60 s each."""
    return schedule(seconds, kinds, rng, lasting=LASTING_SECONDS, gap=gap)


def add_ambient(
    sound: npt.NDArray[Any],
    periods: Sequence[Period],
    noise: NoiseClips,
    rng: np.random.Generator,
    snr_db: float,
    rate: int = 16000,
) -> FloatArray:
    """Each clip of `sound` (n, samples) in the noise of its time, `snr_db` apart in mean power.

    Args:
        sound: clips, laid end to end as one stream.
        periods: when and which, from `plan`.
        noise: the recordings of each kind.
        rng: the seed; the same seed gives the same noise.
        snr_db: mean power of a clip over that of its noise, in decibels; infinite adds none.
        rate: samples per second, of sound and noise.
    """
    stream = ambient_stream(sound.size, periods, noise, rng, rate)
    return mixed(sound, stream.reshape(sound.shape), snr_db)


def ambient_stream(
    samples: int, periods: Sequence[Period], noise: NoiseClips, rng: np.random.Generator, rate: int
) -> FloatArray:
    """Nothing but the noise: in each period clips of its kind in a row, drawn anew; else zero."""
    stream = np.zeros(samples)
    for period in periods:
        part = stream[round(period.start * rate) : round(period.stop * rate)]
        clips = noise[period.kind]
        drawn = rng.integers(len(clips), size=-(-len(part) // clips.shape[1]))
        part[:] = clips[drawn].ravel()[: len(part)]
    return stream


def mixed(sound: npt.NDArray[Any], noise: npt.NDArray[Any], snr_db: float) -> FloatArray:
    """Sound plus noise, both (n, samples), the noise of each row scaled to the stated ratio.

        10 log₁₀ (mean sound² / mean (gain · noise)²) = snr_db
    The sum is not clipped. Where either is silent there is no ratio, and the sound stays as it is.
    """
    signal, added = sound.astype(np.float64), noise.astype(np.float64)
    signal_power, noise_power = (np.square(x).mean(axis=1, keepdims=True) for x in (signal, added))
    wanted = signal_power / 10 ** (snr_db / 10)
    gain = np.sqrt(np.divide(wanted, noise_power, out=np.zeros_like(wanted), where=noise_power > 0))
    return np.asarray(signal + gain * added)
