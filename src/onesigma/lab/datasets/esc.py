"""Environmental sounds (ESC-10): ten kinds of ambient noise, 40 recordings each, at 16 kHz.

Piczak 2015, doi 10.1145/2733373.2806390; CC BY 3.0 for these ten kinds. The prepared file holds the
loudest 2 s of each recording. The official ESC-50 archive holds all 5 s, at 44.1 kHz; the ten kinds
are read from it and resampled.
"""

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.lab.datasets import official
from onesigma.lab.datasets.mfcc import SAMPLE_RATE
from onesigma.lab.datasets.prepared import decode_audio, read_npz
from onesigma.lab.datasets.sound import read_wav

FILE = "esc10_noise/esc10_16k_2s.npz"
OFFICIAL_RATE = 44_100
OFFICIAL_SAMPLES = 5 * OFFICIAL_RATE
TABLE = "meta/esc50.csv"

# Kind of noise → its recordings (clips, samples).
Noise = dict[str, npt.NDArray[np.int16]]


def load(root: Path | None = None) -> Noise:
    """The official recordings if they are there, else the prepared ones."""
    folder = official.find("esc", root)
    return read(root) if folder is None else read_official(folder)


def read(root: Path | None = None) -> Noise:
    """The prepared clips of 2 s, bit for bit."""
    file = read_npz(root, FILE, ("audio_hi", "audio_lo", "category", "categories", "rate_hz"))
    if int(file["rate_hz"]) != SAMPLE_RATE:
        raise DataError(f"{FILE}: expected {SAMPLE_RATE} Hz, found {int(file['rate_hz'])}.")
    clips = decode_audio(file["audio_hi"], file["audio_lo"])
    return {str(kind): clips[file["category"] == k] for k, kind in enumerate(file["categories"])}


def read_official(folder: Path) -> Noise:
    """The ESC-10 part of an unpacked ESC-50 archive, 5 s each.

    Args:
        folder: it holds ``meta`` and ``audio``.
    """
    try:
        table = csv.DictReader((folder / TABLE).read_text(encoding="utf-8").splitlines())
        columns, rows = set(table.fieldnames or ()), list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{folder / TABLE} cannot be read: {error}.") from error
    absent = {"filename", "category", "esc10"} - columns
    if absent:
        raise DataError(f"{TABLE} lacks the columns {', '.join(sorted(absent))}.")
    if any(None in row.values() for row in rows):
        raise DataError(f"{TABLE} has rows that are cut short.")
    files: dict[str, list[str]] = {}
    for row in rows:
        if row["esc10"] == "True":
            files.setdefault(row["category"], []).append(row["filename"])
    if not files:
        raise DataError(f"{TABLE} names no recording of ESC-10.")
    return {
        kind: np.stack([_clip(folder / "audio" / Path(name).name) for name in sorted(files[kind])])
        for kind in sorted(files)
    }


def resample(sound: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """From 44.1 kHz to 16 kHz by cutting the spectrum off at 8 kHz, clipped to the range of int16.

    Taken as periodic; a click at the very ends is possible and harmless in noise.
    """
    samples = len(sound) * SAMPLE_RATE // OFFICIAL_RATE
    spectrum = np.fft.rfft(sound.astype(np.float64))[: samples // 2 + 1]
    resampled = np.fft.irfft(spectrum, samples) * (samples / len(sound))
    return np.clip(np.rint(resampled), -32768, 32767).astype(np.int16)


def _clip(path: Path) -> npt.NDArray[np.int16]:
    sound = read_wav(path, OFFICIAL_RATE)
    if len(sound) != OFFICIAL_SAMPLES:
        raise DataError(f"{path} holds {len(sound)} samples instead of {OFFICIAL_SAMPLES}.")
    return resample(sound)
