"""Brain waves, sets of points, several inputs or outputs, and unusual noise and activations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 4


def eegnet() -> nn.Sequential:
    """Lawhern et al. 2018: along time, across electrodes, separable; dropout 0.5. (8, 64)."""
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, (1, 17), padding="same", bias=False)),
        *(nn.BatchNorm2d(8), nn.Conv2d(8, 16, (8, 1), groups=8, bias=False), nn.BatchNorm2d(16)),
        *(nn.ELU(), nn.AvgPool2d((1, 4)), nn.Dropout(0.5)),
        nn.Conv2d(16, 16, (1, 5), padding=(0, 2), groups=16, bias=False),
        *(nn.Conv2d(16, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ELU()),
        *(nn.AvgPool2d((1, 8)), nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, CLASSES)),
    )


class ShallowConvNet(nn.Module):
    """Schirrmeister et al. 2017: the logarithm of the mean of squares; dropout 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Conv2d(1, 12, (1, 13))
        self.space = nn.Conv2d(12, 12, (8, 1), bias=False)
        self.norm, self.pool = nn.BatchNorm2d(12), nn.AvgPool2d((1, 20), stride=(1, 8))
        self.early, self.drop = nn.Dropout(0.1), nn.Dropout(0.5)
        self.last = nn.Conv2d(12, CLASSES, (1, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.space(self.early(self.time(x.unsqueeze(1)))))
        x = torch.log(torch.clamp(self.pool(torch.square(x)), min=1e-6))
        return self.last(self.drop(x)).squeeze(3).squeeze(2)


class TSception(nn.Module):
    """Ding et al. 2022: kernels of three durations, then of all and of half of the electrodes."""

    def __init__(self) -> None:
        super().__init__()

        def power(inputs: int, kernel, stride=1, pool=(1, 4)) -> nn.Sequential:
            conv = nn.Conv2d(inputs, 8, kernel, stride)
            return nn.Sequential(conv, nn.LeakyReLU(), nn.AvgPool2d(pool))

        self.p = 0.1
        self.times = nn.ModuleList(power(1, (1, k)) for k in (17, 9, 5))
        self.norm1, self.norm2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.spaces = nn.ModuleList([power(8, (8, 1)), power(8, (4, 1), (4, 1))])
        self.dense = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5))
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(torch.cat([each(x.unsqueeze(1)) for each in self.times], dim=-1))
        x = F.dropout(x, self.p, self.training)
        x = self.norm2(torch.cat([each(x) for each in self.spaces], dim=2))
        return self.last(self.dense(x.mean(dim=(2, 3))))


class PointNet(nn.Module):
    """Qi et al. 2017: one MLP for all points, the maximum over them; dropout 0.3. (24, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.align = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.turn = nn.Linear(16, 9)
        self.shared = nn.Sequential(
            *(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU()),
            *(nn.Conv1d(16, 32, 1), nn.BatchNorm1d(32)),
        )
        self.head = nn.Sequential(
            *(nn.Linear(32, 24), nn.Dropout(0.3), nn.BatchNorm1d(24), nn.ReLU()),
            nn.Linear(24, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        turn = self.turn(torch.max(self.align(x.transpose(1, 2)), 2)[0]).view(-1, 3, 3)
        turn = turn + torch.eye(3, device=x.device).unsqueeze(0)
        x = self.shared(torch.bmm(x, turn).transpose(1, 2))
        return self.head(torch.max(x, 2, keepdim=True)[0].view(-1, 32))


class DeepSets(nn.Module):
    """Zaheer et al. 2017: a sum over the members of a set, between two networks."""

    def __init__(self) -> None:
        super().__init__()
        self.phi = nn.Sequential(
            *(nn.Linear(3, 24), nn.Tanh(), nn.Dropout(0.2), nn.Linear(24, 24), nn.Tanh())
        )
        self.rho = nn.Sequential(
            *(nn.Dropout(0.5), nn.Linear(24, 24), nn.Tanh(), nn.Dropout(0.5)),
            nn.Linear(24, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.phi(x - x.max(dim=1, keepdim=True)[0])
        return self.rho(x.sum(dim=1))


class TwoSensors(nn.Module):
    """Two inputs at their own rates, a branch each, joined late."""

    def __init__(self) -> None:
        super().__init__()
        self.motion = nn.Sequential(
            *(nn.Conv1d(6, 12, 5), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2)),
            *(nn.AdaptiveMaxPool1d(1), nn.Flatten()),
        )
        self.sound = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.2)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )
        self.head = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Dropout(0.5))
        self.last = nn.Linear(24, CLASSES)

    def forward(self, motion: Tensor, sound: Tensor) -> Tensor:
        return self.last(self.head(torch.cat([self.motion(motion), self.sound(sound)], dim=1)))


class Trunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            *(nn.Conv1d(6, 16, 5), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3)),
            *(nn.MaxPool1d(4), nn.Flatten(), nn.Linear(112, 24), nn.ReLU(), nn.Dropout(0.3)),
        )
        self.last, self.other = nn.Linear(24, CLASSES), nn.Linear(24, 2)


class TwoHeads(Trunk):
    """An activity and a person, in a dict."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = self.trunk(x)
        return {"activity": self.last(features), "person": self.other(features)}


class LogitsAndFeatures(Trunk):
    """The logits, and what they were read off, for a loss on the features."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(x)
        return self.last(features), features


class OwnLayerNorm(nn.Module):
    """Ba et al. 2016, written with mean and std as in many tutorials."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.gain * (x - mean) / (std + 1e-6) + self.shift


def own_layer_norm() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(12, 32), OwnLayerNorm(32), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Linear(32, 32), OwnLayerNorm(32), nn.ReLU(), nn.Dropout(0.3)),
        nn.Linear(32, CLASSES),
    )


class AlwaysOn(nn.Module):
    """Gal & Ghahramani 2016 as often written: ``F.dropout`` that is on in eval mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.3
        self.first, self.second = nn.Linear(12, 32), nn.Linear(32, 32)
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.first(x)), p=self.p, training=True)
        x = F.dropout(F.relu(self.second(x)), p=self.p, training=True)
        return self.last(x)


def self_normalising() -> nn.Sequential:
    """Klambauer et al. 2017: SELU and AlphaDropout."""
    layers = list[nn.Module]()
    for inputs in (12, 32, 32):
        layer = nn.Linear(inputs, 32)
        nn.init.normal_(layer.weight, std=inputs**-0.5)
        layers += [layer, nn.SELU(), nn.AlphaDropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(32, CLASSES))


class Maxout(nn.Module):
    """Goodfellow et al. 2013: the largest of three linear maps, with dropout before each."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.drop = nn.Dropout(0.2), nn.Dropout(0.5)
        self.first, self.second = nn.Linear(12, 72), nn.Linear(24, 72)
        self.last = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.inputs(x)).view(-1, 24, 3).max(dim=2).values
        x = self.second(self.drop(x)).view(-1, 24, 3).amax(dim=2)
        return self.last(self.drop(x))


class DropConnect(nn.Module):
    """Wan et al. 2013: the weights of the second layer are dropped, not what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.3
        self.first, self.second = nn.Linear(12, 24), nn.Linear(24, 24)
        self.last = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        weight = F.dropout(self.second.weight, self.p, self.training)
        x = F.linear(F.relu(self.first(x)), weight, self.second.bias)
        return self.last(F.relu(x))


class OwnNoise(nn.Module):
    """Gaussian dropout (Srivastava et al. 2014), drawn by hand in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.3
        self.first, self.last = nn.Linear(12, 64), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        if self.training:
            x = x * (1 + (self.p / (1 - self.p)) ** 0.5 * torch.randn_like(x))
        return self.last(x)
