"""The network of the benchmarks: the paper's, in the form that other figures are given for."""

from __future__ import annotations

from torch import nn

INPUT_SHAPE = (6, 20, 20)
CLASSES = 6


def paper_cnn(
    *, width: int = 64, depth: int = 4, size: int = INPUT_SHAPE[-1], classes: int = CLASSES
) -> nn.Sequential:
    """Convolutions of 3 × 3, ReLU and dropout 0.5 after each, then one linear layer; in eval mode.

    The paper's has four convolutions of 64 filters on an input of 6 × 20 × 20.
    """
    channels, layers = INPUT_SHAPE[0], list[nn.Module]()
    for _ in range(depth):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.Dropout(0.5)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * size**2, classes)).eval()
