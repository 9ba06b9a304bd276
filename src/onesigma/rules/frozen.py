"""Frozen means: the answer stays the shipped network's, and only its variance is carried along.

The engine then keeps each op's own output as the mean, whatever a rule returns. Rules that are
cheaper that way are here, merged over the others.
"""

from __future__ import annotations

from typing import Any

import torch

from onesigma.rules.table import ALWAYS_APPROXIMATE, Op, Rule
from onesigma.values.factored import Factored
from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten


def relu(x: Gaussian, *, share: Any = None) -> Gaussian:
    """To first order: as it is where the mean is above 0, else nothing.

    With ``share`` (fitted by calibrate), one number for each channel takes the place of the mask:
    the part of the variance that gets through. A variance in factors then stays in them.
    """
    mean = torch.relu(x.mean)
    if share is not None:
        return x.scaled(torch.tensor(share, dtype=mean.dtype, device=mean.device), mean)
    open_ = (x.mean > 0).to(mean.dtype)
    if not isinstance(x, Factored):
        return Gaussian(mean, x.var * open_)
    gate = open_ if x.gate is None else x.gate * open_
    return Factored(mean, x.scale, x.position, gate, x.square)


FROZEN: dict[Op, Rule] = {
    aten.relu.default: Rule(relu, "gate", frozenset({ALWAYS_APPROXIMATE}), "to first order")
}
