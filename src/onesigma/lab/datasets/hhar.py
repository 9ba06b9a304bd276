"""HHAR: accelerometer and gyroscope of phones and watches, 9 people, 6 activities.

Read from the official CSV files. Accelerometer and gyroscope write rows of their own, at an uneven
rate of their own, some 50 to 200 Hz. As in the pre-processing published with DeepSense (Yao et al.
2017), whose authors wrote ApDeepSense too, rows of one person and device are paired by
Creation_Time within 10 ms, and the devices lgwatch_1, lgwatch_2 and s3mini_2 are left out.
Pairs are read off at 40 Hz on the lines between them, 10 points in 0.25 s. Where nothing came for
more than 0.5 s, a recording ends and another begins: a sample of 5 s lies in one recording and has
one activity. Samples overlap by half; the paper does not say.

**Split.** The paper gives sizes (28,314 and 1,686), but no rule. The published pre-processing tests
on user a, and so does HHAR here. Validation is another user, i.

Stisen et al. 2015, doi 10.1145/2809695.2809718; CC BY 4.0.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.lab.datasets.motion import (
    INTERVALS,
    NO_CLASS,
    POINTS,
    SPECTRA_SECONDS,
    MotionSet,
    Recording,
    by_user,
    spectra,
    triads_of,
)

CLASS_NAMES = ("bike", "sit", "stand", "walk", "stairsup", "stairsdown")
USERS = tuple("abcdefghi")
DROPPED_DEVICES = ("lgwatch_1", "lgwatch_2", "s3mini_2")
KINDS = ("Phones", "Watch")
SENSORS = ("accelerometer", "gyroscope")
# Raise it with every change to the recordings made here, because they are kept in a cache.
VERSION = 1
RATE = INTERVALS * POINTS / SPECTRA_SECONDS
PAIRED_WITHIN_SECONDS = 0.010
LONGEST_GAP_SECONDS = 0.5
ASLEEP_SECONDS = 2.0

Clock = Literal["Creation_Time", "Arrival_Time"]
StreamKey = tuple[str, str, str]  # user, model, device

_UNITS_PER_SECOND = {"Creation_Time": 1e9, "Arrival_Time": 1e3}
_TYPES = {
    **dict.fromkeys(("Arrival_Time", "Creation_Time"), "i8"),
    **dict.fromkeys(("x", "y", "z"), "f4"),
    **dict.fromkeys(("User", "Model", "Device", "gt"), "U24"),
}
ROWS_AT_ONCE = 200_000
# A name for no activity, not a missing value.
_NULL = "null"

HHAR = MotionSet(
    name="HHAR",
    class_names=CLASS_NAMES,
    users=USERS,
    part=by_user(test=("a",), validation=("i",)),
    seconds=SPECTRA_SECONDS,
    hop_seconds=2.5,
    transform=spectra,
)


def recordings(folder: Path, clock: Clock = "Creation_Time") -> list[Recording]:
    """All uninterrupted stretches of 5 s or more, at 40 Hz, with their unlabelled instants.

    Takes some minutes and about a gigabyte for the whole dataset.

    Args:
        folder: it holds the four CSV files.
        clock: what to pair rows by; Arrival_Time for files a spreadsheet has rounded.
    """
    found: list[Recording] = []
    for kind in KINDS:
        accelerometer, gyroscope = (
            read_streams(folder / f"{kind}_{sensor}.csv", clock) for sensor in SENSORS
        )
        for key in sorted(accelerometer.keys() & gyroscope.keys()):
            # Released one by one: together they are most of the memory.
            pairs = pair(accelerometer.pop(key), gyroscope.pop(key))
            found.extend(_recordings(pairs, key))
    strangers = {recording.user for recording in found} - set(USERS)
    if strangers:
        raise DataError(f"{folder}: users {', '.join(sorted(strangers))} are not of HHAR.")
    return sorted(found, key=lambda recording: recording.user)


def pair(accelerometer: Stream, gyroscope: Stream) -> Stream:
    """Six channels where both have a row within 10 ms, each row used once, in the order of time.

    The time of a pair is the mean of the two. Where they disagree about the activity, it has none.
    """
    first = accelerometer[np.argsort(accelerometer.seconds, kind="stable")]
    second = gyroscope[np.argsort(gyroscope.seconds, kind="stable")]
    nearest = _nearest(second.seconds, first.seconds)
    lag = np.abs(first.seconds - second.seconds[nearest])
    delay = np.abs(first.arrival - second.arrival[nearest])
    close = (lag <= PAIRED_WITHIN_SECONDS) & (delay <= ASLEEP_SECONDS)
    # Several rows may be next to the same one. The closest is taken: lexsort puts it first.
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
        if not len(seconds) or seconds[-1] - seconds[0] < SPECTRA_SECONDS:
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
    """For each value of `wanted`, the place of the closest in `known`, which is sorted."""
    return np.searchsorted((known[:-1] + known[1:]) / 2, wanted)


@dataclass(frozen=True)
class Stream:
    """What one sensor of one device read on one person, in the order of the file."""

    seconds: npt.NDArray[np.float64]  # by the clock asked for
    arrival: npt.NDArray[np.float64]  # by the clock of the phone that collected, in seconds
    values: npt.NDArray[np.float32]  # (n, axes)
    labels: npt.NDArray[np.int8]

    def __getitem__(self, rows: npt.NDArray[Any] | slice) -> Stream:
        return Stream(*(getattr(self, field.name)[rows] for field in fields(self)))


def read_streams(path: Path, clock: Clock) -> dict[StreamKey, Stream]:
    """The rows of one file by user, model and device, without the dropped devices.

    In pieces, because a file has over a gigabyte, and rows of all devices are mixed in it.
    """
    pieces: defaultdict[StreamKey, list[Stream]] = defaultdict(list)
    for rows in _pieces(path, clock):
        stream = Stream(
            seconds=rows[clock] / _UNITS_PER_SECOND[clock],
            arrival=rows["Arrival_Time"] / _UNITS_PER_SECOND["Arrival_Time"],
            values=np.stack([rows[axis] for axis in "xyz"], axis=1),
            labels=_labels(rows["gt"], path.name),
        )
        names = [rows[column] for column in ("User", "Model", "Device")]
        for key in set(zip(*(column.tolist() for column in names), strict=True)):
            if key[2] not in DROPPED_DEVICES:
                user, model, device = (
                    column == name for column, name in zip(names, key, strict=True)
                )
                pieces[key].append(stream[user & model & device])
    # One by one, so that not everything is in memory twice.
    return {key: _join(pieces.pop(key)) for key in list(pieces)}


def _pieces(path: Path, clock: Clock) -> Iterator[npt.NDArray[Any]]:
    """The file's rows as records, some at a time."""
    done = 0
    try:
        with path.open(encoding="utf-8") as file:
            layout = _layout(file.readline(), path.name, clock)
            while lines := list(islice(file, ROWS_AT_ONCE)):
                rows = _parse(lines, *layout)
                broken = ~np.isfinite(rows["x"] + rows["y"] + rows["z"])
                if broken.any():
                    row = done + int(broken.argmax()) + 1
                    raise DataError(f"{path.name}: row {row} holds no number in x, y or z.")
                yield rows
                done += len(rows)
    except (OSError, ValueError, DeprecationWarning) as error:
        raise DataError(
            f"{path.name} cannot be read after row {done}: {error}. Unpack it again; if a "
            "spreadsheet has rounded Creation_Time, the clock Arrival_Time can still be read."
        ) from error


def _layout(header: str, name: str, clock: Clock) -> tuple[list[int], np.dtype[Any]]:
    """Where in a row the columns stand that are needed, and their types."""
    columns = header.strip().split(",")
    needed = [column for column in _TYPES if column != "Creation_Time" or clock == column]
    absent = [column for column in needed if column not in columns]
    if absent:
        raise DataError(f"{name} lacks the columns {', '.join(absent)}: not a file of HHAR.")
    return [columns.index(c) for c in needed], np.dtype([(c, _TYPES[c]) for c in needed])


def _parse(lines: list[str], columns: list[int], types: np.dtype[Any]) -> npt.NDArray[Any]:
    with warnings.catch_warnings():
        # numpy would read a rounded 1.4E+18 as a whole number, and only warn.
        warnings.simplefilter("error", DeprecationWarning)
        warnings.filterwarnings("ignore", "loadtxt: input contained no data")
        return np.loadtxt(
            lines, dtype=types, comments=None, delimiter=",", usecols=columns, ndmin=1
        )


def _labels(names: npt.NDArray[np.str_], file: str) -> npt.NDArray[Any]:
    unknown = set(names.tolist()) - {*CLASS_NAMES, _NULL}
    if unknown:
        raise DataError(f"{file}: gt holds {', '.join(sorted(unknown))}, no activity of HHAR.")
    labels = np.full(len(names), NO_CLASS, dtype=np.int8)
    for label, name in enumerate(CLASS_NAMES):
        labels[names == name] = label
    return labels


def _join(parts: list[Stream]) -> Stream:
    return Stream(
        *(np.concatenate([getattr(p, field.name) for p in parts]) for field in fields(Stream))
    )
