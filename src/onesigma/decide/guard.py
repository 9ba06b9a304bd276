"""The guard: how unlike the known inputs an input is, read off one pass. No labels.

    statistics  of each channel over its positions: mean, and the logarithms of the variance, of the
                largest squared deviation and of the mean squared step between neighbours
    contract    where each of them lies between its bounds: −1 at the lowest known, 1 at the highest
    features    statistics, squares of the means, the mean size of the outputs of the first layer
                that bends, logits. In squares a constant length can be seen, such as gravity's
    D           = min over classes of −log of a normal density: one for the inputs of each
                predicted class, with independent components along directions in which the
                features of one class are not correlated
    novelty     = sigmoid(max over lines of a − b D): the share of known inputs that are this odd

Two lines follow a heavy tail: the first passes through the 50 and 90 % quantiles of D on held-out
inputs, the second through those of 90 and 99 %. In a file that is 7 to 18 kB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from onesigma.runtime.contract import MEAN, STATISTICS, Contract, name_channels

MOST_CHANNELS = 64  # of an input with several dimensions besides time; else its first alone
_NUMBERS = 4500  # to keep of the density: 18 kB in a file at most, 7 kB with six channels
MOST_SQUARES = 20  # channels whose means are squared, too: more would take room from all else
_FEWEST = 5  # inputs of a predicted class that make a density of its own
_SHRINK = 20  # as many inputs with the average variance are added to those of each class
_TO_DIAGONAL = 0.05  # the share of a covariance that is taken as none
# An empty window's variance is this share of the least that is known, so that it stands out.
_TINY = 0.01
_RARE = 0.001  # the quantile that is "the least"
_LARGE = 1e15
_STEADY = 1e-5  # of a feature's size: what varies by less does not vary
_MARGIN = 0.3  # of the known range, beyond its ends
_LEVELS = (0.5, 0.1, 0.01)  # tail probabilities that the lines pass through


@dataclass(frozen=True)
class Layout:
    """How an input is seen as channels with positions: (rows, channels, positions).

    ``turned`` says that it comes as (rows, positions, channels).
    """

    channels: int
    positions: int
    turned: bool = False

    @staticmethod
    def of(shape: Sequence[int], names: int | None = None, time: int | None = None) -> Layout:
        """Of an input's shape without its rows.

        ``names`` is how many channels were named, ``time`` the dim of time, by default the last.
        """
        if len(shape) < 2:
            return Layout(math.prod(shape), 1)
        if time is not None and time < len(shape) - 1:
            behind = math.prod(shape[time + 1 :])
            return Layout(behind, math.prod(shape) // behind, turned=True)
        whole = math.prod(shape[:-1])
        first = names == shape[0] if names is not None else whole > MOST_CHANNELS
        channels = shape[0] if first else whole
        return Layout(channels, math.prod(shape) // channels)

    def moments(self, x: Tensor) -> list[Tensor]:
        """Means; and, where there are positions, variances, peaks and steps, these squared.

        Of the shape (rows, channels, 1), so that no op is needed to change it in between.
        """
        seen = (self.positions, self.channels) if self.turned else (self.channels, self.positions)
        rows = x if x.shape[1:] == seen else x.reshape(-1, *seen)
        rows = rows.transpose(1, 2) if self.turned else rows
        if self.positions == 1:
            return [rows]
        mean = rows.mean(2, keepdim=True)
        apart = rows - mean
        squares = apart * apart
        step = rows[:, :, 1:] - rows[:, :, :-1]
        most = squares.amax(2, keepdim=True)
        return [mean, squares.mean(2, keepdim=True), most, (step * step).mean(2, keepdim=True)]


Measured: TypeAlias = tuple[Tensor, Tensor | None, Tensor, Tensor]


class Guard(nn.Module):
    """From inputs, the output of a layer and the logits to ``contract`` and ``novelty``.

    ``layouts`` are None for inputs that are no numbers to measure, ``signed`` says whether the
    outputs of the layer can be negative. ``held_out`` is the novelty of each input that it has
    learnt from, before it had: by now they look more familiar than new ones do.
    """

    held_out: Tensor

    def __init__(
        self, layouts: Sequence[Layout | None], *, signed: bool = True, class_dim: int = 1
    ) -> None:
        super().__init__()
        self.layouts, self.signed, self.class_dim = tuple(layouts), signed, class_dim
        measured = [each for each in layouts if each is not None]
        self.channels = sum(each.channels for each in measured)
        series = all(each.positions > 1 for each in measured)
        self.statistics = STATISTICS if series else (MEAN,)
        self.squares = series and self.channels <= MOST_SQUARES
        self._mixed = not series and any(each.positions > 1 for each in measured)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        means, squares, size, logits = self.measure(*tensors)
        statistics = self.compare(means, squares)
        known = statistics[:, : len(self.get_buffer("scale"))] if self._mixed else statistics
        contract = known * self.get_buffer("scale") + self.get_buffer("shift")
        features = self._join(means, statistics, size, logits)
        white = torch.addmm(self.get_buffer("origin"), features, self.get_buffer("whiten"))
        both = torch.cat([white * white, white], 1)
        lines = torch.addmm(self.get_buffer("constants"), both, self.get_buffer("forms"))
        return contract, torch.sigmoid(lines.amax(1))

    def measure(self, *tensors: Tensor) -> Measured:
        """Means of channels, what is compared by its logarithm, size of the layer, and logits."""
        *inputs, layer, logits = tensors
        if logits.dim() > 2:  # a map of them: the average
            logits = logits.movedim(self.class_dim, 1).flatten(2).mean(2)
        pairs = zip(self.layouts, inputs, strict=True)
        seen = [each.moments(x) for each, x in pairs if each is not None]
        # Of all inputs the variances, then the peaks, then the steps.
        squares = [each[k] for k in (1, 2, 3) for each in seen if len(each) > k]
        sizes = layer.abs() if self.signed else layer
        if sizes.dim() > 2:  # channel by channel, because ONNX Runtime does that much faster
            sizes = sizes.mean(list(range(2, sizes.dim())))
        size = sizes.mean(1, keepdim=True)
        return _cat([each[0] for each in seen]), _cat(squares) if squares else None, size, logits

    def compare(self, means: Tensor, squares: Tensor | None) -> Tensor:
        """The statistics side by side."""
        if squares is None:
            return means.flatten(1)
        return torch.cat([means, (squares + self.get_buffer("tiny")).log()], 1).flatten(1)

    def _join(self, means: Tensor, statistics: Tensor, size: Tensor, logits: Tensor) -> Tensor:
        """The features; limited, so that the squares of squares stay numbers."""
        lengths = [(means * means).flatten(1)] if self.squares else []
        return torch.cat([statistics, *lengths, size, logits], 1).clamp(-_LARGE, _LARGE)

    @torch.no_grad()
    def learn(self, measured: Measured, folds: Tensor) -> tuple[Tensor, Tensor]:
        """Learn from what ``measure`` returns of known inputs; returns bounds of the statistics.

        ``folds`` has a number for each row: the tail is that of rows whose fold was left out.
        """
        means, squares, size, logits = measured
        if squares is not None:
            least = squares.quantile(_RARE, 0)
            tiny = _TINY * torch.where(least > 0, least, squares.mean(0))
            self.register_buffer("tiny", tiny.clamp(min=1e-20))
        statistics = self.compare(means, squares)
        compared = statistics[:, : self.channels * len(self.statistics)]
        low, high = _bounds(compared, self.channels)
        self.register_buffer("scale", 2 / (high - low))
        self.register_buffer("shift", -(high + low) / (high - low))
        features = self._join(means, statistics, size, logits)
        self._learn_density(features, logits.argmax(1), folds)
        return low, high

    def _learn_density(self, given: Tensor, labels: Tensor, folds: Tensor) -> None:
        features = given.double()
        parts = [folds == fold for fold in sorted({*folds.tolist()})]
        odd = torch.empty(len(features)).to(features)
        for p in parts:
            odd[p] = _Density.of(features[~p], labels[~p])(features[p])
        density, lines = _Density.of(features, labels), _tail_lines(odd)
        self.held_out = torch.stack([a - b * odd for a, b in lines]).amax(0).sigmoid().to(given)
        # −D of each class is a sum of squares, of products and a constant; so is each line.
        forms = [slope * density.forms for _, slope in lines]
        constants = [level + slope * density.constants for level, slope in lines]
        values = {
            "whiten": density.whiten,
            "origin": density.origin,
            "forms": torch.cat(forms, 1),
            "constants": torch.cat(constants),
        }
        for name, value in values.items():
            self.register_buffer(name, value.to(given))


@dataclass(frozen=True)
class _Density:
    """−D for each class as [w², w] @ forms + constants, w = features @ whiten + origin."""

    whiten: Tensor
    origin: Tensor
    forms: Tensor
    constants: Tensor

    @staticmethod
    def of(features: Tensor, labels: Tensor) -> _Density:
        mean, std = features.mean(0), features.std(0, correction=0)
        # What never varied is left to the contract: float32 could not tell its last digits.
        std = torch.where(std > _STEADY * (mean.abs() + std.mean()), std, math.inf)
        scaled = (features - mean) / std
        groups = [labels == label for label in sorted({*labels.tolist()})]
        everything = torch.ones_like(labels, dtype=torch.bool)
        groups = [rows for rows in groups if int(rows.sum()) >= _FEWEST] or [everything]
        whiten = _whitening(scaled, groups) / std.unsqueeze(1)
        origin = -mean @ whiten
        white = features @ whiten + origin
        each = [_component(white[rows], len(white)) for rows in groups]
        forms, constants = zip(*each, strict=True)
        return _Density(whiten, origin, torch.stack(forms, 1), torch.stack(constants))

    def __call__(self, features: Tensor) -> Tensor:
        """D of each row."""
        white = features @ self.whiten + self.origin
        return -(torch.cat([white * white, white], 1) @ self.forms + self.constants).amax(1)


def _whitening(scaled: Tensor, groups: Sequence[Tensor]) -> Tensor:
    """Directions in which the features of one class vary by 1 and are not correlated.

    As many as there is room for, those first that tell most: along which all inputs vary most,
    compared with those of one class.
    """
    within = torch.zeros(scaled.shape[1], scaled.shape[1]).to(scaled)
    for rows in groups:
        apart = scaled[rows] - scaled[rows].mean(0)
        within += apart.T @ apart / len(scaled)
    within = (1 - _TO_DIAGONAL) * within + _TO_DIAGONAL * within.diagonal().diag()
    sizes, directions = torch.linalg.eigh(within + 1e-6 * torch.eye(len(within)).to(scaled))
    whiten = directions / sizes.sqrt()
    kept = max(1, _NUMBERS // (len(within) + 4 * len(groups)))
    telling = (scaled @ whiten).var(0).argsort(descending=True)
    chosen: Tensor = whiten[:, telling[:kept]]
    return chosen


def _component(rows: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """The logarithm of a normal density, times its share: weights of squares and values, rest."""
    mean, count = rows.mean(0), len(rows)
    var = (count * rows.var(0, correction=0) + _SHRINK) / (count + _SHRINK)
    rest = math.log(count / total) - 0.5 * (mean * mean / var + var.log()).sum()
    return torch.cat([-0.5 / var, mean / var]), rest


def _bounds(statistics: Tensor, means: int) -> tuple[Tensor, Tensor]:
    """The least and the most that is known of each statistic, with a margin."""
    low, high = statistics.amin(0), statistics.amax(0)
    span = high - low
    margin = _MARGIN * span
    # A factor of 10 in a variance, at most; and something even where a channel never varied.
    margin[means:] = margin[means:].clamp(math.log(2), math.log(10))
    margin[:means] = margin[:means].clamp(min=float(0.02 * span[:means].mean()) + 1e-6)
    return low - margin, high + margin


def _tail_lines(odd: Tensor) -> list[tuple[float, float]]:
    """Lines a − b D, as (a, b), whose maximum is the logit of the tail probability."""
    half, tenth, hundredth = (float(odd.quantile(1 - level)) for level in _LEVELS)
    logits = [math.log(level / (1 - level)) for level in _LEVELS]
    first = (logits[0] - logits[1]) / max(tenth - half, 1e-6)
    last = (logits[1] - logits[2]) / max(hundredth - tenth, 1e-6)
    slopes = [first, last] if last < first else [last]
    return [(logits[1] + slope * tenth, slope) for slope in slopes]


def make_contract(
    guard: Guard,
    bounds: tuple[Tensor, Tensor],
    *,
    channels: Sequence[str] | None = None,
    units: Sequence[str] | None = None,
    window: int | None = None,
    rate: float | None = None,
) -> Contract:
    """The bounds in the units of the channels."""
    count, names = guard.channels, guard.statistics
    low, high = (
        {
            name: tuple(_value(name, float(bound)) for bound in side[k * count : (k + 1) * count])
            for k, name in enumerate(names)
        }
        for side in bounds
    )
    return Contract(name_channels(count, channels), low, high, tuple(units or ()), window, rate)


def _value(name: str, bound: float) -> float:
    """To four digits, as it is kept and shown."""
    return float(f"{bound if name == MEAN else math.exp(bound / 2):.4g}")


def _cat(parts: Sequence[Tensor]) -> Tensor:
    """Side by side; one alone as it is, which is an op less."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), 1)
