"""The networks of the laboratory. All have dropout, and logits come out, no softmax.

- `convolutional`, `fully_connected`: those of the paper and of ApDeepSense, for its three tasks.
- `paper_cnn`: the paper's in the form that other figures are given for. The benchmarks time it.
- `WatchNet`: the demo's, shipped with its weights.
- `MotionCnn`, `ResidualCnn`, `KeywordCnn`: each has something that makes uncertainty hard to carry:
  max-pool, branches that share noise, masks shared over a whole channel.

Time is the last axis of an input: spectra (channels, values, intervals), sensors (sensors, axes,
instants), sound (1, coefficients, frames), or a plain series (channels, instants).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# The input of `paper_cnn`, and its number of classes.
INPUT_SHAPE = (6, 20, 20)
CLASSES = 6
# Below this, `convolutional` does not shorten time any more.
SHORT = 12


def convolutional(
    input_shape: Sequence[int],
    classes: int,
    *,
    width: int = 64,
    kernel: int = 7,
    dropout: float = 0.5,
) -> nn.Sequential:
    """The paper's network: four convolutions and a linear layer, for images or series.

    The first kernel of an image spans its whole height, because neighbours among the coefficients
    of a sound or the values of a spectrum have no more in common than others have. The rest run
    along time. Strides of 2 shorten time while it is long, in place of pooling.
    """
    channels, *height, time = input_shape
    layers: list[nn.Module] = []
    for _ in range(4):
        stride = 2 if time > SHORT else 1
        # Padded along time, so that its borders count.
        convolution: nn.Module
        if height:
            size, strides, padding = (height[0], kernel), (1, stride), (0, kernel // 2)
            convolution = nn.Conv2d(channels, width, size, strides, padding)
        else:
            convolution = nn.Conv1d(channels, width, kernel, stride, kernel // 2)
        layers += [convolution, nn.ReLU(), nn.Dropout(dropout)]
        channels, height, time = width, [1] * len(height), (time - 1) // stride + 1
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * time, classes))


def fully_connected(
    input_shape: Sequence[int], classes: int, *, width: int = 512, dropout: float = 0.5
) -> nn.Sequential:
    """The network of ApDeepSense: five fully connected layers, four of them hidden."""
    inputs, layers = prod(input_shape), list[nn.Module]([nn.Flatten()])
    for _ in range(4):
        layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


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

    He's initialisation keeps the size of the signal through the layers. With PyTorch's default it
    shrinks, and what is left of it at the end is rounding.
    """
    network = paper_cnn(**changes)
    generator = torch.Generator().manual_seed(0)
    for weight in network.parameters():
        if weight.dim() > 1:
            nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=generator)
        else:
            nn.init.zeros_(weight)
    return network


class Layers(nn.Module):
    """A network that runs its ``layers`` one after the other."""

    layers: nn.Sequential

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.layers(x))


class WatchNet(Layers):
    """Window (n, 2 sensors, 3 axes, 250 instants) → logits (n, 7 exercises).

    The form of the paper: convolution, ReLU, dropout, four times, then one linear layer; no
    normalisation. Strides shorten time 250 → 84 → 42 → 21 → 11, in place of pooling. The third
    kernel spans the three axes and merges them.
    """

    def __init__(self, width: int = 48, dropout: float = 0.5) -> None:
        super().__init__()
        self.width = width
        self.dropout = dropout
        layers: list[nn.Module] = []
        channels = 2
        for kernel, stride in (((1, 9), 3), ((1, 5), 2), ((3, 5), 2), ((1, 5), 2)):
            padding = (0, kernel[1] // 2)  # time is padded, so that its borders count
            layers += [
                nn.Conv2d(channels, width, kernel, stride=(1, stride), padding=padding),
                *(nn.ReLU(), nn.Dropout(dropout)),
            ]
            channels = width
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 11, 7))


class MotionCnn(Layers):
    """Window (n, 6, 200) → logits (n, 6): BatchNorm, max-pool and dropout 0.5, four convolutions.

    Seen as an image of (2 sensors, 3 axes, time); the third kernel merges the axes.
    """

    def __init__(self, width: int = 32, dropout: float = 0.5) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (2, 3)),
            *_pooled_block(2, width, (1, 5), nn.Dropout(dropout)),
            *_pooled_block(width, width, (1, 5), nn.Dropout(dropout)),
            *_pooled_block(width, width, (3, 5), nn.Dropout(dropout), merge=True),
            *_pooled_block(width, width, (1, 5), nn.Dropout(dropout)),
            nn.Flatten(),
            nn.Linear(width * 12, 6),
        )


class KeywordCnn(Layers):
    """MFCC image (n, 1, 24, 98) → logits (n, 10): channel dropout 0.2 after each of four blocks.

    The first kernel spans all coefficients, because neighbours among them have no more in common
    than others have; the rest run along time. On validation this is 14 points above four blocks of
    3 × 3 kernels (87.7 % against 73.5 %, one seed, same training).
    """

    def __init__(self, width: int = 64, channels: float = 0.2, dropout: float = 0.5) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_pooled_block(1, width, (24, 5), nn.Dropout2d(channels), merge=True),
            *_pooled_block(width, width, (1, 7), nn.Dropout2d(channels)),
            *_pooled_block(width, width, (1, 7), nn.Dropout2d(channels)),
            *_pooled_block(width, width, (1, 5), nn.Dropout2d(channels)),
            *(nn.Flatten(), nn.Dropout(dropout), nn.Linear(width * 6, 10)),
        )


class ResidualBlock(nn.Module):
    """x ↦ relu(x' + branch(x)), dropout between the two convolutions of the branch."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *(nn.Conv1d(inputs, outputs, 5, stride, padding=2, bias=False),),
            *(nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Conv1d(outputs, outputs, 5, padding=2, bias=False), nn.BatchNorm1d(outputs)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv1d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm1d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.branch(x))


class ResidualCnn(Layers):
    """Window (n, 6, 200) → logits (n, 6): four residual blocks, average over time, linear."""

    def __init__(self, width: int = 32, dropout: float = 0.25) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(6, width, 7, stride=2, padding=3, bias=False),
            *(nn.BatchNorm1d(width), nn.ReLU()),
            ResidualBlock(width, width, 1, dropout),
            ResidualBlock(width, width, 2, dropout),
            ResidualBlock(width, 2 * width, 2, dropout),
            ResidualBlock(2 * width, 2 * width, 1, dropout),
            *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(dropout)),
            nn.Linear(2 * width, 6),
        )


def _pooled_block(
    inputs: int, outputs: int, kernel: tuple[int, int], dropout: nn.Module, merge: bool = False
) -> tuple[nn.Module, ...]:
    """Convolution, BatchNorm, ReLU, max-pool by 2 along time, dropout.

    With `merge` there is no padding along height, so that the kernel merges it.
    """
    padding = (0 if merge else kernel[0] // 2, kernel[1] // 2)
    return (
        nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False),
        *(nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d((1, 2)), dropout),
    )
