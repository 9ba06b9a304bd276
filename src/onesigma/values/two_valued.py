"""Two-valued: what dropout makes of something certain, and any function of that, element by element.

Each element is one of two known numbers, so a function of it is one of two known numbers, too: its
mean and variance need no formula and no normal distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from onesigma.values.gaussian import Gaussian, Uncertain


@dataclass(frozen=True, eq=False)
class TwoValued(Gaussian):
    """``dropped`` with probability ``rate``, else ``kept``; to other rules, its mean and variance.

    ``mask`` stands for the draws: two values with the same mask are kept and dropped together.
    """

    kept: Tensor
    dropped: Tensor
    rate: float
    mask: object


def two_valued(kept: Tensor, dropped: Tensor, rate: float, mask: object, like: Tensor) -> TwoValued:
    """The moments, in the dtype of ``like``: a comparison has a mean, too.

        E[y] = d + q (k − d),   Var[y] = p q (k − d)²
    A value that is not finite (log 0) counts as a very large one; the variance saturates.
    """
    largest = torch.finfo(like.dtype).max
    far = largest / 4
    first, second = (
        torch.where(x.abs() <= far, x, far) for x in (kept.to(like.dtype), dropped.to(like.dtype))
    )
    gap = first - second
    spread = (rate * (1 - rate)) ** 0.5 * gap
    var = (spread * spread).clamp(max=largest)
    return TwoValued(second + (1 - rate) * gap, var, kept, dropped, rate, mask)


def uncertain_in(values: object) -> Iterator[Uncertain]:
    """The uncertain values in nested arguments, one that is there twice listed twice."""
    if isinstance(values, dict):
        values = tuple(values.values())
    if isinstance(values, list | tuple):
        for value in values:
            yield from uncertain_in(value)
    elif isinstance(values, Uncertain):
        yield values
