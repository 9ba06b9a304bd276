"""Smartwatch motion during seven shoulder exercises: 10 people, 140 recordings, 50 Hz.

The recordings come inside the package `seglearn` (BSD-3; the study is arXiv:1802.01489). The file
is read without running any code of that package. It is a pickled array, which could run code of
its own, so it is loaded only if its digest is the published one.

Each recording is cut in windows of 5 s that overlap by half. A window is an image of
(2 sensors, 3 axes, 250 instants), standardised per sensor and axis with the statistics of the
training windows. The splits hold different people: test accuracy is accuracy on strangers.
"""

import hashlib
import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np

from onesigma.errors import DataError, install
from onesigma.lab.datasets.motion import MotionSet, Recording, by_user, sensors_by_axes, triads_of
from onesigma.lab.datasets.split import Splits

SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
CLASS_NAMES = (
    *("pendulum", "abduction", "forward elevation", "internal rotation", "external rotation"),
    *("trapezius", "row"),
)
SENSORS = ("accelerometer", "gyroscope")
AXES = ("x", "y", "z")
SAMPLE_RATE = 50
WINDOW = 250
INPUT_SHAPE = (len(SENSORS), len(AXES), WINDOW)

# Fixed before the first training run; hyper-parameters were chosen without the test subjects.
TRAIN_SUBJECTS = (1, 2, 3, 4, 5, 6)
VALIDATION_SUBJECTS = (7,)
TEST_SUBJECTS = (8, 9, 10)

_LABEL_CODES = ["PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"]
_INSTALL = f"To install it: {install('demo')}"

WATCH = MotionSet(
    name="smartwatch exercises",
    class_names=CLASS_NAMES,
    users=tuple(str(user) for user in range(11)),  # nobody is 0, so a subject is a user's number
    part=by_user(tuple(map(str, TEST_SUBJECTS)), tuple(map(str, VALIDATION_SUBJECTS))),
    seconds=WINDOW / SAMPLE_RATE,
    hop_seconds=WINDOW / SAMPLE_RATE / 2,
    transform=sensors_by_axes,
)


def load() -> Splits:
    """Read, verify, cut, split and standardise the recordings."""
    return WATCH.splits(WATCH.parts(recordings()))


def recordings() -> list[Recording]:
    """The recordings in the order of the file: ax ay az in g, wx wy wz in rad/s. See `load`."""
    file = read_verified(locate())
    if list(file["y_labels"]) != _LABEL_CODES:
        raise DataError(f"Expected the classes {_LABEL_CODES}, found {file['y_labels']}.")
    return [
        Recording(
            signal=signal.astype(np.float32),
            rate=float(SAMPLE_RATE),
            labels=np.full(len(signal), int(label)),
            user=str(int(subject)),
            triads=triads_of(len(SENSORS) * len(AXES)),
        )
        for signal, label, subject in zip(file["X"], file["y"], file["subject"], strict=True)
    ]


def locate() -> Path:
    """Where the installed package keeps the file; finding a package does not run its code."""
    spec = importlib.util.find_spec("seglearn")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"The watch recordings come with the package seglearn, which is absent. {_INSTALL}"
        )
    path = Path(spec.submodule_search_locations[0]) / "data" / "watch_dataset.npy"
    if not path.is_file():
        raise DataError(f"The installed seglearn lacks data/{path.name}. {_INSTALL}")
    return path


def read_verified(path: Path) -> dict[str, Any]:
    """The content of `path`, unpickled only if its bytes are the published ones.

    The bytes hashed are the bytes loaded, so a file cannot be swapped between the two.
    """
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise DataError(
            f"{path.name} is not the published file, so it is not loaded: sha256 is {digest}, "
            f"expected {SHA256}. Reinstall it with: pip install --force-reinstall seglearn==1.2.5"
        )
    found: dict[str, Any] = np.load(io.BytesIO(content), allow_pickle=True).item()
    return found
