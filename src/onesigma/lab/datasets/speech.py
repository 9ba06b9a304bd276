"""Speech Commands v0.02: ten spoken words, 2,250 clips of one second, speakers apart.

The ten words of the paper, 225 clips each: 1,688 to train on and 562 to test on, of other speakers.
The paper does not say which clips it took; these come from the official test archive. Warden 2018,
arXiv:1804.03209; CC BY 4.0. 200 clips of other words are kept apart, as foreign input.

A clip is an image of (1, 24 MFCC, 98 frames), standardised per coefficient with the statistics of
the training clips. The validation speakers are taken from those of the training part.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onesigma.errors import DataError
from onesigma.lab.datasets.mfcc import COEFFICIENTS, SAMPLE_RATE, mfcc
from onesigma.lab.datasets.prepared import Splits, choose, decode_audio, read_npz, standardise
from onesigma.lab.datasets.watch import Split

NAME = "Speech Commands"
FILE = "speech_commands10/speech_commands10.npz"
CLASS_NAMES = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
INPUT_SHAPE = (1, COEFFICIENTS, 98)
VALIDATION_SHARE = 0.15

_KEYS = (
    *("audio_hi", "audio_lo", "label", "is_test", "speaker", "words"),
    *("unknown_hi", "unknown_lo", "rate_hz"),
)


@dataclass(frozen=True)
class Clips:
    """The clips as recorded: sound (n, 16000) int16, and of each its word, speaker and part."""

    audio: npt.NDArray[np.int16]
    labels: npt.NDArray[np.int64]
    speakers: npt.NDArray[np.str_]
    is_test: npt.NDArray[np.bool_]
    unknown: npt.NDArray[np.int16]


@dataclass(frozen=True, kw_only=True)
class Speech(Splits):
    """The splits, and clips of words that are none of the ten, standardised alike.

    `subjects` number the speakers in the order of their names.
    """

    unknown: Tensor


def load(root: Path | None = None) -> Speech:
    """Read, decode, analyse, split and standardise the clips.

    Args:
        root: the folder of the prepared datasets; see `prepared.data_root`.

    Raises:
        DataError: the file is absent, or is not the prepared one.
    """
    return splits(read(root))


def splits(clips: Clips, validation_share: float = VALIDATION_SHARE) -> Speech:
    """Analyse, split and standardise the clips; test inputs in the order of the test clips."""
    people = np.unique(clips.speakers, return_inverse=True)[1].astype(np.int64)
    every = Split(features(clips.audio), torch.from_numpy(clips.labels), torch.from_numpy(people))
    held_out = ~clips.is_test & is_validation(clips.speakers, validation_share)
    train, validation, test = (
        choose(every, rows) for rows in (~clips.is_test & ~held_out, held_out, clips.is_test)
    )
    made = standardise(train, validation, test, CLASS_NAMES, NAME)
    unknown = (features(clips.unknown).float() - made.input_mean) / made.input_std
    return Speech(**vars(made), unknown=unknown)


def read(root: Path | None = None) -> Clips:
    """The clips as they were recorded, bit for bit.

    Raises:
        DataError: the file is absent, or is not the prepared one.
    """
    file = read_npz(root, FILE, _KEYS)
    words, rate = tuple(file["words"].tolist()), int(file["rate_hz"])
    if words != CLASS_NAMES or rate != SAMPLE_RATE:
        raise DataError(f"{FILE}: expected {CLASS_NAMES} at {SAMPLE_RATE} Hz, got {words}, {rate}.")
    return Clips(
        audio=decode_audio(file["audio_hi"], file["audio_lo"]),
        labels=file["label"].astype(np.int64),
        speakers=file["speaker"],
        is_test=file["is_test"],
        unknown=decode_audio(file["unknown_hi"], file["unknown_lo"]),
    )


def features(audio: npt.NDArray[np.int16] | npt.NDArray[np.float64]) -> Tensor:
    """MFCC images (n, 1, 24, frames), raw and in float64, of sound on the scale of int16."""
    return mfcc(torch.from_numpy(audio / 32768.0)).unsqueeze(1)


def is_validation(
    speakers: npt.NDArray[np.str_], share: float = VALIDATION_SHARE
) -> npt.NDArray[np.bool_]:
    """About this share of the speakers, told by a hash of the name: no list, no seed to lose."""
    # Salted: the test speakers were told by the plain hash, so it would choose none of the rest.
    shares = [
        int(hashlib.sha256(f"validation {speaker}".encode()).hexdigest()[:8], 16) / 2**32
        for speaker in speakers
    ]
    return np.array(shares) < share
