"""Networks as they are deployed, small enough for a microcontroller or a phone. Logits come out.

Each has the layers of its paper or of its well-known implementation. Dropout stands where that has
it; where it has none, the docstring says who puts it there. Convolutions that BatchNorm follows
have no bias. Inputs: sound (1, 24 coefficients, 98 frames), spectra (6, 20, 20), samples
(6 channels, 200 instants), five body-worn sensors (18 channels, 125 instants), images (1, 32, 32).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]


class Residual(nn.Module):
    """x ↦ then(shortcut(x) + branch(x))."""

    def __init__(
        self, branch: nn.Module, shortcut: nn.Module | None = None, then: Activation = nn.Identity
    ) -> None:
        super().__init__()
        self.branch, self.shortcut, self.then = branch, shortcut or nn.Identity(), then()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.then(self.shortcut(x) + self.branch(x))
        return total


class Beside(nn.Module):
    """The outputs of several branches, one after the other along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Gated(nn.Module):
    """x · gate(x): squeeze-and-excite."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = x * self.gate(x)
        return scaled


class LastInstant(nn.Module):
    """Series (n, channels, instants) → (n, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[..., -1]


def image(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    groups: int = 1,
    then: Activation = nn.ReLU,
) -> nn.Sequential:
    """Convolution of an image, padded so that a stride of 1 keeps its size; BatchNorm; `then`."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = ((height - 1) // 2, (width - 1) // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        *(nn.BatchNorm2d(outputs), then()),
    )


def convolution_1d(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv1d:
    return nn.Conv1d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


def series(
    inputs: int, outputs: int, kernel: int, stride: int = 1, then: Activation = nn.ReLU
) -> nn.Sequential:
    """What `image` is, along time."""
    convolution = convolution_1d(inputs, outputs, kernel, stride)
    return nn.Sequential(convolution, nn.BatchNorm1d(outputs), then())


def separable(inputs: int, outputs: int, stride: int, then: Activation) -> nn.Sequential:
    """A 3 × 3 kernel on each channel, then one of 1 × 1 across them."""
    return nn.Sequential(
        *image(inputs, inputs, 3, stride, inputs, then), *image(inputs, outputs, 1, then=then)
    )


def head(inputs: int, classes: int, dropout: float = 0.0, *, dims: int = 2) -> list[nn.Module]:
    """Average over space or time, dropout if there is any, one linear layer."""
    average = nn.AdaptiveAvgPool2d(1) if dims == 2 else nn.AdaptiveAvgPool1d(1)
    drop = [nn.Dropout(dropout)] if dropout else []
    return [average, nn.Flatten(), *drop, nn.Linear(inputs, classes)]


def ds_cnn(classes: int = 10, width: int = 64) -> nn.Sequential:
    """Keywords: the DS-CNN of MLPerf Tiny, after Zhang et al. 2017. Sound → words."""
    return nn.Sequential(
        *(*image(1, width, (4, 10), 2), nn.Dropout(0.2)),
        *(separable(width, width, 1, nn.ReLU) for _ in range(4)),
        *(nn.Dropout(0.4), *head(width, classes)),
    )


def resnet8(channels: int = 6, classes: int = 6, width: int = 16) -> nn.Sequential:
    """The ResNet-8 of MLPerf Tiny, which has no dropout: 0.3 as in a Wide ResNet. Spectra."""
    blocks = list[nn.Module]()
    for inputs, outputs, stride in ((1, 1, 1), (1, 2, 2), (2, 4, 2)):
        inputs, outputs = inputs * width, outputs * width
        branch = nn.Sequential(
            *(*image(inputs, outputs, 3, stride), nn.Dropout(0.3)),
            *image(outputs, outputs, 3, then=nn.Identity),
        )
        shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else None
        blocks.append(Residual(branch, shortcut, nn.ReLU))
    return nn.Sequential(*image(channels, width, 3), *blocks, *head(4 * width, classes))


def mobilenet_v1(channels: int = 6, classes: int = 6, dropout: float = 0.5) -> nn.Sequential:
    """MobileNet of width 0.25, Howard et al. 2017; dropout before the classifier, as in Keras.

    The first stride is 1, as is usual for small images. Spectra → activities.
    """
    widths = (8, 16, 32, 32, 64, 64, *[128] * 6, 256, 256)
    return nn.Sequential(
        *image(channels, widths[0], 3, then=nn.ReLU6),
        *(
            separable(inputs, outputs, 2 if 8 < inputs < outputs else 1, nn.ReLU6)
            for inputs, outputs in pairwise(widths)
        ),
        *head(widths[-1], classes, dropout),
    )


def inverted_residual(
    inputs: int, wide: int, outputs: int, kernel: int, stride: int, excite: bool, then: Activation
) -> nn.Module:
    """Expand, convolve each channel, squeeze-and-excite, project."""
    gate = nn.Sequential(
        *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, wide // 4, 1), nn.ReLU()),
        *(nn.Conv2d(wide // 4, wide, 1), nn.Hardsigmoid()),
    )
    branch = nn.Sequential(
        *image(inputs, wide, 1, then=then),
        *image(wide, wide, kernel, stride, wide, then),
        *([Gated(gate)] if excite else []),
        *image(wide, outputs, 1, then=nn.Identity),
    )
    return Residual(branch) if stride == 1 and inputs == outputs else branch


def mobilenet_v3(classes: int = 10, dropout: float = 0.2) -> nn.Sequential:
    """MobileNetV3-Small at half width, Howard et al. 2019. Sound → words.

    Dropout in the classifier, after its hardswish; and before it, where others have it.
    """
    relu, hard = nn.ReLU, nn.Hardswish
    return nn.Sequential(
        *image(1, 16, 3, 2, then=hard),
        inverted_residual(16, 16, 16, 3, 2, True, relu),
        inverted_residual(16, 48, 16, 3, 2, False, relu),
        inverted_residual(16, 48, 16, 3, 1, False, relu),
        inverted_residual(16, 48, 24, 5, 2, True, hard),
        inverted_residual(24, 120, 24, 5, 1, True, hard),
        inverted_residual(24, 72, 24, 5, 1, True, hard),
        inverted_residual(24, 144, 48, 5, 2, True, hard),
        inverted_residual(48, 288, 48, 5, 1, True, hard),
        *(*image(48, 288, 1, then=hard), *head(288, 256, dropout)),
        *(hard(), nn.Dropout(dropout), nn.Linear(256, classes)),
    )


def tc_resnet(classes: int = 10, dropout: float = 0.5) -> nn.Sequential:
    """Keywords: TC-ResNet8-1.5, Choi et al. 2019; the coefficients are channels. Sound → words."""
    widths = (24, 36, 48, 72)
    blocks = [
        Residual(
            nn.Sequential(
                *series(inputs, outputs, 9, 2), *series(outputs, outputs, 9, then=nn.Identity)
            ),
            series(inputs, outputs, 1, 2),
            nn.ReLU,
        )
        for inputs, outputs in pairwise(widths)
    ]
    return nn.Sequential(
        *(nn.Flatten(1, 2), convolution_1d(24, widths[0], 3), *blocks),
        *head(widths[-1], classes, dropout, dims=1),
    )


def vgg(classes: int = 10, width: int = 16) -> nn.Sequential:
    """VGG for small images, after Liu & Deng 2015: BatchNorm, and dropout throughout. Sound."""
    layers, channels = list[nn.Module](), 1
    for outputs in (width, 2 * width, 4 * width):
        layers += [*image(channels, outputs, 3), *image(outputs, outputs, 3)]
        layers += [nn.MaxPool2d(2), nn.Dropout(0.3)]
        channels = outputs
    return nn.Sequential(
        *(*layers, nn.Flatten(), nn.Linear(channels * 3 * 12, 128)),
        *(nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes)),
    )


def tcn(
    channels: int = 6, classes: int = 6, width: int = 24, levels: int = 5, kernel: int = 5
) -> nn.Sequential:
    """Temporal convolutional network, Bai et al. 2018, answering at the last instant. Samples.

    Weight normalisation is left out: it only helps training, and is folded when deployed.
    """
    layers = list[nn.Module]()
    for level in range(levels):
        branch = list[nn.Module]()
        dilation, inputs = 2**level, width if level else channels
        for first in (inputs, width):
            branch += [
                nn.ConstantPad1d(((kernel - 1) * dilation, 0), 0.0),
                nn.Conv1d(first, width, kernel, dilation=dilation),
                *(nn.ReLU(), nn.Dropout(0.2)),
            ]
        shortcut = nn.Conv1d(inputs, width, 1) if inputs != width else None
        layers.append(Residual(nn.Sequential(*branch), shortcut, nn.ReLU))
    return nn.Sequential(*layers, LastInstant(), nn.Linear(width, classes))


def ecg_resnet(
    channels: int = 6, classes: int = 6, width: int = 24, kernel: int = 9, blocks: int = 6
) -> nn.Sequential:
    """Heart beats: Hannun et al. 2019, pre-activation, fewer blocks and shorter kernels. Samples.

    Time is halved in every other block; the shortcut takes its maximum, and zeros as new channels.
    """
    layers, inputs = [*series(channels, width, kernel)], width
    for block in range(blocks):
        outputs, stride = width * 2 ** (block // 2), 1 + block % 2
        branch = nn.Sequential(
            *([nn.BatchNorm1d(inputs), nn.ReLU()] if block else []),
            *(*series(inputs, outputs, kernel, stride), nn.Dropout(0.2)),
            convolution_1d(outputs, outputs, kernel),
        )
        shortcut: nn.Module | None = nn.MaxPool1d(2) if stride > 1 else None
        if inputs != outputs:
            # Two dimensions of a series: channels and time.
            shortcut = nn.ZeroPad2d((0, 0, 0, outputs - inputs))
        layers.append(Residual(branch, shortcut))
        inputs = outputs
    layers += [nn.BatchNorm1d(inputs), nn.ReLU()]
    return nn.Sequential(*layers, *head(inputs, classes, dims=1))


def eegnet(
    channels: int = 18, classes: int = 4, filters: int = 32, each: int = 2, dropout: float = 0.5
) -> nn.Sequential:
    """Brain waves: EEGNet, Lawhern et al. 2018, without its limits on the norm of weights.

    One kernel along time for all channels, then `each` weightings of the channels per filter.
    """
    wide = filters * each
    spatial = nn.Conv2d(filters, wide, (channels, 1), groups=filters, bias=False)
    along = nn.Conv2d(wide, wide, (1, 7), padding=(0, 3), groups=wide, bias=False)
    return nn.Sequential(
        *(nn.Unflatten(1, (1, channels)), *image(1, filters, (1, 25), then=nn.Identity)),
        *(spatial, nn.BatchNorm2d(wide), nn.ELU(), nn.AvgPool2d((1, 4)), nn.Dropout(dropout)),
        *(along, *image(wide, wide, 1, then=nn.ELU), nn.AvgPool2d((1, 8)), nn.Dropout(dropout)),
        *(nn.Flatten(), nn.Linear(wide * 3, classes)),
    )


def inception(inputs: int, filters: int) -> nn.Sequential:
    """Long, middle and short kernels behind a bottleneck, beside a maximum over neighbours."""
    kernels = (convolution_1d(filters, filters, kernel) for kernel in (39, 19, 9))
    narrow = nn.Sequential(convolution_1d(inputs, filters, 1), Beside(*kernels))
    pooled = nn.Sequential(nn.MaxPool1d(3, 1, 1), convolution_1d(inputs, filters, 1))
    return nn.Sequential(Beside(narrow, pooled), nn.BatchNorm1d(4 * filters), nn.ReLU())


def inception_time(channels: int = 18, classes: int = 4, filters: int = 16) -> nn.Sequential:
    """InceptionTime, Fawaz et al. 2020. It has no dropout: here after blocks and before the end."""
    layers, inputs, outputs = list[nn.Module](), channels, 4 * filters
    for _ in range(2):
        branch = nn.Sequential(*(inception(i, filters) for i in (inputs, outputs, outputs)))
        shortcut = series(inputs, outputs, 1, then=nn.Identity)
        layers += [Residual(branch, shortcut, nn.ReLU), nn.Dropout(0.2)]
        inputs = outputs
    return nn.Sequential(*layers, *head(outputs, classes, 0.3, dims=1))


def unet_small(classes: int = 3, width: int = 16) -> nn.Sequential:
    """U-Net, Ronneberger et al. 2015, of three levels, padded and with BatchNorm. Images.

    Dropout at the bottom as in the paper, and in the last block. Logits (n, classes, 32, 32).
    """
    same = partial(image, kernel=3)
    bottom = nn.Sequential(
        *(nn.MaxPool2d(2), *same(2 * width, 4 * width), *same(4 * width, 4 * width)),
        *(nn.Dropout(0.5), nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)),
    )
    middle = nn.Sequential(
        *(nn.MaxPool2d(2), *same(width, 2 * width), *same(2 * width, 2 * width)),
        Beside(nn.Identity(), bottom),
        *(*same(4 * width, 2 * width), *same(2 * width, 2 * width)),
        nn.ConvTranspose2d(2 * width, width, 2, 2),
    )
    return nn.Sequential(
        *(*same(1, width), *same(width, width), Beside(nn.Identity(), middle)),
        *(*same(2 * width, width), nn.Dropout(0.2), *same(width, width)),
        nn.Conv2d(width, classes, 1),
    )


def mlp(inputs: int = 64, classes: int = 10, width: int = 128) -> nn.Sequential:
    """Three hidden layers with dropout 0.5, as in Srivastava et al. 2014. Digits of 8 × 8."""
    layers = list[nn.Module]([nn.Flatten()])
    for first in (inputs, width, width):
        layers += [nn.Linear(first, width), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(width, classes))
