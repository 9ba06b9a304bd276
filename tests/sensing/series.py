"""Convolutional networks along time. Inputs: samples (6, 32), sound (1, 16, 24), raw (1, 400)."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesigma.lab.deployed_networks import Beside, Residual, head, series

CLASSES = 4


def separable(inputs: int, outputs: int, kernel: int, dilation: int = 1) -> list[nn.Module]:
    """A kernel along time for each channel, one of 1 across them, BatchNorm."""
    padding = dilation * (kernel - 1) // 2
    return [
        nn.Conv1d(inputs, inputs, kernel, 1, padding, dilation, groups=inputs, bias=False),
        *(nn.Conv1d(inputs, outputs, 1, bias=False), nn.BatchNorm1d(outputs)),
    ]


def matchboxnet() -> nn.Sequential:
    """Keywords, Majumdar & Ginsburg 2020: residual blocks of separable kernels, dropout 0.1."""
    branch = nn.Sequential(
        *(*separable(16, 16, 5), nn.ReLU(), nn.Dropout(0.1), *separable(16, 16, 5)),
    )
    shortcut = nn.Sequential(nn.Conv1d(16, 16, 1, bias=False), nn.BatchNorm1d(16))
    return nn.Sequential(
        *(nn.Flatten(1, 2), *separable(16, 16, 5), nn.ReLU(), nn.Dropout(0.1)),
        *(Residual(branch, shortcut, nn.ReLU), nn.Dropout(0.1)),
        *(*separable(16, 32, 5, 2), nn.ReLU(), nn.Dropout(0.1)),
        *(*series(32, 32, 1), nn.Conv1d(32, CLASSES, 1), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
    )


def quartznet() -> nn.Sequential:
    """Kriman et al. 2020: five separable convolutions in a block, here two; dropout 0.2."""

    def block(kernel: int) -> nn.Module:
        inner = [*separable(24, 24, kernel), nn.ReLU(), nn.Dropout(0.2), *separable(24, 24, kernel)]
        shortcut = nn.Sequential(nn.Conv1d(24, 24, 1), nn.BatchNorm1d(24))
        return Residual(nn.Sequential(*inner), shortcut, nn.ReLU)

    return nn.Sequential(
        *(nn.Flatten(1, 2), *series(16, 24, 5, 2), block(5), nn.Dropout(0.2), block(9)),
        *(nn.Dropout(0.2), *head(24, CLASSES, dims=1)),
    )


def tc_resnet() -> nn.Sequential:
    """Keywords, Choi et al. 2019: coefficients are channels; dropout 0.5 before the last layer."""
    blocks = [
        Residual(
            nn.Sequential(*series(a, b, 9, 2), *series(b, b, 9, then=nn.Identity)),
            series(a, b, 1, 2),
            nn.ReLU,
        )
        for a, b in pairwise((16, 16, 24))
    ]
    stem = nn.Conv1d(16, 16, 3, padding=1, bias=False)
    return nn.Sequential(nn.Flatten(1, 2), stem, *blocks, *head(24, CLASSES, 0.5, dims=1))


def m5() -> nn.Sequential:
    """Dai et al. 2017, raw sound: a long first kernel, pools of 4, a mean. Dropout as in Keras."""
    layers = list[nn.Module]()
    for inputs, outputs, kernel, stride in ((1, 16, 40, 4), (16, 16, 3, 1), (16, 32, 3, 1)):
        layers += [nn.Conv1d(inputs, outputs, kernel, stride), nn.BatchNorm1d(outputs), nn.ReLU()]
        layers += [nn.MaxPool1d(3), nn.Dropout(0.1)]
    return nn.Sequential(*layers, *head(32, CLASSES, dims=1))


class M11(nn.Module):
    """Dai et al. 2017: deeper, stages of several convolutions, a mean and a log-softmax."""

    def __init__(self) -> None:
        super().__init__()
        stages = ((16, 2), (24, 2), (32, 1))
        layers, inputs = [*series(1, 8, 40, 4), nn.MaxPool1d(4)], 8
        for outputs, count in stages:
            for _ in range(count):
                layers += series(inputs, outputs, 3)
                inputs = outputs
            layers += [nn.MaxPool1d(2), nn.Dropout(0.2)]
        self.features = nn.Sequential(*layers)
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool1d(self.features(x), 3).squeeze(2)
        return F.log_softmax(self.last(x), dim=1)


class SincConv(nn.Module):
    """Ravanelli & Bengio 2018: kernels are band-passes, of which two frequencies are learnt."""

    def __init__(self, filters: int, kernel: int) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.linspace(0.01, 0.3, filters)[:, None])
        self.band = nn.Parameter(torch.full((filters, 1), 0.05))
        time = torch.arange(1, kernel // 2 + 1).float()
        self.register_buffer("time", time[None])
        self.register_buffer("window", torch.hamming_window(kernel, periodic=False))

    def forward(self, x: Tensor) -> Tensor:
        low = 0.005 + torch.abs(self.low)
        high = torch.clamp(low + 0.005 + torch.abs(self.band), max=0.5)
        angles = 2 * math.pi * self.time
        right = (torch.sin(high * angles) - torch.sin(low * angles)) / (math.pi * self.time)
        middle = 2 * (high - low)
        kernels = torch.cat([right.flip(dims=[1]), middle, right], dim=1) / middle * self.window
        return F.conv1d(x, kernels.unsqueeze(1), stride=2)


class SincNet(nn.Module):
    """The magnitude of band-passes, pooled, normalised over channels and time, leaky ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(400)
        self.sinc, self.norm0 = SincConv(8, 51), nn.LayerNorm([8, 58])
        self.conv, self.norm1 = nn.Conv1d(8, 12, 5), nn.LayerNorm([12, 18])
        self.drop = nn.Dropout(0.15)
        self.dense, self.last = nn.Linear(216, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool1d(self.sinc(self.norm(x)).abs(), 3)
        x = self.drop(F.leaky_relu(self.norm0(x), 0.2))
        x = F.leaky_relu(self.norm1(F.max_pool1d(self.conv(x), 3)), 0.2)
        return self.last(self.drop(F.leaky_relu(self.dense(x.flatten(1)), 0.2)))


class Chomp(nn.Module):
    """Cuts off what padding on both sides puts behind the end."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, : -self.size].contiguous()


class Tcn(nn.Module):
    """Bai et al. 2018: dilated causal convolutions, residuals, dropout 0.2; with weight norm."""

    def __init__(self, normalise, drop: type[nn.Module] = nn.Dropout) -> None:
        super().__init__()
        layers, inputs = list[nn.Module](), 6
        for dilation in (1, 2, 4):
            branch = list[nn.Module]()
            for first in (inputs, 12):
                padding = 2 * dilation
                conv = nn.Conv1d(first, 12, 3, padding=padding, dilation=dilation)
                branch += [normalise(conv), Chomp(padding), nn.ReLU(), drop(0.2)]
            shortcut = nn.Conv1d(inputs, 12, 1) if inputs != 12 else None
            layers.append(Residual(nn.Sequential(*branch), shortcut, nn.ReLU))
            inputs = 12
        self.layers, self.last = nn.Sequential(*layers), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x)[:, :, -1])


class WaveNet(nn.Module):
    """van den Oord et al. 2016: tanh · sigmoid, a residual and a skip from every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, dilations = nn.Conv1d(6, 12, 1), (1, 2, 4)
        self.filters, self.gates = (
            nn.ModuleList(nn.Conv1d(12, 12, 2, dilation=d) for d in dilations) for _ in range(2)
        )
        self.residuals, self.skips = (
            nn.ModuleList(nn.Conv1d(12, n, 1) for _ in dilations) for n in (12, 16)
        )
        self.drop = nn.Dropout(0.2)
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(16, 16, 1), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.stem(x), 0
        for i, (filtered, gate) in enumerate(zip(self.filters, self.gates, strict=True)):
            past = F.pad(self.drop(x), (2**i, 0))
            z = torch.tanh(filtered(past)) * torch.sigmoid(gate(past))
            skips = skips + self.skips[i](z)
            x = x + self.residuals[i](z)
        return self.head(self.last(skips).mean(dim=-1))


def inception_time() -> nn.Sequential:
    """Fawaz et al. 2020: long, middle and short kernels beside a maximum. Dropout is added."""

    def module(inputs: int) -> nn.Sequential:
        kernels = (nn.Conv1d(6, 6, k, padding="same", bias=False) for k in (19, 9, 5))
        narrow = nn.Sequential(nn.Conv1d(inputs, 6, 1, bias=False), Beside(*kernels))
        pooled = nn.Sequential(nn.MaxPool1d(3, 1, 1), nn.Conv1d(inputs, 6, 1, bias=False))
        return nn.Sequential(Beside(narrow, pooled), nn.BatchNorm1d(24), nn.ReLU())

    shortcut = series(6, 24, 1, then=nn.Identity)
    branch = nn.Sequential(module(6), nn.Dropout(0.2), module(24))
    return nn.Sequential(Residual(branch, shortcut, nn.ReLU), *head(24, CLASSES, 0.3, dims=1))


class OmniScale(nn.Module):
    """Tang et al. 2022: kernels of all prime sizes beside each other, in three layers."""

    class Layer(nn.Module):
        def __init__(self, inputs: int, outputs: int, sizes: tuple[int, ...]) -> None:
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv1d(inputs, outputs, k) for k in sizes)
            self.pads = [((k - 1) // 2, k // 2) for k in sizes]
            self.norm = nn.BatchNorm1d(outputs * len(sizes))

        def forward(self, x: Tensor) -> Tensor:
            each = [c(F.pad(x, p)) for c, p in zip(self.convs, self.pads, strict=True)]
            return F.relu(self.norm(torch.cat(each, dim=1)))

    def __init__(self) -> None:
        super().__init__()
        primes = (1, 2, 3, 5, 7)
        self.layers = nn.Sequential(
            *(self.Layer(6, 4, primes), nn.Dropout(0.2)),
            *(self.Layer(20, 4, primes), self.Layer(20, 8, (1, 2))),
        )
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.layers(x).mean(dim=-1)))


class WaveUNet(nn.Module):
    """Stoller et al. 2018: every other sample on the way down, linear upsampling, skips.

    As a label for each instant, or with their mean as one for the window.
    """

    def __init__(self, *, window: bool) -> None:
        super().__init__()
        self.window = window
        self.down1, self.down2 = nn.Conv1d(6, 8, 5, padding=2), nn.Conv1d(8, 12, 5, padding=2)
        self.bottom, self.drop = nn.Conv1d(12, 16, 5, padding=2), nn.Dropout(0.3)
        self.up2, self.up1 = nn.Conv1d(28, 12, 5, padding=2), nn.Conv1d(20, 8, 5, padding=2)
        self.last = nn.Conv1d(14, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.leaky_relu(self.down1(x), 0.2)
        b = F.leaky_relu(self.down2(a[:, :, ::2]), 0.2)
        c = self.drop(F.leaky_relu(self.bottom(b[:, :, ::2]), 0.2))
        c = F.interpolate(c, scale_factor=2, mode="linear", align_corners=False)
        b = F.leaky_relu(self.up2(torch.cat([c, b], dim=1)), 0.2)
        b = F.interpolate(b, size=a.shape[2], mode="linear", align_corners=True)
        a = self.drop(F.leaky_relu(self.up1(torch.cat([b, a], dim=1)), 0.2))
        logits = self.last(torch.cat([a, x], dim=1))
        return logits.mean(dim=2) if self.window else logits
