"""The one value type: a tensor of independent normals.

A value that travels through the network is either certain, an ordinary ``Tensor``, or uncertain,
a ``Gaussian``. Nothing uncertain is ever made up: until the first dropout (or the input prior)
every value stays a ``Tensor`` and is computed by the very ops of the original network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Gaussian:
    """One normal per element, independent of the others.

    ``var`` is never negative and has the shape of ``mean``, except that its batch may be 1: the
    variance that an input prior causes is the same for every sample. It stays that small for as
    long as the layers are linear, and is then a constant that conversion computes once.
    """

    mean: Tensor
    var: Tensor

    def expanded(self) -> Gaussian:
        """The same value with ``var`` in full shape, for ops that need to see that shape."""
        var = self.var
        full = var if var.shape == self.mean.shape else var.expand_as(self.mean)
        return Gaussian(self.mean, full)

    def scaled(self, factor: Tensor | float, mean: Tensor) -> Gaussian:
        """A value with ``mean``, and ``factor`` (a constant) times this one's variance."""
        return Gaussian(mean, self.var * factor)

    def with_mean(self, mean: Tensor) -> Gaussian:
        """The same variance around another mean."""
        return Gaussian(mean, self.var)


Value: TypeAlias = Tensor | Gaussian


def broadcast(mean: Tensor, var: Tensor) -> Gaussian:
    """A Gaussian whose ``var`` may have been broadcast against something larger on the way."""
    if var.shape[1:] == mean.shape[1:] and var.dim() == mean.dim():
        return Gaussian(mean, var)
    return Gaussian(mean, var.expand_as(mean))


def gaussians_in(values: object) -> list[Gaussian]:
    """Every uncertain value in nested arguments, in order."""
    if isinstance(values, Gaussian):
        return [values]
    if isinstance(values, dict):
        values = tuple(values.values())
    if isinstance(values, list | tuple):
        return [found for value in values for found in gaussians_in(value)]
    return []
