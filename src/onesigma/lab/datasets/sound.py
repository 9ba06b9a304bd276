"""Recordings of one kind: a channel, 16 bits, a given rate."""

import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.tables.files import read_rows


def read_wav(path: Path, rate: int) -> npt.NDArray[np.int16]:
    """All samples.

    Raises:
        DataError: the file is damaged, cut short, or of another kind or rate.
    """
    pieces = list(read_rows(path))
    with wave.open(str(path), "rb") as file:
        found = (file.getnchannels(), file.getsampwidth(), file.getframerate())
    if found != (1, 2, rate):
        raise DataError(
            f"{path}: expected 1 channel, 2 bytes a sample and {rate} Hz, found "
            f"{found[0]}, {found[1]} and {found[2]}."
        )
    sound = np.concatenate(pieces)[:, 0] if pieces else np.zeros(0)
    return np.asarray(32768 * sound, np.int16)  # exact: float32 holds 24 bits
