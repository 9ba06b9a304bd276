"""Uncertain values, and the plainest of them: a tensor of independent normals.

A value that travels through the network is a ``Tensor``, which is certain, or ``Uncertain``. Until
the first dropout (or the input prior) every value stays a ``Tensor`` and is computed by the very
ops of the original network. No zero-variance value is ever made up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor


class Uncertain(ABC):
    """A mean, a variance that is never negative, and what rules and the head ask of them."""

    if TYPE_CHECKING:
        # For the type checker only: a dataclass would take an inherited property for a default.
        @property
        def mean(self) -> Tensor: ...

        @property
        def var(self) -> Tensor: ...

    @abstractmethod
    def scaled(self, factor: Tensor | float, mean: Tensor) -> Uncertain:
        """A value with ``mean``, and ``factor`` (a constant) times this one's variance."""

    def expanded(self) -> Gaussian:
        """Independent normals with ``var`` in full shape, for ops that need to see that shape."""
        var = self.var
        full = var if var.shape == self.mean.shape else var.expand_as(self.mean)
        return Gaussian(self.mean, full)

    def sample(self, draws: Tensor, class_dim: int) -> Tensor:
        """One sample for each of the standard-normal ``draws`` (S, K), shape (…, S, K)."""
        value = self.expanded()
        mean, std = (t.movedim(class_dim, -1).unsqueeze(-2) for t in (value.mean, value.var.sqrt()))
        return mean + std * draws


@dataclass(frozen=True, eq=False)
class Gaussian(Uncertain):
    """One normal per element, independent of the others.

    ``var`` is never negative and has the shape of ``mean``, except that its batch may be 1: the
    variance that an input prior causes is the same for every sample. It stays that small while
    the layers are linear, and is then a constant that conversion computes once.
    """

    mean: Tensor
    var: Tensor

    def scaled(self, factor: Tensor | float, mean: Tensor) -> Gaussian:
        return Gaussian(mean, self.var * factor)


@dataclass(frozen=True, eq=False)
class TwoValued(Gaussian):
    """``dropped`` with probability ``rate``, else ``kept``; with the same ``mask``, together.

    What dropout makes of something certain: each element is one of two known numbers, and so is
    any function of it. Mean and variance then need no formula, and no normal distribution.
    """

    kept: Tensor
    dropped: Tensor
    rate: float
    mask: object


def two_valued(kept: Tensor, dropped: Tensor, rate: float, mask: object, like: Tensor) -> TwoValued:
    """With its moments, d + q (k − d) and p q (k − d)², in the dtype of ``like`` (bool has a mean).

    A value that is not finite (log 0) counts as a very large one; the variance saturates.
    """
    largest = torch.finfo(like.dtype).max
    k, d = (
        torch.where(x.abs() <= largest / 4, x, largest / 4)
        for x in (x if x.is_floating_point() else x.to(like.dtype) for x in (kept, dropped))
    )
    spread = (rate * (1 - rate)) ** 0.5 * (k - d)
    var = (spread * spread).clamp(max=largest)
    return TwoValued(d + (1 - rate) * (k - d), var, kept, dropped, rate, mask)


Value: TypeAlias = Tensor | Uncertain


def broadcast(mean: Tensor, var: Tensor) -> Gaussian:
    """A Gaussian whose ``var`` may have been broadcast against something larger on the way."""
    if var.shape[1:] == mean.shape[1:] and var.dim() == mean.dim():
        return Gaussian(mean, var)
    return Gaussian(mean, var.expand_as(mean))


def mapped(values: Any, new: Callable[[Uncertain], object]) -> Any:
    """Nested arguments with ``new(x)`` in the place of each uncertain x."""
    if isinstance(values, list | tuple):
        return type(values)(mapped(value, new) for value in values)
    if isinstance(values, dict):
        return {key: mapped(value, new) for key, value in values.items()}
    return new(values) if isinstance(values, Uncertain) else values


def uncertain_in(values: object) -> list[Uncertain]:
    """The uncertain values in nested arguments, one that is there twice listed twice."""
    found: list[Uncertain] = []
    mapped(values, found.append)
    return found
