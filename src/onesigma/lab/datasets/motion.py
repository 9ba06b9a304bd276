"""Recordings of motion sensors, and the windows a network takes of them.

    recordings ──(noise)──▶ recordings ──MotionSet.windows──▶ Split, raw ──▶ Splits
Loaders return recordings; noise is added to recordings; windows are cut from recordings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from onesigma.errors import DataError
from onesigma.lab.datasets.split import Split, Splits, make_splits
from onesigma.storage.atomic import replacing
from onesigma.tables.files import DAMAGE

# No class applies: a pause, an activity that is none of the dataset's, a sensor that was silent.
NO_CLASS = -1
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")

# The paper's input for HHAR: a sample of 5 s as 20 spectra of 0.25 s, each of 10 points.
SPECTRA_SECONDS = 5.0
INTERVALS = 20
POINTS = 10


@dataclass(frozen=True)
class Recording:
    """A stream of one person: the signal as sensed and what the person did at each instant."""

    signal: npt.NDArray[np.float32]  # (n, channels)
    rate: float  # instants per second
    labels: npt.NDArray[np.int64]  # (n,), NO_CLASS where no class applies
    user: str
    triads: tuple[tuple[int, int, int], ...]  # the channels of each 3-axis sensor
    name: str = ""  # which recording of the dataset it is

    def __post_init__(self) -> None:
        if self.signal.ndim != 2 or self.labels.shape != self.signal.shape[:1]:
            raise ValueError(
                "Expected a signal (n, channels) and labels (n,), "
                f"got {self.signal.shape} and {self.labels.shape}."
            )

    @property
    def seconds(self) -> float:
        return len(self.signal) / self.rate


def triads_of(channels: int) -> tuple[tuple[int, int, int], ...]:
    """Sensors of three axes each, one after the other."""
    return tuple((first, first + 1, first + 2) for first in range(0, channels, 3))


def write_recordings(path: Path, recordings: Sequence[Recording]) -> None:
    """Recordings of one rate and the same sensors as one .npz, which `read_recordings` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            signal=np.concatenate([recording.signal for recording in recordings]),
            labels=np.concatenate([recording.labels for recording in recordings]),
            lengths=np.array([len(recording.signal) for recording in recordings]),
            users=np.array([recording.user for recording in recordings]),
            names=np.array([recording.name for recording in recordings]),
            triads=np.array(recordings[0].triads),
            rate=np.array(recordings[0].rate),
        )


def read_recordings(path: Path) -> list[Recording]:
    """What `write_recordings` wrote."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        ends = np.cumsum(arrays["lengths"])[:-1]
        triads = tuple((int(x), int(y), int(z)) for x, y, z in arrays["triads"])
        return [
            Recording(signal, float(arrays["rate"]), labels, str(user), triads, str(name))
            for signal, labels, user, name in zip(
                *(np.split(arrays[key], ends) for key in ("signal", "labels")),
                *(arrays["users"], arrays["names"]),
                strict=True,
            )
        ]
    except (*DAMAGE, KeyError) as error:
        raise DataError(f"{path} cannot be read ({error}). Delete it.") from error


@dataclass(frozen=True)
class MotionSet:
    """How the recordings of one dataset are split and cut."""

    name: str  # as results must print it; a stand-in says what it stands in for
    class_names: tuple[str, ...]
    users: tuple[str, ...]  # their places here are the subjects of a split
    part: Callable[[Recording], Part | None]  # None: not used
    seconds: float
    hop_seconds: float
    # Windows (n, instants, channels) → inputs (n, …, time).
    transform: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
    # A window counts if one class has more than this share of its instants; with 1, all of them.
    agreement: float = 1.0

    def windows(self, recordings: Sequence[Recording]) -> Split:
        """All whole windows with a class, in the order of the recordings, raw."""
        cut = [self._cut(recording) for recording in recordings]
        if not any(len(labels) for _, labels, _ in cut):
            raise DataError(f"{self.name}: no window of {self.seconds:g} s with a class.")
        arrays = (np.concatenate(each) for each in zip(*cut, strict=True))
        return Split(*(torch.from_numpy(array) for array in arrays))

    def parts(self, recordings: Sequence[Recording]) -> dict[Part, list[Recording]]:
        return {part: [r for r in recordings if self.part(r) == part] for part in PARTS}

    def splits(self, parts: dict[Part, list[Recording]]) -> Splits:
        train, validation, test = (self.windows(parts[part]) for part in PARTS)
        return make_splits(train, validation, test, self.class_names, self.name)

    def _cut(self, recording: Recording) -> tuple[npt.NDArray[Any], ...]:
        """Inputs, labels and subjects of one recording."""
        length = round(self.seconds * recording.rate)
        hop = max(round(self.hop_seconds * recording.rate), 1)
        starts = np.arange(0, len(recording.signal) - length + 1, hop)
        rows = starts[:, None] + np.arange(length)
        counts = (recording.labels[rows][..., None] == np.arange(len(self.class_names))).sum(axis=1)
        kept = counts.max(axis=1) >= min(int(self.agreement * length) + 1, length)
        inputs = self.transform(recording.signal[rows[kept]])
        subject = self.users.index(recording.user)
        return inputs, counts[kept].argmax(axis=1), np.full(len(inputs), subject)


def by_user(test: Sequence[str], validation: Sequence[str]) -> Callable[[Recording], Part]:
    """Nobody is in two parts; users who are named in neither are trained on."""

    def part(recording: Recording) -> Part:
        if recording.user in test:
            return "test"
        return "validation" if recording.user in validation else "train"

    return part


def sensors_by_axes(windows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Windows (n, instants, 3 · sensors) → images (n, sensors, 3 axes, instants)."""
    n, instants, channels = windows.shape
    return np.ascontiguousarray(windows.swapaxes(1, 2).reshape(n, channels // 3, 3, instants))


def read_off(windows: npt.NDArray[np.floating], points: int) -> npt.NDArray[np.floating]:
    """Windows (n, instants, channels) at so many equal steps, on the lines between instants."""
    last = windows.shape[1] - 1
    position = np.minimum(np.arange(points) * windows.shape[1] / points, last)
    lower = position.astype(np.intp)
    share = (position - lower)[:, None]
    upper = np.minimum(lower + 1, last)
    return np.asarray((1 - share) * windows[:, lower] + share * windows[:, upper])


def spectra(windows: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Windows (n, instants, channels) of 5 s → (n, channels, 20 values, 20 intervals).

    At any rate: each interval of 0.25 s is read off at 10 points and transformed,

        X[f] = Σ_t x[t] exp(−2πi f t / 10),   f = 0 … 9

    The values are Re X[0], Im X[0], Re X[1], …, Im X[9], as in the published pre-processing for
    DeepSense (Yao et al. 2017), although half of them mirror the others.
    """
    n, _, channels = windows.shape
    points = read_off(windows, INTERVALS * POINTS)
    intervals = points.transpose(0, 2, 1).reshape(n, channels, INTERVALS, POINTS)
    # Half a transform and its mirror image: what must vanish vanishes exactly.
    half = np.fft.rfft(intervals)
    whole = np.concatenate([half, half[..., POINTS // 2 - 1 : 0 : -1].conj()], axis=-1)
    values = np.stack([whole.real, whole.imag], axis=-1)
    values = values.reshape(n, channels, INTERVALS, 2 * POINTS)
    return np.ascontiguousarray(values.swapaxes(2, 3), dtype=np.float32)


def without_class(recordings: Sequence[Recording], label: int) -> list[Recording]:
    """The recordings without one class; the classes after it move up by one."""
    return [
        replace(r, labels=np.where(r.labels == label, NO_CLASS, r.labels - (r.labels > label)))
        for r in recordings
    ]


def only_class(recordings: Sequence[Recording], label: int) -> list[Recording]:
    """The recordings with no class but this one, which becomes 0."""
    return [
        replace(r, labels=np.where(r.labels == label, 0, NO_CLASS).astype(np.int64))
        for r in recordings
    ]
