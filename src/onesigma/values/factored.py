"""A variance kept in factors: cheap to carry, computed in full only where an op looks at it.

    var = scale · position · gate + square · mean²

A rule that knows nothing of this reads ``var``, as of any uncertain value.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from onesigma.values.gaussian import Gaussian, Uncertain, Value

_SAFE = 0.999


@dataclass(frozen=True, eq=False)
class Factored(Uncertain):
    """An uncertain value whose variance is a product, and a share of its squared mean.

    Attributes:
        scale: constant, one number for each channel (or one for all); it broadcasts over ``mean``.
        position: one number for each sample and position, the channels' dimension being 1; or None.
        gate: one number for each element, at least 0; or None.
        square: constant: how much of mean² comes on top. It may be negative, as in E[y²] − E[y]².
    """

    mean: Tensor
    scale: Tensor | float = 1.0
    position: Tensor | None = None
    gate: Tensor | None = None
    square: float = 0.0

    @property
    def var(self) -> Tensor:
        """The variance in full."""
        product, squares = self.product, self.mean * self.mean
        if product is None or not self.square:
            return self.square * squares if product is None else self.scale * product
        if isinstance(self.scale, Tensor):
            return (self.scale * product + self.square * squares).clamp(min=0)
        share = self.square / self.scale
        total = product + share * squares
        # E[y²] − E[y]² may round to less than 0; behind a dropout, part of E[y]² is left.
        total = total if share > -_SAFE else total.clamp(min=0)
        # A number in front of it all can move into the weights of the layer that follows.
        return total if self.scale == 1 else total * self.scale

    @property
    def product(self) -> Tensor | None:
        """position · gate, of what there is."""
        if self.position is None or self.gate is None:
            return self.gate if self.position is None else self.position
        return self.position * self.gate

    def scaled(self, factor: Tensor | float, mean: Tensor) -> Uncertain:
        """In factors again, unless the squares no longer fit."""
        if self.square:
            return Gaussian(mean, self.var * factor)
        return Factored(mean, self.scale * factor, self.position, self.gate)

    def with_mean(self, mean: Tensor) -> Factored:
        """``mean`` must equal the old one where there is a share of mean²."""
        return Factored(mean, self.scale, self.position, self.gate, self.square)


@dataclass(frozen=True, eq=False)
class Flattened(Uncertain):
    """Channels and positions in one row, with the variance still in the factors of before."""

    mean: Tensor
    inside: Factored

    @property
    def var(self) -> Tensor:
        """The variance in full."""
        return self.inside.expanded().var.flatten(1)

    def scaled(self, factor: Tensor | float, mean: Tensor) -> Uncertain:
        return Gaussian(mean, self.var * factor)

    def with_mean(self, mean: Tensor) -> Flattened:
        return Flattened(mean, self.inside)


def factored(x: Value) -> Factored:
    """Any value in this form: a dense variance is its own gate; a tensor has none."""
    if isinstance(x, Factored):
        return x
    return Factored(x.mean, gate=x.var) if isinstance(x, Uncertain) else Factored(x)
