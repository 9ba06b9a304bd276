"""A zoo of small real architectures, trained for a moment, for the tests of whole networks.

Each is a few thousand weights, seeded, and trained for a second on made-up classes so that its
logits are not degenerate and its BatchNorm statistics are not the initial ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onesigma
from onesigma import Converted

torch.set_num_threads(1)

CLASSES = 4


class PaperCnn(nn.Module):
    """Four conv layers and a linear one, dropout 0.5 before each but the first, as in the paper."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, stride=2), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Dropout(0.5), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(16 * 25, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.features(x).flatten(1)))


class Residual(nn.Module):
    """Two residual blocks with BatchNorm and a projection shortcut."""

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outputs)
            self.drop = nn.Dropout(0.3)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outputs)
            same = inputs == outputs and stride == 1
            self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

        def forward(self, x: Tensor) -> Tensor:
            y = self.drop(F.relu(self.norm1(self.conv1(x))))
            return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.block1 = self.Block(8, 8, 1)
        self.block2 = self.Block(8, 16, 2)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block2(self.block1(F.relu(self.stem(x))))
        return self.head(x.mean((2, 3)))


class Separable(nn.Module):
    """Depthwise-separable blocks with BatchNorm and ReLU6, as in MobileNet."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
                nn.BatchNorm2d(inputs),
                nn.ReLU6(),
                nn.Conv2d(inputs, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU6(),
                nn.Dropout(0.2),
            )

        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(block(8, 16, 2), block(16, 24, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))


class Tcn(nn.Module):
    """A temporal conv network: dilated convs, causal padding, residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(3, 16, 1)
        self.convs = nn.ModuleList(nn.Conv1d(16, 16, 3, dilation=d) for d in (1, 2, 4))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv in self.convs:
            past = F.pad(x, (2 * conv.dilation[0], 0))
            x = x + self.drop(F.leaky_relu(conv(past), 0.1))
        return self.head(x[:, :, -1])


class Vgg(nn.Module):
    """Conv, ReLU, max-pool; dropout between stages and in the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        )
        self.classifier = nn.Sequential(
            *(nn.Flatten(), nn.Linear(16 * 9, 32), nn.ReLU(), nn.Dropout(0.5)),
            nn.Linear(32, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


def mlp() -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.5)),
        nn.Linear(32, CLASSES),
    )


class UNet(nn.Module):
    """Down, up with bilinear and nearest upsampling, skips by concatenation; a label per pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(3, 8, 3, padding=1)
        self.down2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.bottom = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.drop = nn.Dropout(0.3)
        self.up2 = nn.Conv2d(32, 8, 3, padding=1)
        self.up1 = nn.Conv2d(16, 8, 3, padding=1)
        self.bilinear = nn.Upsample(scale_factor=2, mode="bilinear")
        self.nearest = nn.Upsample(scale_factor=2, mode="nearest")
        self.head = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.down1(x))
        b = self.drop(F.relu(self.down2(a)))
        c = self.drop(F.relu(self.bottom(b)))
        up = F.relu(self.up2(torch.cat([self.bilinear(c), b], 1)))
        up = F.relu(self.up1(torch.cat([self.nearest(up), a], 1)))
        return self.head(self.drop(up))


class Functional(nn.Module):
    """No dropout modules at all: F.dropout(x, p, self.training)."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.4
        self.conv1 = nn.Conv1d(3, 16, 5)
        self.conv2 = nn.Conv1d(16, 16, 5, stride=2)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.elu(self.conv1(x)), self.p, self.training)
        x = F.dropout(F.softplus(self.conv2(x)), p=self.p, training=self.training)
        return self.head(F.adaptive_avg_pool1d(x, 1).squeeze(-1))


class InPlace(nn.Module):
    """In-place ReLU, dropout and addition."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(3, 16, 3, padding=1)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.3, inplace=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.drop(self.stem(x)))
        y = self.conv(x)
        y += x
        y = self.relu(self.drop(y))
        y = y.mean(-1)
        y *= 2
        return self.head(y)


class Reused(nn.Module):
    """The same Linear and the same Dropout, called three times over."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(12, 24)
        self.layer = nn.Linear(24, 24)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(F.relu(self.stem(x)))
        for _ in range(2):
            x = self.drop(F.relu(self.layer(x)))
        return self.head(x)


def norm_after_dropout() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv1d(3, 16, 5), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(16)),
        *(nn.Conv1d(16, 16, 5, stride=2), nn.BatchNorm1d(16), nn.Hardswish(), nn.Dropout(0.3)),
        *(nn.AvgPool1d(3), nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, CLASSES)),
    )


class Mixer(nn.Module):
    """Token and channel mixing with LayerNorm, GELU and SiLU; no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.embed = nn.Linear(3, 16)
        self.tokens = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Dropout(0.2))
        self.back = nn.Linear(16, 32)
        self.channels = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Dropout(0.2))
        self.out = nn.Linear(32, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.transpose(1, 2))
        x = x + self.back(self.tokens(self.norm1(x).transpose(1, 2))).transpose(1, 2)
        x = x + self.out(self.channels(self.norm2(x)))
        return self.head(x.mean(1))


def self_normalising() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((12, 32), (32, 32)):
        layer = nn.Linear(inputs, outputs)
        nn.init.normal_(layer.weight, std=inputs**-0.5)
        layers += [layer, nn.SELU(), nn.AlphaDropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(32, CLASSES))


def channel_dropout() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Dropout2d(0.3)),
        *(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.3)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES)),
    )


class FrozenTrunk(nn.Module):
    """A trunk under torch.no_grad(), dropout inside it, and a trained head."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Sequential(nn.Linear(32, 16), nn.Sigmoid(), nn.Dropout(0.2))
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.trunk(x)
        return self.last(self.head(x))


def ends_in_log_softmax() -> nn.Module:
    return nn.Sequential(mlp(), nn.LogSoftmax(1))


class EndsInSoftmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = norm_after_dropout()

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(self.net(x), dim=-1)


class Decoder(nn.Module):
    """From a code to a signal by transposed convs: a regression."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(8, 16 * 4)
        self.drop = nn.Dropout(0.2)
        self.up1 = nn.ConvTranspose1d(16, 8, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose1d(8, 2, 4, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(F.relu(self.start(x))).view(-1, 16, 4)
        return self.up2(self.drop(F.relu(self.up1(x))))


class TwoInputs(nn.Module):
    """A signal and some features, each with its own branch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 16, 5, stride=2)
        self.dense = nn.Linear(12, 16)
        self.drop = nn.Dropout(0.4)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, signal: Tensor, features: Tensor) -> Tensor:
        a = self.drop(F.relu(self.conv(signal))).amax(-1)
        b = self.drop(F.relu(self.dense(features)))
        return self.head(torch.cat([a, b], dim=1))


@dataclass(frozen=True)
class Net:
    """One entry of the zoo: how to build it, the shapes of a sample, how many dropout calls."""

    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    sites: int
    kind: str = "classes"  # or "pixels" (dense labels), "regression"
    ends_in: str = ""

    @property
    def task(self) -> str:
        return "regression" if self.kind == "regression" else "classification"


_IMAGE, _SIGNAL, _FEATURES = (3, 12, 12), (3, 32), (12,)

ZOO = {
    net.name: net
    for net in (
        Net("paper_cnn", PaperCnn, (_IMAGE,), 4),
        Net("residual", Residual, (_IMAGE,), 2),
        Net("separable", Separable, (_IMAGE,), 2),
        Net("tcn", Tcn, (_SIGNAL,), 3),
        Net("vgg", Vgg, (_IMAGE,), 3),
        Net("mlp", mlp, (_FEATURES,), 2),
        Net("unet", UNet, (_IMAGE,), 3, kind="pixels"),
        Net("functional", Functional, (_SIGNAL,), 2),
        Net("in_place", InPlace, (_SIGNAL,), 2),
        Net("reused", Reused, (_FEATURES,), 3),
        Net("norm_after_dropout", norm_after_dropout, (_SIGNAL,), 2),
        Net("mixer", Mixer, (_SIGNAL,), 2),
        Net("self_normalising", self_normalising, (_FEATURES,), 2),
        Net("channel_dropout", channel_dropout, (_IMAGE,), 2),
        Net("frozen_trunk", FrozenTrunk, (_FEATURES,), 2),
        Net("ends_in_log_softmax", ends_in_log_softmax, (_FEATURES,), 2, ends_in="log_softmax"),
        Net("ends_in_softmax", EndsInSoftmax, (_SIGNAL,), 2, ends_in="softmax"),
        Net("decoder", Decoder, ((8,),), 2, kind="regression"),
        Net("two_inputs", TwoInputs, (_SIGNAL, _FEATURES), 2),
    )
}


# As parameters of tests: all of one network on the same worker, which trains and converts it once.
# Each network on one worker, so that it is converted once; a quick look takes a few of them.
QUICK = ("mlp", "paper_cnn", "residual", "vgg", "two_inputs")
NAMES = [
    pytest.param(
        name,
        marks=[pytest.mark.xdist_group(name), *([] if name in QUICK else [pytest.mark.long])],
    )
    for name in ZOO
]


@cache
@torch.enable_grad()  # whoever asks first may be under no_grad
def trained(name: str) -> nn.Module:
    """The network after a moment of training, in eval mode. Shared: do not change it."""
    net = ZOO[name]
    torch.manual_seed(0)
    model = net.build().train()
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for step in range(80):
        inputs, target = _batch(net, 32, seed=step, noise=1.0)
        optimiser.zero_grad()
        _loss(net, model(*inputs), target).backward()
        optimiser.step()
    return model.eval()


@cache
def converted(name: str) -> Converted:
    """The network converted with the defaults. Shared: do not change it."""
    return onesigma.convert(trained(name), inputs_for(name, 4), task=ZOO[name].task)


def inputs_for(name: str, batch: int) -> tuple[Tensor, ...]:
    """Test inputs, noisier than those of the training, so that some answers are in uncertainty."""
    return _batch(ZOO[name], batch, seed=1000, noise=2.0)[0]


def fresh_copy(name: str) -> nn.Module:
    """A trained network to do with as one likes."""
    model = ZOO[name].build()
    model.load_state_dict(trained(name).state_dict())
    return model.eval()


def without_dropout(name: str) -> nn.Module:
    """A trained network with all its rates set to 0."""
    model = fresh_copy(name)
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    return model


def _batch(net: Net, batch: int, seed: int, noise: float) -> tuple[tuple[Tensor, ...], Tensor]:
    fixed = torch.Generator().manual_seed(7)
    generator = torch.Generator().manual_seed(seed)
    if net.kind == "regression":
        code = torch.randn(batch, *net.shapes[0], generator=generator)
        mixing = torch.randn(*net.shapes[0], 2 * 16, generator=fixed)
        return (code,), torch.tanh(code @ mixing).reshape(batch, 2, 16)
    if net.kind == "pixels":
        x = torch.randn(batch, *net.shapes[0], generator=generator)
        smooth = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return (x,), smooth.argmax(1)
    labels = torch.randint(CLASSES, (batch,), generator=generator)
    inputs = []
    for shape in net.shapes:
        patterns = torch.randn(CLASSES, *shape, generator=fixed)
        clean = patterns[labels]
        inputs.append(clean + noise * torch.randn(clean.shape, generator=generator))
    return tuple(inputs), labels


def _loss(net: Net, out: Tensor, target: Tensor) -> Tensor:
    if net.kind == "regression":
        return F.mse_loss(out, target)
    if net.ends_in == "softmax":
        return F.nll_loss(out.clamp(min=1e-6).log(), target)
    return F.cross_entropy(out, target)  # log_softmax twice is log_softmax
