"""Uninterrupted recordings of motion sensors, before anything is cut or transformed.

Loaders return recordings; noise is added to recordings; windows are cut from recordings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.storage.atomic import replacing
from onesigma.tables.files import DAMAGE

# No class applies: a pause, an activity that is none of the dataset's, a sensor that was silent.
NO_CLASS = -1


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
    """What `write_recordings` wrote.

    Raises:
        DataError: the file is absent or damaged.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        ends = np.cumsum(arrays["lengths"])[:-1]
        triads = tuple((int(x), int(y), int(z)) for x, y, z in arrays["triads"])
        return [
            Recording(signal, float(arrays["rate"]), labels, str(user), triads, str(name))
            for signal, labels, user, name in zip(
                np.split(arrays["signal"], ends),
                np.split(arrays["labels"], ends),
                arrays["users"],
                arrays["names"],
                strict=True,
            )
        ]
    except (*DAMAGE, KeyError) as error:
        raise DataError(f"{path} cannot be read ({error}). Delete it.") from error
