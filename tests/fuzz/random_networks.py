"""Random small networks of supported ops, as a hypothesis strategy.

Any network here converts: what is drawn is a list of layers that fit each other, for features (n,),
signals (channels, time) or images (channels, height, width), ending in a linear layer to CLASSES.
A failure shrinks towards fewer and plainer layers, and ``repr`` of the network tells how to build
it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

CLASSES = 3
SHAPES = ((6,), (3, 8), (2, 6, 6))
RATES = (0.5, 0.2, 0.1)
# Closed forms first: failures shrink to them, and smooth ones take seconds to convert.
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh, nn.ELU, nn.Tanh, nn.GELU, nn.SiLU)

Shape = tuple[int, ...]


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Both(nn.Module):
    """f(x) and g(x) side by side."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.other(x)], dim=1)


class Turned(nn.Module):
    """The last dimensions in the other order."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(-1, -2)


def of_rank(one: type, two: type, three: type, shape: Shape) -> type:
    return (one, two, three)[len(shape) - 1]


def mixing(draw: st.DrawFn, shape: Shape) -> nn.Module:
    """A linear layer or a convolution with options."""
    width = draw(st.sampled_from([4, 2, 6]))
    if len(shape) == 1:
        return nn.Linear(shape[0], width, bias=draw(st.booleans()))
    options = {
        "stride": draw(st.sampled_from([1, 2])),
        "padding": draw(st.sampled_from([1, 0])),
        "groups": shape[0] if width % shape[0] == 0 and draw(st.booleans()) else 1,
    }
    kernel = draw(st.sampled_from([n for n in (1, 2, 3) if n <= min(shape[1:])]))
    return of_rank(nn.Linear, nn.Conv1d, nn.Conv2d, shape)(shape[0], width, kernel, **options)


def same_shape(draw: st.DrawFn, shape: Shape) -> nn.Module:
    if len(shape) == 1:
        return nn.Linear(shape[0], shape[0])
    return of_rank(nn.Linear, nn.Conv1d, nn.Conv2d, shape)(shape[0], shape[0], 3, padding=1)


def activation(draw: st.DrawFn, shape: Shape) -> nn.Module:
    return draw(st.sampled_from(ACTIVATIONS))()


def dropout(draw: st.DrawFn, shape: Shape) -> nn.Module:
    whole = len(shape) > 1 and draw(st.booleans())
    kind = of_rank(nn.Dropout, nn.Dropout1d, nn.Dropout2d, shape) if whole else nn.Dropout
    return kind(draw(st.sampled_from(RATES)))


def batch_norm(draw: st.DrawFn, shape: Shape) -> nn.Module:
    return of_rank(nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, shape)(shape[0])


def norm(draw: st.DrawFn, shape: Shape) -> nn.Module:
    if draw(st.booleans()):
        return nn.LayerNorm(shape[-1]) if len(shape) == 1 else nn.GroupNorm(1, shape[0])
    return batch_norm(draw, shape)


def average(draw: st.DrawFn, shape: Shape) -> nn.Module:
    return pooled(nn.AvgPool1d, nn.AvgPool2d, shape)


def pool(draw: st.DrawFn, shape: Shape) -> nn.Module:
    return (
        average(draw, shape) if draw(st.booleans()) else pooled(nn.MaxPool1d, nn.MaxPool2d, shape)
    )


def pooled(one: type, two: type, shape: Shape) -> nn.Module:
    if len(shape) == 1 or min(shape[1:]) < 2:
        return nn.Identity()
    return (one, two)[len(shape) - 2](2)


def residual(draw: st.DrawFn, shape: Shape) -> nn.Module:
    return Residual(nn.Sequential(same_shape(draw, shape), activation(draw, shape)))


def side_by_side(draw: st.DrawFn, shape: Shape) -> nn.Module:
    return Both(same_shape(draw, shape), draw(st.sampled_from([nn.Identity(), nn.ReLU()])))


def reshaped(draw: st.DrawFn, shape: Shape) -> nn.Module:
    if len(shape) == 1:
        return nn.Unflatten(1, (1, shape[0]))
    return draw(st.sampled_from([nn.Flatten(), Turned()]))


LAYERS: tuple[Callable[[st.DrawFn, Shape], nn.Module], ...] = (
    *(dropout, mixing, activation, mixing, activation, dropout),
    *(norm, pool, residual, side_by_side, reshaped),
)


@st.composite
def networks(draw: st.DrawFn, most: int = 6) -> tuple[nn.Sequential, Shape]:
    """A network with dropout, in eval mode, and the shape of a sample."""
    shape = sample = draw(st.sampled_from(SHAPES))
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, most))):
        layer = draw(st.sampled_from(LAYERS))(draw, shape)
        # Nobody trains with one dropout after another, and what is left then is far from normal.
        if not (layers and all(is_dropout(each) for each in (layer, layers[-1]))):
            layers.append(layer)
            shape = shape_after(layer, shape)
    if not any(map(is_dropout, layers)):
        layers.append(dropout(draw, shape))
    return finished(draw, layers, shape), sample


def is_dropout(layer: nn.Module) -> bool:
    return isinstance(layer, nn.modules.dropout._DropoutNd)


def finished(draw: st.DrawFn, layers: list[nn.Module], shape: Shape) -> nn.Sequential:
    """With a linear layer at the end, and weights of a trained size, in eval mode."""
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(math.prod(shape), CLASSES))
    return settled(model, draw(st.integers(0, 99))).eval()


def shape_after(layer: nn.Module, shape: Shape) -> Shape:
    with torch.no_grad():
        return tuple(layer.eval()(torch.zeros(2, *shape)).shape[1:])


def settled(model: nn.Sequential, seed: int) -> nn.Sequential:
    """Weights drawn from the seed; statistics of BatchNorm that are not the initial ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / fan_in**0.5)
        for norm in model.modules():
            if isinstance(norm, nn.modules.batchnorm._BatchNorm):
                norm.running_mean.copy_(torch.randn(norm.num_features, generator=generator))
                norm.running_var.copy_(torch.rand(norm.num_features, generator=generator) + 0.5)
    return model


def inputs(shape: Shape, batch: int = 5) -> Tensor:
    return torch.randn(batch, *shape, generator=torch.Generator().manual_seed(1))
