"""Convolutional networks of images and of sound as an image. Inputs: (3, 16, 16), (1, 16, 24)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesigma.lab.deployed_networks import (
    Beside,
    Residual,
    head,
    image,
    inverted_residual,
)

CLASSES = 4


class DropPath(nn.Module):
    """Stochastic depth, Huang et al. 2016, as EfficientNet has it: a whole branch, row by row."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = x.new_empty(x.shape[0], *[1] * (x.dim() - 1)).bernoulli_(1 - self.p)
        return x * kept / (1 - self.p)


def mobilenet_v2() -> nn.Sequential:
    """Sandler et al. 2018: linear bottlenecks with ReLU6; dropout 0.2 before the classifier."""
    return nn.Sequential(
        *image(3, 8, 3, 2, then=nn.ReLU6),
        inverted_residual(8, 32, 8, 3, 1, False, nn.ReLU6),
        inverted_residual(8, 32, 16, 3, 2, False, nn.ReLU6),
        *(*image(16, 48, 1, then=nn.ReLU6), *head(48, CLASSES, 0.2)),
    )


def mobilenet_v3() -> nn.Sequential:
    """Howard et al. 2019: squeeze-and-excite, hardswish, dropout 0.2 in the classifier."""
    return nn.Sequential(
        *image(1, 8, 3, 2, then=nn.Hardswish),
        inverted_residual(8, 16, 8, 3, 1, True, nn.ReLU),
        inverted_residual(8, 32, 16, 5, 2, True, nn.Hardswish),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 32), nn.Hardswish()),
        *(nn.Dropout(0.2), nn.Linear(32, CLASSES)),
    )


def efficientnet() -> nn.Sequential:
    """Tan & Le 2019: SiLU, squeeze-and-excite, drop-path in the branch, dropout at the end."""
    block = inverted_residual(8, 32, 8, 3, 1, True, nn.SiLU)
    assert isinstance(block, Residual)
    return nn.Sequential(
        *image(3, 8, 3, 2, then=nn.SiLU),
        Residual(nn.Sequential(block.branch, DropPath(0.2))),
        *(*image(8, 32, 1, then=nn.SiLU), *head(32, CLASSES, 0.2)),
    )


class ShuffleUnit(nn.Module):
    """ShuffleNet v2, Ma et al. 2018: half of the channels pass, then all are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            *image(half, half, 1),
            *image(half, half, 3, groups=half, then=nn.Identity),
            *image(half, half, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, dim=1)
        x = torch.cat([kept, self.branch(changed)], dim=1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def shufflenet() -> nn.Sequential:
    return nn.Sequential(
        *(*image(3, 16, 3, 2), nn.Dropout2d(0.1), ShuffleUnit(16), ShuffleUnit(16)),
        *(*image(16, 32, 1), *head(32, CLASSES, 0.2)),
    )


class Ghost(nn.Module):
    """Han et al. 2020: half of the channels are made of the others by cheap convolutions."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.primary, self.cheap = image(inputs, half, 1), image(half, half, 3, groups=half)

    def forward(self, x: Tensor) -> Tensor:
        x = self.primary(x)
        return torch.cat([x, self.cheap(x)], dim=1)


def ghostnet() -> nn.Sequential:
    bottleneck = nn.Sequential(Ghost(16, 32), Ghost(32, 16))
    return nn.Sequential(
        *(*image(3, 16, 3, 2), nn.Dropout(0.1), Residual(bottleneck)),
        *(Ghost(16, 32), *head(32, CLASSES, 0.2)),
    )


def fire(inputs: int, squeezed: int, outputs: int) -> nn.Sequential:
    """SqueezeNet, Iandola et al. 2016: few channels, then kernels of 1 and of 3 beside."""
    one, three = nn.Conv2d(squeezed, outputs, 1), nn.Conv2d(squeezed, outputs, 3, padding=1)
    return nn.Sequential(
        *(nn.Conv2d(inputs, squeezed, 1), nn.ReLU(inplace=True)),
        *(Beside(one, three), nn.ReLU(inplace=True)),
    )


def squeezenet() -> nn.Sequential:
    """Dropout 0.5 before a convolution that is the classifier."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(inplace=True), fire(16, 4, 12), pool),
        *(fire(24, 4, 12), nn.Dropout(0.5), nn.Conv2d(24, CLASSES, 1), nn.ReLU(inplace=True)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )


class Dense(nn.Module):
    """Huang et al. 2017: each layer reads all before it; dropout 0.2 after each convolution."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.p = 0.2
        sizes = [inputs + growth * i for i in range(layers)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in sizes)
        self.convs = nn.ModuleList(nn.Conv2d(n, growth, 3, padding=1, bias=False) for n in sizes)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            new = conv(F.relu(norm(torch.cat(features, 1))))
            features.append(F.dropout(new, p=self.p, training=self.training))
        return torch.cat(features, 1)


def densenet() -> nn.Sequential:
    transition = nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 1, bias=False), nn.AvgPool2d(2)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1, bias=False), Dense(8, 8, 3), *transition),
        *(Dense(16, 8, 2), nn.BatchNorm2d(32), nn.ReLU(), *head(32, CLASSES)),
    )


def resnext() -> nn.Sequential:
    """Xie et al. 2017: bottlenecks with convolutions in groups."""
    branch = nn.Sequential(
        *(*image(16, 16, 1), *image(16, 16, 3, 2, groups=4), nn.Dropout(0.3)),
        *image(16, 32, 1, then=nn.Identity),
    )
    shortcut = image(16, 32, 1, 2, then=nn.Identity)
    return nn.Sequential(
        *image(3, 16, 3), Residual(branch, shortcut, nn.ReLU), *head(32, CLASSES, 0.3)
    )


class SubSpectralNorm(nn.Module):
    """Chang et al. 2021: a BatchNorm of its own for each band of frequencies."""

    def __init__(self, channels: int, bands: int) -> None:
        super().__init__()
        self.bands, self.norm = bands, nn.BatchNorm2d(channels * bands)

    def forward(self, x: Tensor) -> Tensor:
        n, c, f, t = x.size()
        x = x.view(n, c * self.bands, f // self.bands, t)
        return self.norm(x).view(n, c, f, t)


class BroadcastBlock(nn.Module):
    """BC-ResNet, Kim et al. 2021: a branch over frequency, its mean over time, broadcast back."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.frequency = nn.Sequential(
            nn.Conv2d(channels, channels, (3, 1), padding=(1, 0), groups=channels, bias=False),
            SubSpectralNorm(channels, 4),
        )
        self.time = nn.Sequential(
            nn.Conv2d(
                *(channels, channels, (1, 3)),
                padding=(0, dilation),
                dilation=(1, dilation),
                groups=channels,
                bias=False,
            ),
            *(nn.BatchNorm2d(channels), nn.SiLU(), nn.Conv2d(channels, channels, 1)),
            nn.Dropout2d(0.1),
        )

    def forward(self, x: Tensor) -> Tensor:
        across = self.frequency(x)
        along = self.time(across.mean(dim=2, keepdim=True))
        return F.relu(x + across + along)


def bc_resnet() -> nn.Sequential:
    stem = nn.Conv2d(1, 16, 5, (2, 1), 2), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(
        *(*stem, BroadcastBlock(16, 1), BroadcastBlock(16, 2)),
        *(nn.Conv2d(16, 16, (8, 3), groups=16), nn.Conv2d(16, 32, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, CLASSES, 1), nn.Flatten()),
    )


class LayerNorm2d(nn.Module):
    """Of the channels at each position, as ConvNeXt writes it by hand for channels first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(f(channels)) for f in (torch.ones, torch.zeros))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNextBlock(nn.Module):
    """Liu et al. 2022: depthwise 7 × 7, LayerNorm with channels last, GELU, a scaled branch."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide, self.narrow = (
            nn.Linear(channels, 4 * channels),
            nn.Linear(4 * channels, channels),
        )
        self.gamma = nn.Parameter(0.5 * torch.ones(channels))
        self.drop_path = DropPath(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.narrow(F.gelu(self.wide(y)))
        return x + self.drop_path(y.permute(0, 3, 1, 2))


def convnext() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 4, 4), LayerNorm2d(16), ConvNextBlock(16), ConvNextBlock(16)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(16), nn.Dropout(0.2)),
        nn.Linear(16, CLASSES),
    )


class UNet(nn.Module):
    """Ronneberger et al. 2015: a label for each position; dropout at the bottom."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.bottom = image(3, 8, 3), image(8, 16, 3)
        self.drop = nn.Dropout(0.5)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge, self.last = image(16, 8, 3), nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down(x)
        b = self.drop(self.bottom(F.max_pool2d(a, 2)))
        return self.last(self.merge(torch.cat([a, self.up(b)], dim=1)))


def group_norm() -> nn.Sequential:
    """Wu & He 2018, in place of BatchNorm."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Dropout2d(0.2)),
        *(nn.Conv2d(16, 24, 3, 2, 1), nn.GroupNorm(4, 24), nn.ReLU(), nn.Dropout2d(0.2)),
        *head(24, CLASSES),
    )


def spectral_norm() -> nn.Sequential:
    """Miyato et al. 2018: weights over their largest singular value, in both ways of writing it."""
    old, new = nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm
    return nn.Sequential(
        *(new(nn.Conv2d(3, 16, 3, 2, 1)), nn.LeakyReLU(0.1), nn.Dropout(0.2)),
        *(old(nn.Conv2d(16, 16, 3, 2, 1)), nn.LeakyReLU(0.1), nn.Dropout(0.2)),
        *(nn.Flatten(), new(nn.Linear(256, CLASSES))),
    )
