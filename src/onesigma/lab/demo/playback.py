"""``onesigma live --demo``: a stranger's exercises, and a sensor that drifts in between."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from onesigma.conversion import convert
from onesigma.decide.threshold import threshold
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.noise import random_walk
from onesigma.lab.datasets.split import Splits
from onesigma.lab.demo import checkpoint
from onesigma.pages.live.feed import Feed
from onesigma.pages.live.model import LiveModel, live_model
from onesigma.storage.opening import wrap_converted

PERSON = 10  # not in training; of those, the one whom the network knows best
DRIFT = "drifting sensor"
_SECONDS = 12  # of each exercise
_DRIFT_AFTER = 2  # exercises
_DRIFT_WINDOWS = 3

Series = npt.NDArray[np.floating]


def demo() -> tuple[LiveModel, Feed]:
    """The shipped network, converted, with an abstain rule learned from another person.

    Raises:
        DataError: the recordings are absent; they come with the demo extra.
    """
    data = watch.load()
    converted = convert(checkpoint.load().network, data.validation.inputs[:2])
    with torch.no_grad():
        rule = threshold(converted(data.validation.inputs), data.validation.labels)
    converted = converted.with_abstain(rule)
    opened = wrap_converted("smartwatch network", converted, watch.CLASS_NAMES)
    return live_model(opened), _feed(data)


def _feed(data: Splits) -> Feed:
    """The person's first try of each exercise, standardised as the network takes it."""
    mean, std = data.input_mean.numpy().ravel(), data.input_std.numpy().ravel()
    exercises = [(name, (series - mean) / std) for name, series in _first_tries()]
    exercises.insert(_DRIFT_AFTER, (DRIFT, _drift()))
    ends = np.cumsum([len(part) for _, part in exercises])
    notes = [
        (int(end) - len(part), name) for end, (name, part) in zip(ends, exercises, strict=True)
    ]
    signal = np.concatenate([part for _, part in exercises]).astype(np.float32)
    names = [f"{sensor} {axis}" for sensor in ("acc", "gyro") for axis in watch.AXES]
    return Feed(
        f"Person {PERSON} at seven exercises",
        iter(signal),
        recorded=True,
        rate=watch.SAMPLE_RATE,
        names=names,
        notes=notes,
    )


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
    walks = random_walk(_DRIFT_WINDOWS, watch.INPUT_SHAPE).flatten(1, 2)
    return np.concatenate([walk.T for walk in walks.numpy()])
