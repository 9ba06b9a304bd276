"""MotionSense: a phone's accelerometer and gyroscope, 24 people, 6 activities. A STAND-IN for HHAR.

Real data, but not HHAR: five of its six activities are HHAR's (jogging stands for biking), from one
phone model in one pocket. Figures made with it carry the name MotionSense, never HHAR's.
Malekzadeh et al. 2019, doi 10.1145/3302505.3310068; MIT licence.

A recording is resampled from 50 Hz to 40 Hz by linear interpolation, as DeepSense does for HHAR
(0.25 s is then a whole number of instants), and cut in windows of 5 s. A window is
(6 channels, 200 instants): ax ay az in g, gx gy gz in rad/s, standardised per channel with the
statistics of the training windows. The splits hold different people.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from onesigma.data.prepared import Splits, read_npz, standardised
from onesigma.data.watch import Split
from onesigma.errors import DataError

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

_KEYS = ("x", "scale", "rec_len", "rec_activity", "rec_user", "activities", "channels", "rate_hz")


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
    recordings = read_npz(root, FILE, _KEYS)
    _check(recordings)
    train, validation, test = (
        _cut(recordings, users, hop) for users in (TRAIN_USERS, VALIDATION_USERS, TEST_USERS)
    )
    mean = train.inputs.mean(dim=(0, 2)).unsqueeze(-1)
    std = train.inputs.std(dim=(0, 2), correction=0).unsqueeze(-1)
    return Splits(
        train=standardised(train, mean, std),
        validation=standardised(validation, mean, std),
        test=standardised(test, mean, std),
        class_names=CLASS_NAMES,
        input_mean=mean.float(),
        input_std=std.float(),
    )


def resample(series: npt.NDArray[np.float64], rate: float) -> npt.NDArray[np.float64]:
    """A recording (time × channels) at `rate` Hz, read off at 40 Hz on the lines between points."""
    known = np.arange(len(series)) / rate
    # The half step keeps rounding from losing an instant that falls on the last point.
    wanted = np.arange(0, (len(series) - 1) / rate + 0.5 / rate / SAMPLE_RATE, 1 / SAMPLE_RATE)
    return np.stack([np.interp(wanted, known, channel) for channel in series.T], axis=1)


def _check(recordings: dict[str, npt.NDArray[Any]]) -> None:
    for key, expected in (("activities", CLASS_NAMES), ("channels", CHANNELS)):
        if tuple(recordings[key].tolist()) != expected:
            raise DataError(f"{FILE}: expected {key} {expected}, found {recordings[key].tolist()}.")
    if int(recordings["rec_len"].sum()) != len(recordings["x"]):
        raise DataError(f"{FILE}: the lengths of the recordings do not add up to its rows.")


def _cut(recordings: dict[str, npt.NDArray[Any]], users: Sequence[int], hop: int) -> Split:
    """All whole windows of the users in the order of the file, raw and in float64."""
    windows: list[npt.NDArray[np.float64]] = []
    labels: list[int] = []
    people: list[int] = []
    scale, rate = recordings["scale"].astype(np.float64), float(recordings["rate_hz"])
    ends = np.cumsum(recordings["rec_len"])
    for end, length, label, user in zip(
        ends,
        recordings["rec_len"],
        recordings["rec_activity"],
        recordings["rec_user"],
        strict=True,
    ):
        if int(user) not in users:
            continue
        series = resample(recordings["x"][end - length : end] * scale, rate)
        starts = range(0, len(series) - WINDOW + 1, hop)
        windows.extend(series[start : start + WINDOW].T for start in starts)
        labels.extend([int(label)] * len(starts))
        people.extend([int(user)] * len(starts))
    if not windows:
        raise DataError(f"{FILE} holds no window of 5 s of the users {tuple(users)}.")
    return Split(torch.from_numpy(np.stack(windows)), torch.tensor(labels), torch.tensor(people))
