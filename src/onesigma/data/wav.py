"""Sound from WAV files, by the standard library."""

import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError


def read_wav(path: Path, rate: int) -> npt.NDArray[np.int16]:
    """The samples of a file of one channel and 16 bits.

    Raises:
        DataError: the file is damaged, cut short, or of another kind or rate.
    """
    try:
        with wave.open(str(path), "rb") as file:
            kind = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            stated, content = file.getnframes(), file.readframes(file.getnframes())
    except (OSError, wave.Error, EOFError, RuntimeError) as error:
        reason = str(error) or "it ends too soon"
        raise DataError(f"{path} cannot be read as WAV: {reason}. Fetch it again.") from error
    if kind != (1, 2, rate):
        raise DataError(
            f"{path}: expected 1 channel, 2 bytes a sample and {rate} Hz, found "
            f"{kind[0]}, {kind[1]} and {kind[2]}."
        )
    if len(content) != 2 * stated:
        raise DataError(f"{path} ends after {len(content) // 2} of {stated} samples.")
    return np.frombuffer(content, dtype="<i2").astype(np.int16)
