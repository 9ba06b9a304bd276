"""A model small enough to benchmark within a test: its moments are exact."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch
from torch import nn

import onesigma

SHAPE = (1, 4, 4)
CLASSES = 3


@cache
def small(**options) -> onesigma.Converted:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout(0.4), nn.Flatten(),
                              nn.Linear(16, CLASSES)).eval()  # fmt: skip
    return onesigma.convert(model, examples()[0], **options)


def examples(batch: int = 2) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, *SHAPE, generator=torch.Generator().manual_seed(1)),)


@cache
def exported() -> Path:
    """The folder of the small model as a user has it: saved, and exported twice."""
    folder = Path(mkdtemp())
    onesigma.save(small(), folder / "model.safetensors")
    onesigma.export(small(), folder / "full.onnx")
    onesigma.export(small(draws=16), folder / "few.onnx")
    return folder
