"""Sound from WAV files, by the standard library."""

import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError

# The last of these: bytes that are no samples, or a name that no file can have.
_DAMAGE = (OSError, wave.Error, EOFError, RuntimeError, ValueError)


def read_wav(path: Path, rate: int) -> npt.NDArray[np.int16]:
    """The samples of a file of one channel and 16 bits.

    Raises:
        DataError: the file is damaged, cut short, or of another kind or rate.
    """
    try:
        with wave.open(str(path), "rb") as file:
            kind = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            stated, content = file.getnframes(), file.readframes(file.getnframes())
    except _DAMAGE as error:
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


def wav_pieces(path: Path, numbers: int) -> Iterator[npt.NDArray[np.float32]]:
    """Sound of any rate, width and number of channels as (k, channels) from −1 to 1, in pieces.

    Raises:
        DataError: the file is damaged, cut short, or of another kind.
    """
    try:
        with wave.open(str(path), "rb") as file:
            channels, width = file.getnchannels(), file.getsampwidth()
            stated, step, read = file.getnframes(), max(1, numbers // channels), 0
            while content := file.readframes(step):
                values = _as_float(content, width).reshape(-1, channels)
                read += len(values)
                yield values
    except _DAMAGE as error:
        reason = str(error) or "it ends too soon"
        raise DataError(f"{path} cannot be read as WAV: {reason}.") from error
    if read != stated:
        raise DataError(f"{path} ends after {read} of {stated} samples.")


def _as_float(content: bytes, width: int) -> npt.NDArray[np.float32]:
    """Whole numbers of 1 to 4 bytes; a single byte counts from 0 to 255, with 128 for silence."""
    if width == 1:
        return np.asarray(np.frombuffer(content, np.uint8) / 128 - 1, np.float32)
    # As the upper bytes of a 32-bit number: the sign is then in its place.
    padded = np.zeros((len(content) // width, 4), np.uint8)
    padded[:, 4 - width :] = np.frombuffer(content, np.uint8).reshape(-1, width)
    return np.asarray(padded.view("<i4")[:, 0] / 2.0**31, np.float32)
