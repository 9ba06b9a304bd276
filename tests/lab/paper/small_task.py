"""A motion task small enough to train on in a second: three rhythms of the hand, three people."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onesigma.lab.datasets import tasks
from onesigma.lab.datasets.motion import MotionSet, Recording, by_user, sensors_by_axes
from onesigma.lab.paper.trial import Plan
from onesigma.lab.training.train import TrainingSettings

RATE, MINUTES = 10.0, 10
NAME = "Rhythms (stand-in for HHAR)"
DATASET = MotionSet(
    name=NAME,
    class_names=("walk", "jog", "sit"),
    users=("a", "b", "c"),
    part=by_user(test=("c",), validation=("b",)),
    seconds=2.0,
    hop_seconds=2.0,
    transform=sensors_by_axes,
)


def recordings(place: Path) -> list[Recording]:
    """Ten minutes of each person, the activity changing every ten seconds."""
    rng = np.random.default_rng(0)
    time = np.arange(int(60 * RATE * MINUTES)) / RATE
    labels = (time // 10).astype(np.int64) % 3
    rhythm = np.sin(2 * np.pi * time * np.array([1.0, 2.5, 0.1])[labels])
    return [
        Recording(
            (rhythm[:, None] + 0.6 * rng.normal(size=(len(time), 3))).astype(np.float32),
            *(RATE, labels, user, ((0, 1, 2),)),
        )
        for user in DATASET.users
    ]


def load(name: str, root: Path | None = None, held_out: str | None = None) -> tasks.MotionTask:
    """In place of ``tasks.load``."""
    return tasks.load_motion(tasks.MotionSource(DATASET, recordings), Path(), held_out)


PLAN = Plan(
    TrainingSettings(epochs=2, learning_rate=1e-3),
    members=3,
    trials=1,
    quick=True,
    limit=40,
    calibration_inputs=12,
    calibration_passes=5,
    repeats=1,
)
