"""The paper's noise on motion sensors: seven alterations, one at a time, in periods.

The alterations are those of Um et al. 2017 (arXiv:1706.00527), which the paper cites without
settings. `strength` 1 stands for that work's own settings, 0 changes nothing, and whatever is drawn
scales with it. Two things differ. A stream is no window of one minute: what Um et al. do once or
four times per window happens here every 2.5 s, so that windows of 1 s and of 5 s both meet it. And
factors are log-normal instead of normal, so that none is negative however strong the noise.

Labels stay where they are. Permutation and crop move an event by less than 2.5 s; time-warp keeps
both ends of its period and drifts between them, mostly by under 4 s at strength 1.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from onesigma.lab.datasets.recording import Recording
from onesigma.lab.datasets.schedule import Period, schedule

FloatArray = npt.NDArray[np.float64]
Triads = Sequence[tuple[int, int, int]]
# (signal (n, channels), rate, triads, rng, strength) → the signal altered, of the same shape.
Noise = Callable[[FloatArray, float, Triads, np.random.Generator, float], FloatArray]

LASTING_SECONDS = (20.0, 120.0)
GAP_SECONDS = (120.0, 300.0)
BLOCK_SECONDS = 2.5

# At strength 1. A tenth of a sensor's spread is about the 0.05 g of Um et al.
JITTER_STD = 0.1
SCALING_STD = 0.1
WARP_STD = 0.2
EXTRA_PIECES = 3
CROP_STRETCH = 0.5


def rotation(
    signal: FloatArray, rate: float, triads: Triads, rng: np.random.Generator, strength: float
) -> FloatArray:
    """All sensors turned alike, by an angle uniform within ±180° · strength, at most ±180°.

    About an axis uniform on the sphere; channels of no triad stay.
        R = I + sin α K + (1 − cos α) K²,   K v = axis × v   (Rodrigues)
    """
    axis = rng.normal(size=3)
    angle = rng.uniform(-math.pi, math.pi) * min(strength, 1.0)
    cross = np.cross(np.eye(3), axis / np.linalg.norm(axis))
    turn = np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
    channels = np.array(triads, dtype=np.intp).reshape(-1, 3)
    turned = signal.copy()
    turned[:, channels] = signal[:, channels] @ turn.T
    return turned


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
    return sampled_at(signal, position * (last / position[-1]))


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
    return sampled_at(signal, first + lead[block] + share * instant)


NOISES: dict[str, Noise] = {
    "rotation": rotation,
    "permutation": permutation,
    "time-warp": time_warp,
    "scaling": scaling,
    "magnitude-warp": magnitude_warp,
    "jitter": jitter,
    "crop": crop,
}


def plan(recordings: Sequence[Recording], rng: np.random.Generator) -> tuple[Period, ...]:
    """The paper's periods: 20 s to 2 min, 2 to 5 min apart, in the recordings laid end to end."""
    seconds = sum(recording.seconds for recording in recordings)
    return schedule(seconds, tuple(NOISES), rng, lasting=LASTING_SECONDS, gap=GAP_SECONDS)


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
        periods: when and which, from `plan` or `schedule`.
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


def sampled_at(signal: FloatArray, position: FloatArray) -> FloatArray:
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
