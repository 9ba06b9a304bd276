"""What the methods are tested on: clean input, the paper's noise, and input of no class.

Noise is the same for every method, every trial and every strength (only its size changes), and the
figures under noise are of windows that lie in it as a whole: a window of a quiet stretch says
nothing about noise.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onesigma.errors import DataError
from onesigma.lab.datasets import esc, noise, official
from onesigma.lab.datasets.mfcc import SAMPLE_RATE
from onesigma.lab.datasets.split import Split
from onesigma.lab.datasets.tasks import MotionTask, SpeechTask, Task

CLEAN = "clean"
# The paper states neither a strength nor a ratio: 1 stands for the settings of the work it cites.
STRENGTHS = (0.5, 1.0, 2.0)
SNR_DB = (20.0, 10.0, 0.0)
# How often the schedule of noise on motion is drawn: one draw misses some of the seven kinds.
SCHEDULES = 4
NOISE, DRIFT = "random data: normal noise", "random data: random walk"


class Condition(NamedTuple):
    """Labelled test input, and how it differs from the clean one."""

    name: str
    inputs: Tensor
    labels: Tensor


def make_labelled(
    task: Task, root: Path | None, *, seed: int = 0, limit: int | None = None
) -> list[Condition]:
    """Clean test input first, then noisy, the weakest noise first.

    Args:
        task: from ``tasks.load``.
        root: the folder of the datasets, for the recordings of ambient noise.
        seed: of the noise.
        limit: at most so many rows of each; None for all.
    """
    clean = Condition(CLEAN, task.splits.test.inputs, task.splits.test.labels)
    noisy = _in_motion(task, seed) if isinstance(task, MotionTask) else _in_sound(task, root, seed)
    found = [clean, *noisy]
    return [
        Condition(c.name, *(t[some_rows(len(c.labels), limit, seed)] for t in c[1:])) for c in found
    ]


def make_foreign(task: Task, *, seed: int = 0, limit: int | None = None) -> dict[str, Tensor]:
    """Input of no class: what the dataset has of it, and random data in the shape of an input."""
    form = (limit or 500, task.splits.test.inputs.shape[1:], seed)
    real = {name: x[some_rows(len(x), limit, seed)] for name, x in task.foreign.items()}
    return real | {NOISE: noise.white_noise(*form), DRIFT: noise.random_walk(*form)}


def some_rows(count: int, limit: int | None, seed: int) -> Tensor:
    """All rows, or `limit` of them drawn at random and kept in their order."""
    if limit is None or count <= limit:
        return torch.arange(count)
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator)[:limit].sort().values


def _in_motion(task: MotionTask, seed: int) -> list[Condition]:
    test = task.recordings["test"]
    unit = noise.sensor_spread(task.recordings["train"])
    plans = [noise.plan_motion(test, np.random.default_rng([seed, 0, k])) for k in range(SCHEDULES)]
    rows = [wholly_noisy(task, periods) for periods in plans]
    if not torch.cat(rows).any():
        raise DataError(
            f"{task.splits.name}: no test window lies wholly in noise, because the test recordings "
            "are too short for the paper's periods (20 s to 2 min, 2 to 5 min apart)."
        )
    conditions = []
    for strength in STRENGTHS:
        streams = [np.random.default_rng([seed, 1, k]) for k in range(SCHEDULES)]
        noisy = [
            task.windows(noise.add_noise(test, periods, unit, rng, strength))
            for periods, rng in zip(plans, streams, strict=True)
        ]
        kept = [split[mask] for split, mask in zip(noisy, rows, strict=True)]
        inputs, labels = (torch.cat([s.inputs for s in kept]), torch.cat([s.labels for s in kept]))
        conditions.append(Condition(f"noise, strength {strength:g}", inputs, labels))
    return conditions


def wholly_noisy(task: MotionTask, periods: tuple[noise.Period, ...]) -> Tensor:
    """For each test window, whether noise covers all of it."""
    test = task.recordings["test"]
    marks = noise.is_noisy(test, periods)
    # The marks are cut in place of the signal, so that windows are defined in one place only.
    marked = [
        replace(recording, signal=mark[:, None].astype(np.float32))
        for recording, mark in zip(test, marks, strict=True)
    ]
    cut: Split = replace(task.dataset, transform=lambda windows: windows).windows(marked)
    return cut.inputs.flatten(1).amin(1) == 1


def _in_sound(task: SpeechTask, root: Path | None, seed: int) -> list[Condition]:
    sound, clips = task.test_audio, ambient_noise(root)
    seconds = sound.size / SAMPLE_RATE
    periods = noise.plan_ambient(seconds, tuple(clips), np.random.default_rng([seed, 0]))
    conditions = []
    for snr_db in SNR_DB:
        rng = np.random.default_rng([seed, 1])
        mixed = noise.add_ambient(sound, periods, clips, rng, snr_db)
        name = f"noise, {snr_db:g} dB"
        conditions.append(Condition(name, task.inputs(mixed), task.splits.test.labels))
    return conditions


def ambient_noise(root: Path | None) -> esc.Noise:
    """The recordings of noise that speech is tested in; an error says where to get them."""
    try:
        return esc.load(root)
    except DataError as error:
        archive = official.OFFICIAL["esc"]
        raise DataError(
            f"Speech is tested in ambient noise, and there is none: {error} Or fetch "
            f"{archive.title} from {archive.url} by onesigma.lab.datasets.official.fetch('esc')."
        ) from error
