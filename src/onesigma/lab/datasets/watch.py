"""Smartwatch motion during seven shoulder exercises: 10 people, 140 recordings, 50 Hz.

The recordings come inside the package `seglearn` (BSD-3; the study is arXiv:1802.01489). The file
is read without running any of that package's code. It is a pickled array, which could run code of
its own, so it is loaded only if its digest is the published one.

Each recording is cut in windows of 5 s that overlap by half. A window is an image of
(2 sensors, 3 axes, 250 instants), standardised per sensor and axis with the statistics of the
training windows. The splits hold different people: test accuracy is accuracy on strangers.
"""

import hashlib
import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onesigma.errors import DataError

SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
CLASS_NAMES = (
    "pendulum",
    "abduction",
    "forward elevation",
    "internal rotation",
    "external rotation",
    "trapezius",
    "row",
)
SENSORS = ("accelerometer", "gyroscope")
AXES = ("x", "y", "z")
SAMPLE_RATE = 50
WINDOW = 250
STRIDE = 125
INPUT_SHAPE = (len(SENSORS), len(AXES), WINDOW)

# Fixed before the first training run; hyper-parameters were chosen without the test subjects.
TRAIN_SUBJECTS = (1, 2, 3, 4, 5, 6)
VALIDATION_SUBJECTS = (7,)
TEST_SUBJECTS = (8, 9, 10)

_LABEL_CODES = ["PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"]
_INSTALL = "Install it with: pip install onesigma[demo]"


@dataclass(frozen=True)
class Split:
    """Windows of some people: inputs (n, 2, 3, 250) float32, labels and subjects (n,) int64."""

    inputs: Tensor
    labels: Tensor
    subjects: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Watch:
    """The three splits, standardised with (raw − input_mean) / input_std, both (2, 3, 1)."""

    train: Split
    validation: Split
    test: Split
    input_mean: Tensor
    input_std: Tensor
    class_names: tuple[str, ...] = CLASS_NAMES


def load() -> Watch:
    """Read, verify, cut, split and standardise the recordings.

    Raises:
        DataError: the package is not installed, or its file is not the published one.
    """
    recordings = read_verified(locate())
    train, validation, test = (
        _cut(recordings, subjects)
        for subjects in (TRAIN_SUBJECTS, VALIDATION_SUBJECTS, TEST_SUBJECTS)
    )
    mean = train.inputs.mean(dim=(0, 3)).unsqueeze(-1)
    std = train.inputs.std(dim=(0, 3), correction=0).unsqueeze(-1)
    return Watch(
        train=_standardised(train, mean, std),
        validation=_standardised(validation, mean, std),
        test=_standardised(test, mean, std),
        input_mean=mean.float(),
        input_std=std.float(),
    )


def locate() -> Path:
    """Where the installed package keeps the file; finding a package does not run its code."""
    spec = importlib.util.find_spec("seglearn")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"The watch recordings come with the package seglearn, absent. {_INSTALL}")
    path = Path(spec.submodule_search_locations[0]) / "data" / "watch_dataset.npy"
    if not path.is_file():
        raise DataError(f"The installed seglearn lacks data/{path.name}. {_INSTALL}")
    return path


def read_verified(path: Path) -> dict[str, Any]:
    """The recordings in `path`, unpickled only if its bytes are the published ones.

    The bytes hashed are the bytes loaded: a file swapped between the two cannot slip through.
    """
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise DataError(
            f"{path.name} is not the published file, so it is not loaded: sha256 is {digest}, "
            f"expected {SHA256}. Reinstall it with: pip install --force-reinstall seglearn==1.2.5"
        )
    recordings: dict[str, Any] = np.load(io.BytesIO(content), allow_pickle=True).item()
    return recordings


def _cut(recordings: dict[str, Any], subjects: Sequence[int]) -> Split:
    """All whole windows of the subjects in the order of the file, raw and in float64."""
    if list(recordings["y_labels"]) != _LABEL_CODES:
        raise DataError(f"Expected the classes {_LABEL_CODES}, found {recordings['y_labels']}.")
    windows: list[npt.NDArray[np.float64]] = []
    labels: list[int] = []
    people: list[int] = []
    for series, label, subject in zip(
        recordings["X"], recordings["y"], recordings["subject"], strict=True
    ):
        if int(subject) not in subjects:
            continue
        starts = range(0, len(series) - WINDOW + 1, STRIDE)
        windows.extend(series[start : start + WINDOW] for start in starts)
        labels.extend([int(label)] * len(starts))
        people.extend([int(subject)] * len(starts))
    # Columns are ax ay az wx wy wz: time × 6 becomes sensor × axis × time.
    stacked = np.stack(windows).transpose(0, 2, 1).reshape(-1, *INPUT_SHAPE)
    return Split(torch.from_numpy(stacked), torch.tensor(labels), torch.tensor(people))


def _standardised(split: Split, mean: Tensor, std: Tensor) -> Split:
    return replace(split, inputs=((split.inputs - mean) / std).float())
