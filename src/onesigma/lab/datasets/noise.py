"""The paper's noise: when which kind is on, what it does to motion and to sound; random input.

**Motion.** Seven alterations, one at a time, in periods. They are those of Um et al. 2017
(arXiv:1706.00527), which the paper cites without settings. `strength` 1 stands for that work's own
settings, 0 changes nothing, and all that is drawn scales with it. Two things differ. Um et al.
alter a window of one minute once or four times; a stream has no such window, so here it happens
every 2.5 s, and windows of 1 s and of 5 s both meet it. And factors are log-normal instead of
normal, so that none is negative, however strong the noise.

Labels stay where they are. Permutation and crop move an event by less than 2.5 s; time-warp keeps
both ends of its period and drifts between them, mostly by less than 4 s at strength 1.

**Sound.** Clips are laid end to end to a stream. Each kind of ambient noise lasts 15 to 60 s, made
of recordings of that kind in a row. The paper names no gaps, so there are none. See `esc`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onesigma.lab.datasets.motion import Recording

FloatArray = npt.NDArray[np.float64]
Triads = Sequence[tuple[int, int, int]]
# (signal (n, channels), rate, triads, rng, strength) → the signal altered, of the same shape.
Noise = Callable[[FloatArray, float, Triads, np.random.Generator, float], FloatArray]
# Kind of noise → its recordings (clips, samples), at the rate of the sound they are added to.
NoiseClips = Mapping[str, npt.NDArray[Any]]

MOTION_SECONDS = (20.0, 120.0)
MOTION_GAP_SECONDS = (120.0, 300.0)
AMBIENT_SECONDS = (15.0, 60.0)
BLOCK_SECONDS = 2.5

# At strength 1. A tenth of a sensor's spread is about the 0.05 g of Um et al.
JITTER_STD = 0.1
SCALING_STD = 0.1
WARP_STD = 0.2
EXTRA_PIECES = 3
CROP_STRETCH = 0.5


@dataclass(frozen=True)
class Period:
    """One kind of noise, from `start` to `stop`, in seconds from the beginning of the stream."""

    start: float
    stop: float
    kind: str


def schedule(
    seconds: float,
    kinds: Sequence[str],
    rng: np.random.Generator,
    *,
    lasting: tuple[float, float],
    gap: tuple[float, float],
) -> tuple[Period, ...]:
    """The periods of noise in a stream of `seconds`, in order, none overlapping another.

    Each lasts and is followed by a gap of a time drawn uniformly from (shortest, longest); its kind
    is drawn from `kinds`, all alike. The stream begins at a random instant of a gap, as if it had
    run before, and the last period ends with the stream.
    """
    if not kinds or lasting[0] <= 0 or gap[0] < 0 or lasting[1] < lasting[0] or gap[1] < gap[0]:
        raise ValueError(
            "Expected some kinds, lasting with 0 < shortest ≤ longest and gap with "
            f"0 ≤ shortest ≤ longest, got {list(kinds)}, {lasting} and {gap}."
        )
    periods = []
    clock = rng.uniform(0.0, rng.uniform(*gap))
    while clock < seconds:
        stop = clock + rng.uniform(*lasting)
        kind = kinds[int(rng.integers(len(kinds)))]
        periods.append(Period(clock, min(stop, seconds), kind))
        clock = stop + rng.uniform(*gap)
    return tuple(periods)


def rotation(
    signal: FloatArray, rate: float, triads: Triads, rng: np.random.Generator, strength: float
) -> FloatArray:
    """All sensors turned alike, by an angle uniform within ±180° · strength, at most ±180°.

    About an axis uniform on the sphere; channels of no triad stay.
    """
    axis = rng.normal(size=3)
    turn = turn_about(axis, rng.uniform(-math.pi, math.pi) * min(strength, 1.0))
    channels = np.array(triads, dtype=np.intp).reshape(-1, 3)
    turned = signal.copy()
    turned[:, channels] = signal[:, channels] @ turn.T
    return turned


def turn_about(axis: FloatArray, angle: float) -> FloatArray:
    """The rotation (3, 3) about an axis of any length but 0.

    R = I + sin α K + (1 − cos α) K²,   K v = axis × v   (Rodrigues)
    """
    cross = np.cross(np.eye(3), axis / np.linalg.norm(axis))
    turn: FloatArray = np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
    return turn


def permutation(
    signal: FloatArray, rate: float, triads: Triads, rng: np.random.Generator, strength: float
) -> FloatArray:
    """Each block of 2.5 s cut at random places in 1 + 3 · strength pieces, and these shuffled."""
    block, instant, size = _blocks(len(signal), rate)
    pieces = 1 + round(EXTRA_PIECES * strength)
    borders = size[:, None] * rng.random((len(size), pieces - 1))
    piece = (instant[:, None] >= borders[block]).sum(axis=1)
    place = rng.random((len(size), pieces))
    return signal[np.lexsort((np.arange(len(signal)), place[block, piece], block))]


def time_warp(
    signal: FloatArray, rate: float, triads: Triads, rng: np.random.Generator, strength: float
) -> FloatArray:
    """Time runs now faster, now slower; the log of its speed is a smooth curve.

    Its knots have std 0.2 · strength. One clock for all channels; both ends stay.
    """
    last = len(signal) - 1
    if last < 1:
        return signal
    speed = np.exp(WARP_STD * strength * smooth_curves((len(signal), 1), rate, rng)[:, 0])
    position = np.cumsum(speed) - speed[0]
    return sample_at(signal, position * (last / position[-1]))


def scaling(
    signal: FloatArray, rate: float, triads: Triads, rng: np.random.Generator, strength: float
) -> FloatArray:
    """Each channel times a factor of its own, whose log has std 0.1 · strength."""
    factor: FloatArray = np.exp(SCALING_STD * strength * rng.normal(size=signal.shape[1]))
    return signal * factor


def magnitude_warp(
    signal: FloatArray, rate: float, triads: Triads, rng: np.random.Generator, strength: float
) -> FloatArray:
    """Each channel times a smooth curve of its own, its log of std 0.2 · strength at the knots."""
    return signal * np.exp(WARP_STD * strength * smooth_curves(signal.shape, rate, rng))


def jitter(
    signal: FloatArray, rate: float, triads: Triads, rng: np.random.Generator, strength: float
) -> FloatArray:
    """Normal noise of std 0.1 · strength, in the signal's unit, fresh at each instant."""
    return signal + JITTER_STD * strength * rng.normal(size=signal.shape)


def crop(
    signal: FloatArray, rate: float, triads: Triads, rng: np.random.Generator, strength: float
) -> FloatArray:
    """Of each block of 2.5 s a random stretch, drawn out 1 + 0.5 · strength times to fill it."""
    block, instant, size = _blocks(len(signal), rate)
    share = 1 / (1 + CROP_STRETCH * strength)
    lead = rng.random(len(size)) * (size - 1) * (1 - share)
    first = np.arange(len(signal)) - instant
    return sample_at(signal, first + lead[block] + share * instant)


NOISES: dict[str, Noise] = {
    "rotation": rotation,
    "permutation": permutation,
    "time-warp": time_warp,
    "scaling": scaling,
    "magnitude-warp": magnitude_warp,
    "jitter": jitter,
    "crop": crop,
}


def plan_motion(recordings: Sequence[Recording], rng: np.random.Generator) -> tuple[Period, ...]:
    """The paper's periods: 20 s to 2 min, 2 to 5 min apart, in the recordings laid end to end."""
    seconds = sum(recording.seconds for recording in recordings)
    return schedule(seconds, tuple(NOISES), rng, lasting=MOTION_SECONDS, gap=MOTION_GAP_SECONDS)


def sensor_spread(recordings: Sequence[Recording]) -> FloatArray:
    """The standard deviation of each channel over all recordings, shared by the axes of a sensor.

    What 1 means to `add_noise`: take it from the training recordings, once. Shared, because a
    turned sensor is as noisy as before. 1 for what never moves.
    """
    signal = np.concatenate([recording.signal for recording in recordings]).astype(np.float64)
    variance = signal.var(axis=0)
    for triad in recordings[0].triads:
        variance[list(triad)] = variance[list(triad)].mean()
    return np.sqrt(np.where(variance > 0, variance, 1.0))


def add_noise(
    recordings: Sequence[Recording],
    periods: Sequence[Period],
    unit: npt.ArrayLike,
    rng: np.random.Generator,
    strength: float = 1.0,
) -> list[Recording]:
    """The recordings, altered within the periods and bit for bit the same outside them.

    Every period draws from a stream of its own, so that two strengths meet the same noise. Where a
    period goes on in the next recording, each of the two is altered by itself.

    Args:
        recordings: laid end to end, with the same channels.
        periods: when and which, from `plan_motion` or `schedule`.
        unit: per channel, what counts as 1 and jitter is measured in, the same for the axes of a
            sensor; see `sensor_spread`.
        rng: the seed; the same seed gives the same noise.
        strength: 1 is the paper's, 0 none.
    """
    unknown = {period.kind for period in periods} - set(NOISES)
    if unknown or not 0 <= strength < math.inf:
        raise ValueError(
            f"strength must be 0 or more and the kinds of noise among {', '.join(NOISES)}; "
            f"got {strength} and {', '.join(sorted(unknown)) or 'no other kind'}."
        )
    scale = np.asarray(unit, dtype=np.float64)
    streams = rng.spawn(len(periods))
    signals = [recording.signal.copy() for recording in recordings]
    for index, part, number in _parts(recordings, periods):
        source, noise = recordings[index], NOISES[periods[number].kind]
        altered = noise(
            source.signal[part] / scale, source.rate, source.triads, streams[number], strength
        )
        signals[index][part] = altered * scale
    return [replace(r, signal=signal) for r, signal in zip(recordings, signals, strict=True)]


def is_noisy(
    recordings: Sequence[Recording], periods: Sequence[Period]
) -> list[npt.NDArray[np.bool_]]:
    """For each recording, whether a period covers the instant."""
    marks = [np.zeros(len(recording.signal), dtype=np.bool_) for recording in recordings]
    for index, part, _ in _parts(recordings, periods):
        marks[index][part] = True
    return marks


def smooth_curves(shape: tuple[int, int], rate: float, rng: np.random.Generator) -> FloatArray:
    """Random curves (n, columns): Catmull–Rom splines, a standard-normal knot every 2.5 s."""
    n, columns = shape
    time = np.arange(n)[:, None] / max(BLOCK_SECONDS * rate, 1.0)
    knot = time.astype(np.intp)[:, 0]
    knots = rng.normal(size=(knot.max(initial=0) + 4, columns))
    before, left, right, after = (knots[knot + i] for i in range(4))
    bend = 2 * before - 5 * left + 4 * right - after
    twist = 3 * (left - right) + after - before
    t = time % 1
    curves: FloatArray = left + t / 2 * (right - before + t * (bend + t * twist))
    return curves


def sample_at(signal: FloatArray, position: FloatArray) -> FloatArray:
    """The signal at fractional instants, by linear interpolation; outside it, its end."""
    last = len(signal) - 1
    inside = np.clip(position, 0, last)
    lower = inside.astype(np.intp)
    share = (inside - lower)[:, None]
    sampled: FloatArray = (1 - share) * signal[lower] + share * signal[np.minimum(lower + 1, last)]
    return sampled


def _blocks(
    n: int, rate: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of each instant its block and its place in the block, and of each block its size."""
    length = max(round(BLOCK_SECONDS * rate), 1)
    block, instant = np.divmod(np.arange(n), length)
    return block, instant, np.bincount(block)


def _parts(
    recordings: Sequence[Recording], periods: Sequence[Period]
) -> Iterator[tuple[int, slice, int]]:
    """Which instants of which recording lie in which period: (recording, instants, period)."""
    offset = 0.0
    for index, recording in enumerate(recordings):
        n, rate = len(recording.signal), recording.rate
        for number, period in enumerate(periods):
            start, stop = (
                min(max(round((edge - offset) * rate), 0), n)
                for edge in (period.start, period.stop)
            )
            if start < stop:
                yield index, slice(start, stop), number
        offset += recording.seconds


def plan_ambient(
    seconds: float, kinds: Sequence[str], rng: np.random.Generator
) -> tuple[Period, ...]:
    """The paper's periods: one kind at a time, 15 to 60 s each, without gaps."""
    return schedule(seconds, kinds, rng, lasting=AMBIENT_SECONDS, gap=(0.0, 0.0))


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
        periods: when and which, from `plan_ambient`.
        noise: the recordings of each kind.
        rng: the seed; the same seed gives the same noise.
        snr_db: mean power of a clip over that of its noise, in decibels; infinite adds none.
        rate: samples per second, of sound and noise.
    """
    stream = ambient_stream(sound.size, periods, noise, rng, rate)
    return mix(sound, stream.reshape(sound.shape), snr_db)


def ambient_stream(
    samples: int, periods: Sequence[Period], noise: NoiseClips, rng: np.random.Generator, rate: int
) -> FloatArray:
    """The noise alone: in each period random clips of its kind in a row, and zero elsewhere."""
    stream = np.zeros(samples)
    for period in periods:
        part = stream[round(period.start * rate) : round(period.stop * rate)]
        clips = noise[period.kind]
        drawn = rng.integers(len(clips), size=-(-len(part) // clips.shape[1]))
        part[:] = clips[drawn].ravel()[: len(part)]
    return stream


def mix(sound: npt.NDArray[Any], noise: npt.NDArray[Any], snr_db: float) -> FloatArray:
    """Sound plus noise, both (n, samples), the noise of each row scaled to the stated ratio.

        10 log₁₀ (mean sound² / mean (gain · noise)²) = snr_db
    The sum is not clipped. Where either is silent there is no ratio, and the sound stays as it is.
    """
    signal, added = sound.astype(np.float64), noise.astype(np.float64)
    signal_power, noise_power = (np.square(x).mean(axis=1, keepdims=True) for x in (signal, added))
    wanted = signal_power / 10 ** (snr_db / 10)
    gain = np.sqrt(np.divide(wanted, noise_power, out=np.zeros_like(wanted), where=noise_power > 0))
    return np.asarray(signal + gain * added)


def white_noise(count: int, shape: Sequence[int], seed: int = 0) -> Tensor:
    """Random inputs: independent standard-normal values, which convolutions average out."""
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def random_walk(count: int, shape: Sequence[int], seed: int = 0) -> Tensor:
    """A drifting sensor: random walks of unit spread, smooth like motion and meaningless."""
    walk = white_noise(count, shape, seed).cumsum(-1)
    walk = walk - walk.mean(-1, keepdim=True)
    return walk / walk.std(-1, keepdim=True)
