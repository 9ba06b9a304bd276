"""Corrupted copies of inputs: what sensors do when they fail, and what no sensor ever saw.

Monte Carlo of the original says how unsure it is on ANY input, so shift needs no labels. A kind
takes inputs (n, channels, …, time) and a generator; one figure of it is drawn for each input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Generator, Tensor

Corruption: TypeAlias = Callable[[Tensor, Generator], Tensor]
_PIECES = 8


@dataclass(frozen=True)
class Given:
    """A user's own function, which takes inputs as they are, wherever their time lies."""

    kind: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor, g: Generator) -> Tensor:
        return self.kind(x)


def _one(x: Tensor, g: Generator) -> Tensor:
    """A number between 0 and 1 for each input."""
    return torch.rand([len(x)] + [1] * (x.dim() - 1), generator=g).to(x)


def _normal(shape: list[int], x: Tensor, g: Generator) -> Tensor:
    return torch.randn(shape, generator=g).to(x)


def _channels(x: Tensor) -> list[int]:
    return [*x.shape[:2], *[1] * (x.dim() - 2)]


def _std(x: Tensor) -> Tensor:
    """Of each channel over all inputs."""
    return x.std([d for d in range(x.dim()) if d != 1 or x.dim() == 2], keepdim=True)


def noise(x: Tensor, g: Generator) -> Tensor:
    """From a tenth to four times the size of the signal."""
    strength = 0.1 * torch.exp(_one(x, g) * math.log(40))
    return x + strength * _std(x) * _normal([*x.shape], x, g)


def gain(x: Tensor, g: Generator) -> Tensor:
    return x * torch.exp((2 * _one(x, g) - 1) * math.log(4))


def channel_gain(x: Tensor, g: Generator) -> Tensor:
    return x * (1 + 0.5 * _normal(_channels(x), x, g))


def offset(x: Tensor, g: Generator) -> Tensor:
    return x + 2 * _one(x, g) * _std(x) * _normal(_channels(x), x, g)


def walk(x: Tensor, g: Generator) -> Tensor:
    """A random walk in the place of the signal."""
    steps = _normal([*x.shape], x, g).cumsum(-1)
    return _std(x) * steps / steps.std(-1, keepdim=True).clamp(min=1e-6)


def drift(x: Tensor, g: Generator) -> Tensor:
    return x + 3 * _one(x, g) * walk(x, g)


def mixture(x: Tensor, g: Generator) -> Tensor:
    share = _one(x, g)
    return share * x + (1 - share) * x[torch.randperm(len(x), generator=g)]


def cut(x: Tensor, g: Generator) -> Tensor:
    """The first part of one input, then the rest of another."""
    where = torch.arange(x.shape[-1], device=x.device) < _one(x, g) * x.shape[-1]
    return torch.where(where, x, x[torch.randperm(len(x), generator=g)])


def dead_channels(x: Tensor, g: Generator) -> Tensor:
    """Series of zeros in the place of about four in ten."""
    return x * (torch.rand([*x.shape[:-1], 1], generator=g) > 0.4).to(x)


def swapped_channels(x: Tensor, g: Generator) -> Tensor:
    dim = 1 if x.shape[1] > 1 or x.dim() == 2 else 2
    order = torch.rand(len(x), x.shape[dim], generator=g).argsort(1).to(x.device)
    shape = [len(x)] + [x.shape[d] if d == dim else 1 for d in range(1, x.dim())]
    return x.gather(dim, order.reshape(shape).expand_as(x))


def shuffled_time(x: Tensor, g: Generator) -> Tensor:
    pieces = x.tensor_split(min(_PIECES, x.shape[-1]), -1)
    return torch.cat([pieces[i] for i in torch.randperm(len(pieces), generator=g)], -1)


def stretched_time(x: Tensor, g: Generator) -> Tensor:
    """Up to twice as fast or as slow; what is missing at the end begins again."""
    last = x.shape[-1] - 1
    if last < 1:
        return x
    speed = torch.exp((2 * _one(x, g) - 1) * math.log(2))
    where = torch.arange(last + 1, device=x.device) * speed % last
    before = where.long().expand_as(x)
    share = where - where.floor()
    return (1 - share) * x.gather(-1, before) + share * x.gather(-1, before + 1)


def other_phases(x: Tensor, g: Generator) -> Tensor:
    """The same spectrum, its phases moved by chance: a surrogate series (Theiler et al. 1992)."""
    spectrum = torch.fft.rfft(x.float())
    turn = _one(x, g) * math.pi * (2 * torch.rand(spectrum.shape, generator=g).to(x) - 1)
    turned = spectrum * torch.polar(torch.ones_like(turn), turn)
    surrogate: Tensor = torch.fft.irfft(turned, n=x.shape[-1])
    return surrogate.to(x)


def two_at_once(x: Tensor, g: Generator) -> Tensor:
    """One kind after another, other ones for every few inputs."""
    parts, kinds = [], list(FITTED_ON.values())
    for part in torch.split(x, 16):
        first, second = torch.randint(len(kinds), (2,), generator=g).tolist()
        parts.append(kinds[second](kinds[first](part, g), g))
    return torch.cat(parts)


def turned_axes(x: Tensor, g: Generator) -> Tensor:
    """Some channels with the other sign, as of a sensor that is mounted another way."""
    return x * torch.where(torch.rand(_channels(x), generator=g) < 0.5, -1.0, 1.0).to(x)


def reversed_time(x: Tensor, g: Generator) -> Tensor:
    return x.flip(-1)


def saturation(x: Tensor, g: Generator) -> Tensor:
    limit = 0.5 * _std(x)
    return torch.minimum(torch.maximum(x, -limit), limit)


def spikes(x: Tensor, g: Generator) -> Tensor:
    """One value in fifty far outside, as of a loose contact."""
    far = 8 * _std(x) * torch.where(torch.rand(x.shape, generator=g) < 0.5, -1.0, 1.0).to(x)
    return torch.where(torch.rand(x.shape, generator=g).to(x) < 0.02, far, x)


def _by_name(*kinds: Corruption) -> dict[str, Corruption]:
    return {kind.__name__.replace("_", " "): kind for kind in kinds}


# What forms are fitted on, also two at once, and what they are judged on besides clean inputs: the
# last two are never fitted on.
FITTED_ON = _by_name(
    *(noise, gain, channel_gain, offset, walk, drift, mixture, cut, dead_channels),
    *(swapped_channels, shuffled_time, stretched_time, other_phases, turned_axes, reversed_time),
)
JUDGED_ON = _by_name(noise, walk, saturation, spikes)
# The same thing happens, and the sensor is another or worse: the label holds.
LABEL_HOLDS = (noise, gain, channel_gain, offset, drift, dead_channels, stretched_time, turned_axes)
