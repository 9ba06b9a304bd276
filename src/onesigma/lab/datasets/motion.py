"""From recordings of motion sensors to what a network takes: windows, splits, standard.

recordings ──(noise)──▶ recordings ──MotionSet.windows──▶ Split, raw ──▶ standardised
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from onesigma.errors import DataError
from onesigma.lab.datasets.prepared import Splits, standardise
from onesigma.lab.datasets.recording import NO_CLASS, Recording
from onesigma.lab.datasets.watch import Split

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")

STRETCH_SECONDS = 60.0


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
        inputs, labels, subjects = (np.concatenate(arrays) for arrays in zip(*cut, strict=True))
        return Split(torch.from_numpy(inputs), torch.from_numpy(labels), torch.from_numpy(subjects))

    def parts(self, recordings: Sequence[Recording]) -> dict[Part, list[Recording]]:
        return {part: [r for r in recordings if self.part(r) == part] for part in PARTS}

    def splits(self, parts: dict[Part, list[Recording]]) -> Splits:
        train, validation, test = (self.windows(parts[part]) for part in PARTS)
        return standardise(train, validation, test, self.class_names, self.name)

    def _cut(self, recording: Recording) -> tuple[npt.NDArray[Any], ...]:
        """Inputs, labels and subjects of one recording."""
        length = round(self.seconds * recording.rate)
        starts = np.arange(
            0, len(recording.signal) - length + 1, max(round(self.hop_seconds * recording.rate), 1)
        )
        rows = starts[:, None] + np.arange(length)
        counts = (recording.labels[rows][..., None] == np.arange(len(self.class_names))).sum(axis=1)
        kept = counts.max(axis=1) >= min(int(self.agreement * length) + 1, length)
        inputs = self.transform(recording.signal[rows[kept]])
        subject = self.users.index(recording.user)
        return inputs, counts[kept].argmax(axis=1), np.full(len(inputs), subject)


def by_user(test: Sequence[str], validation: Sequence[str]) -> Callable[[Recording], Part]:
    """Nobody is in two parts: who is neither here nor there is trained on."""

    def part(recording: Recording) -> Part:
        if recording.user in test:
            return "test"
        return "validation" if recording.user in validation else "train"

    return part


def sensors_by_axes(windows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Windows (n, instants, 3 · sensors) → images (n, sensors, 3 axes, instants)."""
    n, instants, channels = windows.shape
    return np.ascontiguousarray(windows.swapaxes(1, 2).reshape(n, channels // 3, 3, instants))


def hold_out(
    recordings: Sequence[Recording], share: float = 0.05
) -> tuple[list[Recording], list[Recording]]:
    """The paper's validation: a share of the training data, here in whole minutes.

    Minutes rather than windows, since windows overlap: no instant is in both parts.

    Returns:
        What is left for training, and what was held out: every (1/share)-th minute.
    """
    every = round(1 / share)
    kept: list[Recording] = []
    held: list[Recording] = []
    minutes = [minute for recording in recordings for minute in _minutes(recording)]
    for number, minute in enumerate(minutes):
        (held if number % every == every // 2 else kept).append(minute)
    return kept, held


def without_class(recordings: Sequence[Recording], label: int) -> list[Recording]:
    """The recordings with one class taken out of them; the ones after it move up by one."""

    def moved(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(labels == label, NO_CLASS, labels - (labels > label))

    return [replace(recording, labels=moved(recording.labels)) for recording in recordings]


def only_class(recordings: Sequence[Recording], label: int) -> list[Recording]:
    """The recordings with no class but this one, which becomes 0."""
    return [
        replace(r, labels=np.where(r.labels == label, 0, NO_CLASS).astype(np.int64))
        for r in recordings
    ]


def _minutes(recording: Recording) -> list[Recording]:
    step = round(STRETCH_SECONDS * recording.rate)
    return [
        replace(
            recording,
            signal=recording.signal[start : start + step],
            labels=recording.labels[start : start + step],
        )
        for start in range(0, len(recording.signal), step)
    ]
