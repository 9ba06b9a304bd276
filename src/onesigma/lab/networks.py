"""The two networks of the paper: four convolutions and a linear layer; five fully connected ones.

ReLU and dropout after each internal layer, no normalisation, logits out. Time is the last axis of
an input: spectra (channels, values, intervals), sensors (sensors, axes, instants), sound
(1, coefficients, frames), or a plain series (channels, instants).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import nn

DROPOUT = 0.5
WIDTH = 64
KERNEL = 7
# Below this, time is not shortened any more.
SHORT = 12


def convolutional(
    input_shape: Sequence[int],
    classes: int,
    *,
    width: int = WIDTH,
    kernel: int = KERNEL,
    dropout: float = DROPOUT,
) -> nn.Sequential:
    """The paper's network: four convolutions and a linear layer, for images or series.

    The first kernel of an image spans its whole height, for neighbours among the coefficients of a
    sound or the values of a spectrum have no more in common than others have; the rest run along
    time. Strides of 2 shorten time while it is long, in place of pooling.
    """
    channels, *height, time = input_shape
    layers: list[nn.Module] = []
    for _ in range(4):
        stride = 2 if time > SHORT else 1
        layers += [
            _convolution(channels, width, height, kernel, stride),
            nn.ReLU(),
            nn.Dropout(dropout),
        ]
        channels, height, time = width, [1] * len(height), (time - 1) // stride + 1
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * time, classes))


def fully_connected(
    input_shape: Sequence[int], classes: int, *, width: int = 512, dropout: float = DROPOUT
) -> nn.Sequential:
    """The network of ApDeepSense: five fully connected layers, four of them hidden."""
    inputs, layers = prod(input_shape), list[nn.Module]([nn.Flatten()])
    for _ in range(4):
        layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def _convolution(
    inputs: int, outputs: int, height: Sequence[int], kernel: int, stride: int
) -> nn.Module:
    """Along time, padded so as to keep its borders in play; over all of the height, if any."""
    if not height:
        return nn.Conv1d(inputs, outputs, kernel, stride, kernel // 2)
    return nn.Conv2d(inputs, outputs, (height[0], kernel), (1, stride), (0, kernel // 2))
