"""MotionSense: a phone's accelerometer and gyroscope, 24 people, 6 activities. A STAND-IN for HHAR.

Real data, but not HHAR: five of its six activities are HHAR's (jogging stands for biking), from one
phone model in one pocket. Figures made with it carry the name MotionSense, never HHAR's.
Malekzadeh et al. 2019, doi 10.1145/3302505.3310068; MIT licence.

MOTIONSENSE cuts samples of 5 s and takes their spectra, as the paper does for HHAR. SAMPLES gives
the samples themselves: (6 channels, 200 instants) at 40 Hz, ax ay az in g, gx gy gz in rad/s. The
splits hold different people.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.lab.datasets.motion import (
    SPECTRA_SECONDS,
    MotionSet,
    Recording,
    by_user,
    read_off,
    spectra,
    triads_of,
)
from onesigma.lab.datasets.prepared import read_npz
from onesigma.lab.datasets.split import Splits

FILE = "motionsense/motionsense.npz"
CLASS_NAMES = ("stairs_down", "stairs_up", "walk", "jog", "sit", "stand")
CHANNELS = ("ax", "ay", "az", "gx", "gy", "gz")
INSTANTS = 200

_KEYS = (
    *("x", "scale", "rec_len", "rec_activity", "rec_user", "rec_trial"),
    *("activities", "channels", "rate_hz"),
)


def samples(windows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Windows (n, instants, channels) of 5 s → (n, channels, 200 instants), at any rate."""
    return np.ascontiguousarray(read_off(windows, INSTANTS).swapaxes(1, 2), dtype=np.float32)


MOTIONSENSE = MotionSet(
    name="MotionSense (stand-in for HHAR)",
    class_names=CLASS_NAMES,
    users=tuple(str(user) for user in range(1, 25)),
    # Fixed before the first training run; hyper-parameters were chosen without the test users.
    part=by_user(test=("5", "11", "17", "23"), validation=("3", "9", "15", "21")),
    seconds=SPECTRA_SECONDS,
    hop_seconds=2.5,
    transform=spectra,
)
SAMPLES = replace(MOTIONSENSE, transform=samples)


def load(root: Path | None = None, dataset: MotionSet = MOTIONSENSE) -> Splits:
    """Read, cut, split and standardise the recordings, as MOTIONSENSE or as SAMPLES."""
    return dataset.splits(dataset.parts(recordings(root)))


def recordings(root: Path | None = None) -> list[Recording]:
    """The recordings as sensed, at 50 Hz, one person after the other. See `load`."""
    file = read_npz(root, FILE, _KEYS)
    for key, expected in (("activities", CLASS_NAMES), ("channels", CHANNELS)):
        if tuple(file[key].tolist()) != expected:
            raise DataError(f"{FILE}: expected {key} {expected}, found {file[key].tolist()}.")
    if int(file["rec_len"].sum()) != len(file["x"]):
        raise DataError(f"{FILE}: the lengths of the recordings do not add up to its rows.")
    signal = (file["x"] * file["scale"].astype(np.float64)).astype(np.float32)
    found = [
        Recording(
            signal=series,
            rate=float(file["rate_hz"]),
            labels=np.full(len(series), int(label)),
            user=str(int(user)),
            triads=triads_of(len(CHANNELS)),
            name=f"user {int(user)}, {CLASS_NAMES[int(label)]}, trial {int(trial)}",
        )
        for series, label, user, trial in zip(
            np.split(signal, np.cumsum(file["rec_len"])[:-1]),
            *(file["rec_activity"], file["rec_user"], file["rec_trial"]),
            strict=True,
        )
    ]
    return sorted(found, key=lambda recording: int(recording.user))
