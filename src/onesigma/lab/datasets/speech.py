"""Speech Commands v0.02: ten spoken words, 2,250 clips of one second, speakers apart.

The ten words of the paper, 225 clips each: 1,688 to train on and 562 to test on, of other speakers.
Warden 2018, arXiv:1804.03209; CC BY 4.0. 200 clips of other words are kept apart, as foreign input.
A clip is an image of (1, 24 MFCC, 98 frames), standardised per coefficient with the statistics of
the training clips. The validation speakers are taken from those of the training part.

The prepared file holds the clips that `read_archive` chooses from the official test archive:
``<word>/<speaker>_nohash_<n>.wav``, 16 kHz, up to a second; ``_unknown_`` holds other words. Which
clips are taken, and who is tested on, follows from hashes of the names alone, so that anyone gets
the same 2,250: the paper does not say which were its own. As in the paper, 25 % are for testing and
all words have as many clips; besides, nobody is in both parts. (The paper prints 1,668 training
clips; 1,688 makes the sum right.)
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onesigma.errors import DataError
from onesigma.lab.datasets.mfcc import COEFFICIENTS, SAMPLE_RATE, mfcc
from onesigma.lab.datasets.prepared import decode_audio, read_npz
from onesigma.lab.datasets.sound import read_wav
from onesigma.lab.datasets.split import Split, Splits, make_splits

FILE = "speech_commands10/speech_commands10.npz"
CLASS_NAMES = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
INPUT_SHAPE = (1, COEFFICIENTS, 98)
VALIDATION_SHARE = 0.15

_KEYS = (
    *("audio_hi", "audio_lo", "label", "is_test", "speaker", "words"),
    *("unknown_hi", "unknown_lo", "rate_hz"),
)
UNKNOWN = "_unknown_"
UNKNOWN_CLIPS = 200
WORD_CLIPS = 225
# 562 clips of 10 words: two words have one more.
TEST_CLIPS = {word: 57 if word in ("yes", "no") else 56 for word in CLASS_NAMES}
_TEST_POOL = 0.30


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
    """Read, decode, analyse, split and standardise the clips."""
    return splits(read(root))


def splits(clips: Clips, validation_share: float = VALIDATION_SHARE) -> Speech:
    """Analyse, split and standardise the clips; test inputs in the order of the test clips."""
    people = np.unique(clips.speakers, return_inverse=True)[1].astype(np.int64)
    every = Split(features(clips.audio), torch.from_numpy(clips.labels), torch.from_numpy(people))
    held_out = ~clips.is_test & is_validation(clips.speakers, validation_share)
    train, validation, test = (
        every[torch.from_numpy(rows)]
        for rows in (~clips.is_test & ~held_out, held_out, clips.is_test)
    )
    made = make_splits(train, validation, test, CLASS_NAMES, "Speech Commands")
    return Speech(**vars(made), unknown=made.standardise(features(clips.unknown)))


def read(root: Path | None = None) -> Clips:
    """The clips as they were recorded, bit for bit."""
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
    """About this share of the speakers, chosen by a hash of the name: no list, no seed to lose."""
    # Salted: the plain hash chose the test speakers, so it would choose none of the others.
    shares = [
        int(hashlib.sha256(f"validation {speaker}".encode()).hexdigest()[:8], 16) / 2**32
        for speaker in speakers
    ]
    return np.array(shares) < share


def read_archive(folder: Path) -> Clips:
    """The 2,250 clips and 200 of other words, as recorded, padded with silence to a second.

    Args:
        folder: it holds a folder for each word.
    """
    # Some clips are in the archive twice, under two names.
    taken: set[bytes] = set()
    chosen = [
        (label, *clip)
        for label, word in enumerate(CLASS_NAMES)
        for clip in _choose(folder / word, TEST_CLIPS[word], taken)
    ]
    labels, audio, speakers, is_test = zip(*chosen, strict=True)
    unknown = list(islice(_in_order(folder / UNKNOWN), UNKNOWN_CLIPS))
    if len(unknown) < UNKNOWN_CLIPS:
        raise DataError(f"{folder / UNKNOWN} has too few clips: the archive is incomplete.")
    return Clips(
        audio=np.stack(audio),
        labels=np.array(labels),
        speakers=np.array(speakers),
        is_test=np.array(is_test),
        unknown=np.stack([_second(path) for path in unknown]),
    )


def _choose(
    folder: Path, test_clips: int, taken: set[bytes]
) -> Iterator[tuple[npt.NDArray[np.int16], str, bool]]:
    """225 clips of one word: sound, speaker, and whether to test on it."""
    wanted = {True: test_clips, False: WORD_CLIPS - test_clips}
    for path in _in_order(folder):
        speaker = path.name.split("_nohash_")[0]
        tested = _is_tested(speaker)
        if not wanted[tested]:
            continue
        clip = _second(path)
        if clip.tobytes() not in taken:
            taken.add(clip.tobytes())
            wanted[tested] -= 1
            yield clip, speaker, tested
    if any(wanted.values()):
        raise DataError(f"{folder} has too few clips: the archive is incomplete.")


def _in_order(folder: Path) -> Iterator[Path]:
    """The clips of one word, sorted by a hash of their names: arbitrary, but always the same."""
    if not folder.is_dir():
        raise DataError(f"{folder.parent} has no folder {folder.name}: not the official archive.")
    names = (f"{folder.name}/{path.name}" for path in folder.glob("*.wav"))
    for name in sorted(names, key=lambda name: hashlib.sha1(name.encode()).hexdigest()):
        yield folder.parent / name


def _is_tested(speaker: str) -> bool:
    return int(hashlib.sha1(speaker.encode()).hexdigest()[:8], 16) < _TEST_POOL * 2**32


def _second(path: Path) -> npt.NDArray[np.int16]:
    sound = read_wav(path, SAMPLE_RATE)
    if len(sound) > SAMPLE_RATE:
        raise DataError(f"{path} is longer than a second: not a clip of Speech Commands.")
    return np.pad(sound, (0, SAMPLE_RATE - len(sound)))
