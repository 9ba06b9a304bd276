"""Made-up images of 32 × 32 to segment: discs and bars on a background, in noise.

No real data: figures made with it carry its name. A label for each pixel: (n, 32, 32).
"""

from pathlib import Path

import torch
from torch import Tensor

from onesigma.lab.datasets.split import Split, Splits, make_splits

CLASS_NAMES = ("background", "disc", "bar")
SIZE = 32
NOISE = 0.6


def load(root: Path | None = None) -> Splits:
    """1,200 images to train on, 300 to validate, 500 to test; the same each time."""
    generator = torch.Generator().manual_seed(0)
    train, validation, test = (draw(n, generator) for n in (1200, 300, 500))
    return make_splits(train, validation, test, CLASS_NAMES, "made-up shapes")


def draw(count: int, generator: torch.Generator) -> Split:
    """Images with one disc and one bar each, which may hide part of the disc.

    Both have a brightness of their own, so that the form has to tell them apart.
    """

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    place = torch.arange(SIZE) + 0.5
    x, y = place.expand(count, SIZE, SIZE), place[:, None].expand(count, SIZE, SIZE)
    disc = (x - uniform(6, 26)) ** 2 + (y - uniform(6, 26)) ** 2 < uniform(3, 7) ** 2
    turn, right, down = uniform(0, torch.pi), x - uniform(6, 26), y - uniform(6, 26)
    along, across = right * turn.cos() + down * turn.sin(), down * turn.cos() - right * turn.sin()
    bar = (along.abs() < uniform(6, 14)) & (across.abs() < uniform(1, 3))
    labels = torch.where(bar, 2, torch.where(disc, 1, 0))
    light = torch.where(bar, uniform(0.5, 1.5), torch.where(disc, uniform(0.5, 1.5), 0.0))
    noise = NOISE * torch.randn(count, SIZE, SIZE, generator=generator)
    return Split((light + noise).unsqueeze(1), labels, torch.zeros(count, dtype=torch.long))
