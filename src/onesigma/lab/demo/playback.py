"""``onesigma live --demo``: a stranger's exercises, and sensors that fail in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.lab.datasets import watch
from onesigma.lab.datasets.noise import random_walk
from onesigma.lab.demo.figures import CHANNELS, DEAD, DRIFT, GRAVITY, OTHER_UNITS, raw
from onesigma.pages.live.feed import Feed
from onesigma.pages.live.model import LiveModel, live_model
from onesigma.storage.opening import open_model

# What ``onesigma demo`` wrote as demo.safetensors: the network, fitted, with guard and rule.
FITTED = Path(__file__).with_name("fitted.safetensors")
PERSON = 10  # not in training; of those, the one whom the network knows best
_SECONDS = 12  # of each exercise
_DRIFT_WINDOWS = 3

Series = npt.NDArray[np.floating]


def demo() -> tuple[LiveModel, Feed]:
    """The fitted network, and the person's first try of each exercise, with three faults.

    Raises:
        DataError: the recordings are absent; they come with the demo extra.
    """
    parts = list(_first_tries())
    (_, third), (_, fifth) = parts[2], parts[4]
    dead, other = third.copy(), fifth.copy()
    dead[:, 2] = 0.0
    other[:, :3] *= GRAVITY
    # After the second, the fourth and the last exercise; from the end, so that places hold.
    for place, part in ((7, (OTHER_UNITS, other)), (4, (DEAD, dead)), (2, (DRIFT, _drift()))):
        parts.insert(place, part)
    ends = np.cumsum([len(part) for _, part in parts])
    notes = [(int(end) - len(part), name) for end, (name, part) in zip(ends, parts, strict=True)]
    feed = Feed(
        f"Person {PERSON} at seven exercises, and three faults of the sensor",
        iter(np.concatenate([part for _, part in parts]).astype(np.float32)),
        recorded=True,
        rate=watch.SAMPLE_RATE,
        names=CHANNELS,
        notes=notes,
    )
    return live_model(replace(open_model(str(FITTED)), name="smartwatch network")), feed


def _first_tries() -> Iterator[tuple[str, Series]]:
    found: dict[int, Series] = {}
    for recording in watch.recordings():
        if recording.user == str(PERSON):
            found.setdefault(int(recording.labels[0]), recording.signal)
    length = _SECONDS * watch.SAMPLE_RATE
    for label, name in enumerate(watch.CLASS_NAMES):
        begin = (len(found[label]) - length) // 2
        yield name, found[label][begin : begin + length]


def _drift() -> Series:
    """Windows of the demo's random walk, one after the other: (instants, channels)."""
    walks = raw(watch.load(), random_walk(_DRIFT_WINDOWS, watch.INPUT_SHAPE)).flatten(1, 2)
    return np.concatenate([walk.T for walk in walks.numpy()])
