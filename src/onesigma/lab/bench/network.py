"""The network of the benchmarks: the paper's, in the form that other figures are given for."""

from __future__ import annotations

import torch
from torch import nn

INPUT_SHAPE = (6, 20, 20)
CLASSES = 6


def paper_cnn(
    *,
    width: int = 64,
    depth: int = 4,
    size: int = INPUT_SHAPE[-1],
    classes: int = CLASSES,
    channels: int = INPUT_SHAPE[0],
) -> nn.Sequential:
    """Convolutions of 3 × 3, ReLU and dropout 0.5 after each, then one linear layer; in eval mode.

    The paper's has four convolutions of 64 filters on an input of 6 × 20 × 20.
    """
    layers = list[nn.Module]()
    for _ in range(depth):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.Dropout(0.5)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * size**2, classes)).eval()


def seeded_cnn(**changes: int) -> nn.Sequential:
    """``paper_cnn`` with random weights, the same each time.

    He's, which keep the signal's size through the layers: by default it shrinks, and what is left
    of it at the end is rounding.
    """
    network = paper_cnn(**changes)
    generator = torch.Generator().manual_seed(0)
    for weight in network.parameters():
        if weight.dim() > 1:
            nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=generator)
        else:
            nn.init.zeros_(weight)
    return network
