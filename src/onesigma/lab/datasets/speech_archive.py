"""The official test archive of Speech Commands v0.02, from which the prepared clips come.

``<word>/<speaker>_nohash_<n>.wav``, 16 kHz, up to a second; ``_unknown_`` holds other words. Which
clips are taken, and who is tested on, follows from hashes of the names alone, so that anyone gets
the same 2,250: the paper does not say which were its own. As in the paper, 25 % are for testing and
all words have as many clips; besides, nobody is in both parts. (The paper prints 1,668 training
clips; 1,688 makes the sum right.)
"""

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.lab.datasets.mfcc import SAMPLE_RATE
from onesigma.lab.datasets.speech import CLASS_NAMES, Clips
from onesigma.tables.files import read_wav

UNKNOWN = "_unknown_"
UNKNOWN_CLIPS = 200
WORD_CLIPS = 225
# 562 clips of 10 words: two words have one more.
_TEST_CLIPS = {word: 57 if word in ("yes", "no") else 56 for word in CLASS_NAMES}
_TEST_POOL = 0.30


def read(folder: Path) -> Clips:
    """The 2,250 clips and 200 of other words, as recorded, padded with silence to a second.

    Args:
        folder: the one that holds a folder for each word.

    Raises:
        DataError: a word is absent or has too few clips, or a file is damaged.
    """
    # Some clips are in the archive twice, under two names.
    taken: set[bytes] = set()
    chosen = [
        (label, *clip)
        for label, word in enumerate(CLASS_NAMES)
        for clip in _choose(folder / word, _TEST_CLIPS[word], taken)
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
    """The clips of one word by a hash of their names: an order that means nothing and stays."""
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
