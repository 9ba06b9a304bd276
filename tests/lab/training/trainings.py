"""A small task for the tests of training: three classes told apart by where a bump sits."""

from __future__ import annotations

from functools import partial

import torch

from onesigma.lab.datasets.split import Split
from onesigma.lab.networks import convolutional
from onesigma.lab.training.train import TrainingSettings

build = partial(convolutional, (2, 12), 3, width=6, kernel=5)
SETTINGS = TrainingSettings(epochs=6, patience=6, batch=16, learning_rate=1e-2)


def split(count: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    bump = torch.nn.functional.one_hot(labels, 3).repeat_interleave(4, 1)[:, None]
    noise = 0.7 * torch.randn(count, 2, 12, generator=generator)
    return Split(bump + noise, labels, torch.zeros(count, dtype=torch.int64))


EXAMPLES, VALIDATION = split(72, 0), split(30, 1)
