"""MotionSense: a phone's accelerometer and gyroscope, 24 people, 6 activities. A STAND-IN for HHAR.

Real data, but not HHAR: five of its six activities are HHAR's (jogging stands for biking), from one
phone model in one pocket. Figures made with it carry the name MotionSense, never HHAR's.
Malekzadeh et al. 2019, doi 10.1145/3302505.3310068; MIT licence.

For the paper's task, MOTIONSENSE cuts `recordings` in samples of 5 s and takes their spectra as for
HHAR. `load` gives the samples themselves: resampled from 50 Hz to 40 Hz by linear interpolation,
(6 channels, 200 instants), ax ay az in g, gx gy gz in rad/s, standardised per channel with the
statistics of the training windows. The splits hold different people.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from onesigma.errors import DataError
from onesigma.lab.datasets import fourier
from onesigma.lab.datasets.motion import MotionSet, by_user
from onesigma.lab.datasets.prepared import Splits, read_npz, standardise
from onesigma.lab.datasets.recording import Recording, triads_of
from onesigma.lab.datasets.watch import Split

NAME = "MotionSense (stand-in for HHAR)"
FILE = "motionsense/motionsense.npz"
CLASS_NAMES = ("stairs_down", "stairs_up", "walk", "jog", "sit", "stand")
CHANNELS = ("ax", "ay", "az", "gx", "gy", "gz")
SAMPLE_RATE = 40
WINDOW = 200
INPUT_SHAPE = (len(CHANNELS), WINDOW)
HOP_SECONDS = 2.5

# Fixed before the first training run; hyper-parameters were chosen without the test users.
TEST_USERS = (5, 11, 17, 23)
VALIDATION_USERS = (3, 9, 15, 21)
TRAIN_USERS = tuple(
    user for user in range(1, 25) if user not in TEST_USERS and user not in VALIDATION_USERS
)

_KEYS = (
    *("x", "scale", "rec_len", "rec_activity", "rec_user", "rec_trial"),
    *("activities", "channels", "rate_hz"),
)


def load(root: Path | None = None, hop_seconds: float = HOP_SECONDS) -> Splits:
    """Read, resample, cut, split and standardise the recordings.

    Args:
        root: the folder of the prepared datasets; see `prepared.data_root`.
        hop_seconds: from the start of one window to the next; 2.5 s halves overlap, and training
            takes a couple of minutes on one core.

    Raises:
        DataError: the file is absent, or is not the prepared one.
    """
    hop = round(hop_seconds * SAMPLE_RATE)
    if hop < 1:
        raise ValueError(f"hop_seconds must be at least {1 / SAMPLE_RATE}, got {hop_seconds}.")
    file = _read(root)
    train, validation, test = (
        _cut(file, users, hop) for users in (TRAIN_USERS, VALIDATION_USERS, TEST_USERS)
    )
    return standardise(train, validation, test, CLASS_NAMES, NAME)


def recordings(root: Path | None = None) -> list[Recording]:
    """The recordings as sensed, at 50 Hz, one person after the other.

    Raises:
        DataError: the file is absent, or is not the prepared one.
    """
    file = _read(root)
    found = [
        Recording(
            signal=series.astype(np.float32),
            rate=float(file["rate_hz"]),
            labels=np.full(len(series), label),
            user=str(user),
            triads=triads_of(len(CHANNELS)),
            name=f"user {user}, {CLASS_NAMES[label]}, trial {trial}",
        )
        for series, label, user, trial in _series(file)
    ]
    return sorted(found, key=lambda recording: int(recording.user))


def resample(series: npt.NDArray[np.float64], rate: float) -> npt.NDArray[np.float64]:
    """A recording (time × channels) at `rate` Hz, read off at 40 Hz on the lines between points."""
    known = np.arange(len(series)) / rate
    # The half step keeps rounding from losing an instant that falls on the last point.
    wanted = np.arange(0, (len(series) - 1) / rate + 0.5 / rate / SAMPLE_RATE, 1 / SAMPLE_RATE)
    return np.stack([np.interp(wanted, known, channel) for channel in series.T], axis=1)


def _read(root: Path | None) -> dict[str, npt.NDArray[Any]]:
    file = read_npz(root, FILE, _KEYS)
    for key, expected in (("activities", CLASS_NAMES), ("channels", CHANNELS)):
        if tuple(file[key].tolist()) != expected:
            raise DataError(f"{FILE}: expected {key} {expected}, found {file[key].tolist()}.")
    if int(file["rec_len"].sum()) != len(file["x"]):
        raise DataError(f"{FILE}: the lengths of the recordings do not add up to its rows.")
    return file


def _series(
    file: dict[str, npt.NDArray[Any]],
) -> Iterator[tuple[npt.NDArray[np.float64], int, int, int]]:
    """Signal (n, 6), activity, user and trial of each recording, in the order of the file."""
    scale = file["scale"].astype(np.float64)
    ends = np.cumsum(file["rec_len"])
    for end, length, label, user, trial in zip(
        *(ends, file["rec_len"], file["rec_activity"], file["rec_user"], file["rec_trial"]),
        strict=True,
    ):
        yield file["x"][end - length : end] * scale, int(label), int(user), int(trial)


def _cut(file: dict[str, npt.NDArray[Any]], users: Sequence[int], hop: int) -> Split:
    """All whole windows of the users in the order of the file, raw and in float64."""
    windows: list[npt.NDArray[np.float64]] = []
    labels: list[int] = []
    people: list[int] = []
    for raw, label, user, _ in _series(file):
        if user not in users:
            continue
        series = resample(raw, float(file["rate_hz"]))
        starts = range(0, len(series) - WINDOW + 1, hop)
        windows.extend(series[start : start + WINDOW].T for start in starts)
        labels.extend([label] * len(starts))
        people.extend([user] * len(starts))
    if not windows:
        raise DataError(f"{FILE} holds no window of 5 s of the users {tuple(users)}.")
    return Split(torch.from_numpy(np.stack(windows)), torch.tensor(labels), torch.tensor(people))


MOTIONSENSE = MotionSet(
    name=NAME,
    class_names=CLASS_NAMES,
    users=tuple(str(user) for user in range(1, 25)),
    part=by_user(tuple(map(str, TEST_USERS)), tuple(map(str, VALIDATION_USERS))),
    seconds=fourier.SECONDS,
    hop_seconds=HOP_SECONDS,
    transform=fourier.fourier,
)
