"""Where time lies: told by the first layer that mixes channels, or by the names of these."""

import pytest
import torch
from torch import nn

from onesigma.conversion import as_captured


class Recurrent(nn.Module):
    """(n, instants, channels), as ``batch_first`` has it."""

    def __init__(self, channels: int, turned: bool = False) -> None:
        super().__init__()
        self.turned, self.layer = turned, nn.GRU(channels, 8, batch_first=True)
        self.last = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x):
        x = (x - 0.5) / 2
        return self.last(self.layer(x.transpose(1, 2) if self.turned else x)[0][:, -1])


class Convolution(nn.Module):
    def __init__(self, channels: int, turned: bool = False) -> None:
        super().__init__()
        self.turned, self.layer = turned, nn.Conv1d(channels, 8, 3)
        self.last = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x):
        return self.last(self.layer(x.permute(0, 2, 1) if self.turned else x).relu().mean(2))


class Images(nn.Module):
    """Convolutions of two dims, (n, 1, instants, channels) or (n, instants, channels)."""

    def __init__(self, kernel: tuple[int, int], order: tuple[int, ...] = (), new: int = 0) -> None:
        super().__init__()
        self.order, self.new, self.layer = order, new, nn.LazyConv2d(8, kernel)
        self.last = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x):
        x = x.unsqueeze(self.new) if self.new else x
        x = x.permute(0, *self.order) if self.order else x
        return self.last(self.layer(x).relu().mean((2, 3)))


class Unrolled(nn.Module):
    """A recurrent layer instant by instant, as Keras has it."""

    def __init__(self, channels: int, together: bool = False) -> None:
        super().__init__()
        self.together, self.weight = together, nn.Parameter(torch.randn(channels, 8))
        self.last = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x):
        parts = x.permute(1, 0, 2) @ self.weight if self.together else [x[:, 0], x[:, 1]]
        parts = parts if self.together else [part @ self.weight for part in parts]
        return self.last(torch.tanh(parts[0]) + torch.tanh(parts[1]))


def linear(size: int) -> nn.Module:
    layers = nn.Linear(size, 8), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.LazyLinear(3)
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("network", "shape", "names", "dim"),
    [
        (Recurrent(6), (40, 6), None, 1),
        (Recurrent(40), (6, 40), None, 1),  # a recurrent layer leaves no doubt
        (Recurrent(6, turned=True), (6, 40), None, 2),
        (Convolution(6), (6, 40), None, 2),
        (Convolution(40), (40, 6), None, 2),
        (Convolution(6, turned=True), (40, 6), None, 1),
        (Unrolled(6), (40, 6), None, 1),
        (Unrolled(6, together=True), (40, 6), None, 1),
        (Images((5, 1)), (1, 40, 6), None, 2),
        (Images((1, 5)), (1, 6, 40), None, 3),
        (Images((5, 1), new=1), (40, 6), None, 1),
        (Images((5, 1), new=-1, order=(3, 1, 2)), (40, 6), None, 1),
        (Images((3, 3)), (3, 20, 20), None, 3),
        (Images((3, 3), order=(3, 1, 2)), (20, 20, 3), None, 2),  # an image's channels last
        (linear(6), (40, 6), None, 1),
        (linear(40), (6, 40), None, 2),  # it mixes instants
        (linear(6), (40, 6), 40, 2),
        (linear(40), (6, 40), 40, 1),
        (linear(5), (1, 40, 5), 5, 2),
        (linear(3), (40, 2, 3), 6, 1),
        (linear(3), (2, 3, 3), 6, 3),
        (linear(9), (9,), None, 1),
    ],
)
def test_the_dim_of_time(network, shape, names, dim):
    x = torch.randn(4, *shape)
    network(x)
    captured = as_captured(network.eval(), x, "classification", None, None)
    assert captured.time_dims([x], names) == [dim]
