"""Opportunity: body-worn sensors in a kitchen, 4 people, 6 runs each, 30 Hz; stand, walk, sit, lie.

The paper takes the sensors on the hip, the left lower arm and the right shoe. Here these are 5
sensors of 3 axes: what accelerometers and gyroscopes read in their own frame. Magnetic field,
compass and what is computed from them are left out, because the paper speaks of accelerometers and
gyroscopes. Windows of 1 s overlap by half. A window's label is that of most of its instants;
windows mostly without one are left out, because the paper has no null class.

**Lost readings** (NaN): linear interpolation in time, per channel; before the first reading and
after the last, the nearest one. Where a sensor was silent for a second or longer, a whole
window would be invented, so these instants lose their label.

**Split.** The paper: "we use run 2 from user 1, runs 4 and 5 from user 2 and 3 in our test set. The
remaining data is used for training." That is OPPORTUNITY, with the run S2-ADL3 for validation: 1 of
19, the paper's 5 %. Its sizes, 26,908 and 6,287, fit another reading better: users 1 to 3 only, run
2 of user 1 for validation, runs 4 and 5 of users 2 and 3 for testing. That is OPPORTUNITY_BY_SIZE.

Chavarriaga et al. 2013, Pattern Recognition Letters; CC BY 4.0.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.lab.datasets.motion import (
    NO_CLASS,
    MotionSet,
    Part,
    Recording,
    sensors_by_axes,
    triads_of,
)

CLASS_NAMES = ("stand", "walk", "sit", "lie")
RATE = 30.0
RUNS = tuple(
    f"S{user}-{run}" for user in range(1, 5) for run in (*(f"ADL{i}" for i in range(1, 6)), "Drill")
)
# Numbered from 1, as in the dataset's column_names.txt.
COLUMNS = (
    *range(5, 8),  # hip, acceleration
    *range(90, 96),  # left lower arm, acceleration and angular velocity
    *range(125, 131),  # right shoe, the same in the shoe's frame
)
LABEL_COLUMN = 244
COLUMN_COUNT = 250
LONGEST_GAP_SECONDS = 1.0

# The dataset's number of a mode of locomotion → class.
LABELS = {0: NO_CLASS, 1: 0, 2: 1, 4: 2, 5: 3}
_TEST = frozenset({"S2-ADL4", "S2-ADL5", "S3-ADL4", "S3-ADL5"})


def recordings(folder: Path) -> list[Recording]:
    """All runs, in order.

    Args:
        folder: the ``dataset`` folder of the official archive.
    """
    absent = [run for run in RUNS if not (folder / f"{run}.dat").is_file()]
    if absent:
        raise DataError(f"{folder} lacks {', '.join(absent)} (.dat): unpack the archive again.")
    return [_read(folder / f"{run}.dat") for run in RUNS]


def _read(path: Path) -> Recording:
    try:
        with path.open(encoding="ascii") as file:
            count = len(file.readline().split())
            if count != COLUMN_COUNT:
                raise DataError(f"{path.name}: expected {COLUMN_COUNT} columns, found {count}.")
            file.seek(0)
            columns = [column - 1 for column in (*COLUMNS, LABEL_COLUMN)]
            table = np.loadtxt(file, dtype=np.float64, usecols=columns, ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} cannot be read: {error}. Unpack it again.") from error
    marks = table[:, -1]
    unknown = set(marks[~np.isin(marks, list(LABELS))].tolist())
    if unknown:
        raise DataError(f"{path.name}: column {LABEL_COLUMN} holds {unknown}, no locomotion.")
    labels = np.select([marks == mark for mark in LABELS], list(LABELS.values()))
    signal, silent = fill(table[:, :-1], RATE, path.name)
    return Recording(
        signal=signal,
        rate=RATE,
        labels=np.where(silent, NO_CLASS, labels).astype(np.int64),
        user=path.stem.split("-")[0],
        triads=triads_of(len(COLUMNS)),
        name=path.stem,
    )


def fill(
    signal: npt.NDArray[np.float64], rate: float, name: str
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """The signal (n, channels) with lost readings interpolated, and where a gap was too long."""
    instants = np.arange(len(signal))
    whole = np.empty(signal.shape, dtype=np.float32)
    silent = np.zeros(len(signal), dtype=np.bool_)
    for channel, column in enumerate(signal.T):
        known = np.flatnonzero(np.isfinite(column))
        if not len(known):
            raise DataError(f"{name}: column {COLUMNS[channel]} holds no number.")
        whole[:, channel] = np.interp(instants, known, column[known])
        # The reading before and the one after each instant; the ends of the run count as such.
        edges = np.concatenate([[-1], known, [len(signal)]])
        after = np.searchsorted(edges, instants)
        lost = ~np.isfinite(column)
        silent |= lost & (edges[after] - edges[after - 1] - 1 >= LONGEST_GAP_SECONDS * rate)
    return whole, silent


def _part(recording: Recording) -> Part:
    if recording.name in _TEST or recording.name == "S1-ADL2":
        return "test"
    return "validation" if recording.name == "S2-ADL3" else "train"


def _part_by_size(recording: Recording) -> Part | None:
    if recording.user == "S4":
        return None
    if recording.name in _TEST:
        return "test"
    return "validation" if recording.name == "S1-ADL2" else "train"


OPPORTUNITY = MotionSet(
    name="Opportunity",
    class_names=CLASS_NAMES,
    users=("S1", "S2", "S3", "S4"),
    part=_part,
    seconds=1.0,
    hop_seconds=0.5,
    transform=sensors_by_axes,
    agreement=0.5,
)
OPPORTUNITY_BY_SIZE = replace(
    OPPORTUNITY, name="Opportunity (split that fits the paper's sizes)", part=_part_by_size
)
