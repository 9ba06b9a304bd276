"""Networks that attend, gate or mix. Inputs: samples (6, 32), sound (1, 16, 24), images."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesigma.lab.deployed_networks import Residual, image, series

CLASSES = 4


class KeywordTransformer(nn.Module):
    """Berg et al. 2021: a class token, learned places, attention by nn.MultiheadAttention.

    The norm comes behind each branch, as there; its dropout of ViT is 0.1.
    """

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.feed = nn.Sequential(
                *(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1)),
                *(nn.Linear(2 * width, width), nn.Dropout(0.1)),
            )

        def forward(self, x: Tensor) -> Tensor:
            attended, _ = self.attention(x, x, x, need_weights=False)
            x = self.norm1(x + attended)
            return self.norm2(x + self.feed(x))

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(0.1 * torch.randn(1, 25, width))
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(self.Block(width) for _ in range(2)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.squeeze(1).transpose(1, 2))
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.blocks(self.drop(x + self.places))
        return self.last(x[:, 0])


class SelfAttention(nn.Module):
    """Heads written by hand, dropout on the weights, and a bias for each distance (T5)."""

    def __init__(self, width: int, heads: int, length: int, p: float) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(p)
        self.distance = nn.Parameter(0.1 * torch.randn(heads, 2 * length - 1))
        places = torch.arange(length)
        self.register_buffer("index", places[:, None] - places[None, :] + length - 1)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.project(x).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        weights = self.drop((scores + self.distance[:, self.index]).softmax(dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(n, length, width))


class Swap(nn.Module):
    """(n, a, b) → (n, b, a)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Conformer(nn.Module):
    """Gulati et al. 2020: half a feed-forward, attention, convolution with GLU, half another."""

    def __init__(self, width: int = 16, p: float = 0.1) -> None:
        super().__init__()

        def feed() -> nn.Sequential:
            return nn.Sequential(
                *(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Dropout(p)),
                *(nn.Linear(4 * width, width), nn.Dropout(p)),
            )

        self.embed = nn.Conv1d(6, width, 4, stride=2)
        self.feed1, self.feed2 = feed(), feed()
        self.attend = nn.Sequential(
            nn.LayerNorm(width), SelfAttention(width, 2, 15, p), nn.Dropout(p)
        )
        self.convolve = nn.Sequential(
            *(nn.LayerNorm(width), Swap(), nn.Conv1d(width, 2 * width, 1), nn.GLU(dim=1)),
            nn.Conv1d(width, width, 7, padding=3, groups=width),
            *(nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1), nn.Dropout(p), Swap()),
        )
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).transpose(1, 2)
        x = x + 0.5 * self.feed1(x)
        x = x + self.attend(x)
        x = x + self.convolve(x)
        x = self.norm(x + 0.5 * self.feed2(x))
        return self.last(x.mean(dim=1))


class SeriesTransformer(nn.Module):
    """Zerveas et al. 2021: nn.TransformerEncoder over instants with waves as places."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(6, width)
        places, waves = torch.zeros(32, width), torch.arange(0, width, 2) / width
        angles = torch.arange(32)[:, None] / 10000**waves
        places[:, 0::2], places[:, 1::2] = angles.sin(), angles.cos()
        self.register_buffer("places", places)
        self.drop = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.last = nn.Linear(32 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.transpose(1, 2)) * math.sqrt(16)
        x = F.gelu(self.encoder(self.drop(x + self.places[: x.shape[1]])))
        return self.last(x.flatten(1))


class AttentionPoolCnn(nn.Module):
    """Ilse et al. 2018, the gated form: a softmax over instants of tanh · sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(*series(6, 16, 5), nn.Dropout(0.3), *series(16, 16, 3, 2))
        self.a, self.b = nn.Linear(16, 8), nn.Linear(16, 8)
        self.score = nn.Linear(8, 1)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.features(x).transpose(1, 2)
        weights = self.score(torch.tanh(self.a(h)) * torch.sigmoid(self.b(h))).softmax(dim=1)
        return self.last(self.drop((weights * h).sum(dim=1)))


class SqueezeExcite(nn.Module):
    """Hu et al. 2018."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(channels, channels // 4), nn.Linear(channels // 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        n, c = x.shape[:2]
        gate = torch.sigmoid(self.fc2(F.relu(self.fc1(x.mean(dim=(2, 3))))))
        return x * gate.view(n, c, 1, 1)


class SpatialAttention(nn.Module):
    """Of CBAM: mean and maximum over channels, a convolution, a gate for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]], dim=1)
        return x * torch.sigmoid(self.conv(both))


class ChannelAttention(nn.Module):
    """Of CBAM: one small network on the mean and on the maximum over positions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Conv2d(channels, channels // 4, 1), nn.ReLU(), nn.Conv2d(channels // 4, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        mean, most = F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, 1)
        return x * torch.sigmoid(self.mlp(mean) + self.mlp(most))


def se_resnet() -> nn.Sequential:
    blocks = [
        Residual(
            nn.Sequential(
                *(*image(16, 16, 3), nn.Dropout(0.2)),
                *(*image(16, 16, 3, then=nn.Identity), SqueezeExcite(16)),
            ),
            then=nn.ReLU,
        )
        for _ in range(2)
    ]
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*image(3, 16, 3, 2), *blocks, *pool, nn.Linear(16, CLASSES))


def cbam_cnn() -> nn.Sequential:
    """Woo et al. 2018."""
    return nn.Sequential(
        *(*image(3, 16, 3, 2), ChannelAttention(16), SpatialAttention(), nn.Dropout(0.2)),
        *(*image(16, 24, 3, 2), ChannelAttention(24), SpatialAttention(), nn.Dropout(0.2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, CLASSES)),
    )


class Mixer(nn.Module):
    """Tolstikhin et al. 2021: an MLP across patches, an MLP across channels; dropout as in ViT."""

    class Block(nn.Module):
        def __init__(self, tokens: int, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

            def mlp(size: int) -> nn.Sequential:
                first, second = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
                return nn.Sequential(first, nn.GELU(), nn.Dropout(0.1), second, nn.Dropout(0.1))

            self.tokens, self.channels = mlp(tokens), mlp(width)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.blocks = nn.Sequential(*(self.Block(16, 16) for _ in range(2)))
        self.norm, self.last = nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return self.last(self.norm(x).mean(dim=1))


class GatedMlp(nn.Module):
    """gMLP, Liu et al. 2021: half of the channels, mixed along time, gates the other half."""

    def __init__(self, width: int = 16, length: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.norm, self.inner = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.along = nn.Conv1d(length, length, 1)
        self.narrow = nn.Linear(width, width)
        nn.init.ones_(self.along.bias)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.transpose(1, 2))
        u, v = F.gelu(self.wide(self.norm(x))).chunk(2, dim=-1)
        x = x + self.drop(self.narrow(u * self.along(self.inner(v))))
        return self.last(x.mean(dim=1))


class ResMlp(nn.Module):
    """Touvron et al. 2021: scaled residual branches, an affine map in place of each norm."""

    class Affine(nn.Module):
        def __init__(self, width: int, scale: float = 1.0) -> None:
            super().__init__()
            self.alpha = nn.Parameter(scale * torch.ones(width))
            self.beta = nn.Parameter(torch.zeros(width))

        def forward(self, x: Tensor) -> Tensor:
            return torch.addcmul(self.beta, self.alpha, x)

    def __init__(self, width: int = 16, length: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.norm1, self.norm2 = self.Affine(width), self.Affine(width)
        self.scale1, self.scale2 = self.Affine(width, 0.5), self.Affine(width, 0.5)
        self.along = nn.Linear(length, length)
        self.feed = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Dropout(0.1))
        self.out, self.last = nn.Linear(64, width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.transpose(1, 2))
        x = x + self.scale1(self.along(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        x = x + self.scale2(self.out(self.feed(self.norm2(x))))
        return self.last(x.mean(dim=1))


class FNet(nn.Module):
    """Lee-Thorp et al. 2022: the real part of a Fourier transform in place of attention."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.wide, self.narrow = nn.Linear(width, 64), nn.Linear(64, width)
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.embed(x.transpose(1, 2)))
        x = self.norm1(x + torch.fft.fft2(x).real)
        x = self.norm2(x + self.drop(self.narrow(F.gelu(self.wide(x)))))
        return self.last(x.mean(dim=1))
