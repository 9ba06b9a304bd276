"""Two-valued: what dropout makes of something certain, and functions of that.

Each element is one of two known numbers, and so is any function of it: mean and variance need no
formula, and no normal distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from onesigma.values.gaussian import Gaussian


@dataclass(frozen=True, eq=False)
class TwoValued(Gaussian):
    """``dropped`` with probability ``rate``, else ``kept``. With the same ``mask``, together."""

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
        for x in (kept.to(like.dtype), dropped.to(like.dtype))
    )
    spread = (rate * (1 - rate)) ** 0.5 * (k - d)
    var = (spread * spread).clamp(max=largest)
    return TwoValued(d + (1 - rate) * (k - d), var, kept, dropped, rate, mask)
