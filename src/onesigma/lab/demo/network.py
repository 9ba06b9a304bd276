"""The network of the demo: four convolutions and a linear layer, dropout after each of the four."""

from typing import cast

from torch import Tensor, nn

from onesigma.lab.datasets.watch import CLASS_NAMES, SENSORS

WIDTH = 48
DROPOUT = 0.5


class WatchNet(nn.Module):
    """Window (n, 2 sensors, 3 axes, 250 instants) → logits (n, 7 exercises).

    The form of the paper: convolution, ReLU, dropout, four times, then one linear layer; no
    normalisation layer, no softmax. Strides shorten time 250 → 84 → 42 → 21 → 11, in place of
    pooling; the third kernel spans the three axes and merges them.
    """

    def __init__(self, width: int = WIDTH, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.width = width
        self.dropout = dropout
        self.layers = nn.Sequential(
            *_internal(len(SENSORS), width, kernel=(1, 9), stride=3, dropout=dropout),
            *_internal(width, width, kernel=(1, 5), stride=2, dropout=dropout),
            *_internal(width, width, kernel=(3, 5), stride=2, dropout=dropout),
            *_internal(width, width, kernel=(1, 5), stride=2, dropout=dropout),
            nn.Flatten(),
            nn.Linear(width * 11, len(CLASS_NAMES)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.layers(x))


def _internal(
    inputs: int, outputs: int, kernel: tuple[int, int], stride: int, dropout: float
) -> tuple[nn.Module, ...]:
    """One internal layer; `stride` is along time, which is padded to keep its borders in play."""
    return (
        nn.Conv2d(inputs, outputs, kernel, stride=(1, stride), padding=(0, kernel[1] // 2)),
        nn.ReLU(),
        nn.Dropout(dropout),
    )
