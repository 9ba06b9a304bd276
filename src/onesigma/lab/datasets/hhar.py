"""HHAR: accelerometer and gyroscope of phones and watches, 9 people, 6 activities.

Read from the official CSV files. Accelerometer and gyroscope write rows of their own, at an uneven
rate of their own, some 50 to 200 Hz. As in the pre-processing published with DeepSense (Yao et al.
2017), by authors whose ApDeepSense the paper follows, rows of one person and device are paired by
Creation_Time within 10 ms, and the devices lgwatch_1, lgwatch_2 and s3mini_2 are left out.
Pairs are read off at 40 Hz on the lines between them, 10 points in 0.25 s. Where nothing came for
more than 0.5 s, a recording ends and another begins: a sample of 5 s lies in one recording and has
one activity. Samples overlap by half, of which the paper says nothing.

**Split.** The paper gives sizes (28,314 and 1,686), but no rule. The published pre-processing tests
on user a, and so does HHAR here. Validation is another user, i.

Stisen et al. 2015, doi 10.1145/2809695.2809718; CC BY 4.0.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.lab.datasets import fourier
from onesigma.lab.datasets.hhar_csv import Clock, Stream, StreamKey, read_streams
from onesigma.lab.datasets.motion import MotionSet, by_user
from onesigma.lab.datasets.recording import NO_CLASS, Recording, triads_of

CLASS_NAMES = ("bike", "sit", "stand", "walk", "stairsup", "stairsdown")
USERS = tuple("abcdefghi")
DROPPED_DEVICES = ("lgwatch_1", "lgwatch_2", "s3mini_2")
KINDS = ("Phones", "Watch")
SENSORS = ("accelerometer", "gyroscope")
# Of the recordings made here, for those who keep them: raise it with every change to them.
VERSION = 1
RATE = fourier.INTERVALS * fourier.POINTS / fourier.SECONDS
PAIRED_WITHIN_SECONDS = 0.010
LONGEST_GAP_SECONDS = 0.5
ASLEEP_SECONDS = 2.0


def recordings(folder: Path, clock: Clock = "Creation_Time") -> list[Recording]:
    """All uninterrupted stretches of 5 s or more, at 40 Hz; unlabelled instants are in them too.

    Takes some minutes and about a gigabyte for the whole dataset.

    Args:
        folder: the one that holds the four CSV files.
        clock: what to pair rows by; Arrival_Time for files a spreadsheet has rounded.

    Raises:
        DataError: a file is absent, damaged, or not in the official layout.
    """
    found: list[Recording] = []
    for kind in KINDS:
        accelerometer, gyroscope = (
            read_streams(folder / f"{kind}_{sensor}.csv", CLASS_NAMES, clock, DROPPED_DEVICES)
            for sensor in SENSORS
        )
        for key in sorted(accelerometer.keys() & gyroscope.keys()):
            # Released one by one: together they are most of the memory.
            pairs = paired(accelerometer.pop(key), gyroscope.pop(key))
            found.extend(_recordings(pairs, key))
    strangers = {recording.user for recording in found} - set(USERS)
    if strangers:
        raise DataError(f"{folder}: users {', '.join(sorted(strangers))} are not of HHAR.")
    return sorted(found, key=lambda recording: recording.user)


def paired(accelerometer: Stream, gyroscope: Stream) -> Stream:
    """Six channels where both have a row within 10 ms, each row used once, in the order of time.

    Their time is the mean of the two; where they disagree about the activity, there is none.
    """
    first = accelerometer[np.argsort(accelerometer.seconds, kind="stable")]
    second = gyroscope[np.argsort(gyroscope.seconds, kind="stable")]
    nearest = _nearest(second.seconds, first.seconds)
    lag = np.abs(first.seconds - second.seconds[nearest])
    delay = np.abs(first.arrival - second.arrival[nearest])
    close = (lag <= PAIRED_WITHIN_SECONDS) & (delay <= ASLEEP_SECONDS)
    # Of all rows next to the same one the closest, which lexsort puts first.
    order = np.lexsort((lag, nearest))
    closest = np.concatenate([[True], np.diff(nearest[order]) > 0])
    rows = np.sort(order[closest & close[order]])
    one, other = first[rows], second[nearest[rows]]
    return Stream(
        seconds=(one.seconds + other.seconds) / 2,
        arrival=one.arrival,
        values=np.concatenate([one.values, other.values], axis=1),
        labels=np.where(one.labels == other.labels, one.labels, NO_CLASS),
    )


def stretches(pairs: Stream) -> list[Stream]:
    """The pairs in uninterrupted stretches, each in the order of time."""
    pairs = pairs[np.argsort(pairs.arrival, kind="stable")]
    # A watch's clock stands still while the watch sleeps, and may even go back: only the
    # arrival shows that it slept.
    awake = np.cumsum(np.diff(pairs.arrival, prepend=pairs.arrival[:1]) > ASLEEP_SECONDS)
    pairs = pairs[np.lexsort((pairs.seconds, awake))]
    gap = (np.diff(awake) > 0) | (np.diff(pairs.seconds) > LONGEST_GAP_SECONDS)
    borders = [0, *(np.flatnonzero(gap) + 1).tolist(), len(awake)]
    return [pairs[slice(start, stop)] for start, stop in pairwise(borders)]


def _recordings(pairs: Stream, key: StreamKey) -> Iterator[Recording]:
    user, _, device = key
    for number, stretch in enumerate(stretches(pairs)):
        seconds = stretch.seconds
        if not len(seconds) or seconds[-1] - seconds[0] < fourier.SECONDS:
            continue
        grid = np.arange(seconds[0], seconds[-1], 1 / RATE)
        columns = [np.interp(grid, seconds, column) for column in stretch.values.T]
        yield Recording(
            signal=np.stack(columns, axis=1).astype(np.float32),
            rate=RATE,
            labels=stretch.labels[_nearest(seconds, grid)].astype(np.int64),
            user=user,
            triads=triads_of(len(columns)),
            name=f"user {user}, {device}, stretch {number}",
        )


def _nearest(
    known: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]
) -> npt.NDArray[np.intp]:
    """Of each of `wanted` the place of the closest in `known`, which is in order."""
    return np.searchsorted((known[:-1] + known[1:]) / 2, wanted)


HHAR = MotionSet(
    name="HHAR",
    class_names=CLASS_NAMES,
    users=USERS,
    part=by_user(test=("a",), validation=("i",)),
    seconds=fourier.SECONDS,
    hop_seconds=2.5,
    transform=fourier.fourier,
)
