"""Daily and Sports Activities: five body-worn sensors, 8 people, 25 Hz. A STAND-IN twice over.

Real data, but not the paper's. Figures made with it carry its name.
Use A stands in for Opportunity: torso, left arm and right leg for hip, left lower arm and right
shoe; windows of 1 s; stand, walk, sit, lie. Both activities in a lift are kept (stand and walk):
without them the task is too easy.
Use B stands in for HHAR with its exact six activities: each of the five sensors counts as a device
of its own; samples of 5 s that do not overlap, as spectra.
Altun, Barshan & Tunçel 2010, doi 10.1016/j.patcog.2010.04.019; CC BY 4.0 as UCI lists it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.lab.datasets.motion import (
    SPECTRA_SECONDS,
    MotionSet,
    Recording,
    by_user,
    sensors_by_axes,
    spectra,
    triads_of,
)
from onesigma.lab.datasets.prepared import read_npz
from onesigma.lab.datasets.split import Splits

FILE = "dsads/dsads.npz"
USERS = tuple(str(user) for user in range(1, 9))
UNITS = ("T", "RA", "LA", "RL", "LL")
CHANNELS = tuple(
    f"{unit}_{axis}" for unit in UNITS for axis in ("ax", "ay", "az", "gx", "gy", "gz")
)

ACTIVITIES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16)

CLASSES_A = ("stand", "walk", "sit", "lie")
CLASSES_B = ("bike", "sit", "stand", "walk", "stairsup", "stairsdown")
# The dataset's number of an activity → class.
_LABELS_A = {2: 0, 7: 0, 8: 1, 9: 1, 10: 1, 11: 1, 1: 2, 3: 3, 4: 3}
_LABELS_B = {15: 0, 16: 0, 1: 1, 2: 2, 9: 3, 10: 3, 11: 3, 5: 4, 6: 5}
# Activities that are no class: does a network notice?
_FOREIGN_A = {"stairs": (5, 6), "cycling": (15, 16)}
_FOREIGN_B = {"lying": (3, 4), "in a lift": (7, 8)}
_DEVICES_A = (("T", "LA", "RL"),)
_DEVICES_B = tuple((unit,) for unit in UNITS)

_KEYS = ("x", "scale", "activity_ids", "users", "channels", "rate_hz")


def load_series(root: Path | None = None) -> Splits:
    """Use A in windows of 5 s that do not overlap, as plain series: (18 channels, 125 instants)."""
    return SERIES_A.splits(SERIES_A.parts(recordings_a(root)))


def series(windows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Windows (n, instants, channels) → (n, channels, instants)."""
    return np.ascontiguousarray(windows.swapaxes(1, 2))


def recordings_a(root: Path | None = None) -> list[Recording]:
    """Five minutes of each person and activity: torso, left arm, right leg, 18 channels."""
    return _recordings(_read(root), _LABELS_A, _DEVICES_A)


def recordings_b(root: Path | None = None) -> list[Recording]:
    """Five minutes of each person, activity and sensor: 6 channels. See `recordings_a`."""
    return _recordings(_read(root), _LABELS_B, _DEVICES_B)


def foreign_a(root: Path | None = None) -> dict[str, list[Recording]]:
    """Activities that are none of use A's classes; all labels are 0. See `recordings_a`."""
    return _foreign(root, _FOREIGN_A, _DEVICES_A)


def foreign_b(root: Path | None = None) -> dict[str, list[Recording]]:
    """Activities that are none of use B's classes; all labels are 0. See `recordings_a`."""
    return _foreign(root, _FOREIGN_B, _DEVICES_B)


def _foreign(
    root: Path | None, groups: Mapping[str, tuple[int, ...]], devices: Sequence[tuple[str, ...]]
) -> dict[str, list[Recording]]:
    file = _read(root)
    return {
        name: _recordings(file, dict.fromkeys(activities, 0), devices)
        for name, activities in groups.items()
    }


def _recordings(
    file: dict[str, npt.NDArray[Any]], labels: Mapping[int, int], devices: Sequence[tuple[str, ...]]
) -> list[Recording]:
    """One recording for each person, each activity with a label and each device."""
    activities = file["activity_ids"].tolist()
    found = []
    for (u, user), activity in product(enumerate(USERS), sorted(labels)):
        series = (file["x"][activities.index(activity), u] * file["scale"]).astype(np.float32)
        for device in devices:
            columns = [i for i, name in enumerate(CHANNELS) if name.split("_")[0] in device]
            found.append(
                Recording(
                    signal=series[:, columns],
                    rate=float(file["rate_hz"]),
                    labels=np.full(len(series), labels[activity]),
                    user=user,
                    triads=triads_of(len(columns)),
                    name=f"user {user}, activity {activity}, {'+'.join(device)}",
                )
            )
    return found


def _read(root: Path | None) -> dict[str, npt.NDArray[Any]]:
    file = read_npz(root, FILE, _KEYS)
    if tuple(file["channels"].tolist()) != CHANNELS:
        raise DataError(f"{FILE}: expected channels {CHANNELS}, found {file['channels'].tolist()}.")
    if not set(ACTIVITIES) <= set(file["activity_ids"].tolist()):
        raise DataError(f"{FILE}: expected the activities {ACTIVITIES}.")
    activities, users, _, channels = file["x"].shape if file["x"].ndim == 4 else (0,) * 4
    if (activities, users, channels) != (len(file["activity_ids"]), len(USERS), len(CHANNELS)):
        raise DataError(f"{FILE}: x must be (activities, 8 users, rows, 30 channels).")
    return file


DSADS_A = MotionSet(
    name="DSADS-A (stand-in for Opportunity)",
    class_names=CLASSES_A,
    users=USERS,
    part=by_user(test=("7", "8"), validation=("6",)),
    seconds=1.0,
    hop_seconds=0.5,
    transform=sensors_by_axes,
)
SERIES_A = replace(
    DSADS_A, name="DSADS-A in windows of 5 s", seconds=5.0, hop_seconds=5.0, transform=series
)
DSADS_B = MotionSet(
    name="DSADS-B (stand-in for HHAR)",
    class_names=CLASSES_B,
    users=USERS,
    part=by_user(test=("1",), validation=("8",)),
    seconds=SPECTRA_SECONDS,
    hop_seconds=5.0,
    transform=spectra,
)
