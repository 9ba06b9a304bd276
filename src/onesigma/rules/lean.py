"""Lean forms for exported graphs: fewest nodes, right to float32 at the scale of the layer.

The common rules keep their digits in the far tails; an ONNX runtime has no use for those, but pays
for each node. Merged over the other tables at export, and checked against PyTorch there.
"""

from __future__ import annotations

import math

import torch

from onesigma.rules.lowrank import LOWRANK
from onesigma.rules.table import NORMAL, Op, Rule
from onesigma.values.factored import Factored
from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten


def relu(x: Gaussian) -> Gaussian:
    """The rectifier of a normal by its first two moments, with u = m / (s √2):

    2 E[y] = m (1 + erf u) + s √(2/π) exp(−u²),   E[y²] = m E[y] + v (1 + erf u) / 2
    """
    doubled = (2 * x.var).clamp(min=1e-30)
    std = torch.sqrt(doubled)
    u = x.mean / std
    side = torch.erf(u) + 1
    # Divided by exp(u²), not times exp(−u²): one op less, and ∞ gives the 0 that is due.
    bump = std / torch.exp(u * u)
    mean = 0.5 * (x.mean * side + bump * (1 / math.sqrt(math.pi)))
    second = x.mean * mean + 0.25 * (doubled * side)
    return Factored(mean, gate=second, square=-1.0)


# The ops that gain; dropout only hands on what they leave.
SHORTENED: frozenset[Op] = frozenset({aten.relu.default})
LEAN: dict[Op, Rule] = {
    aten.relu.default: Rule(relu, "elementwise", frozenset({NORMAL}), "closed form"),
    aten.dropout.default: LOWRANK[aten.dropout.default],
}
