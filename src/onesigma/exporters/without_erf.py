"""Without Erf: for runtimes that lack the op.

    erf(x) = 1 − 2 P(z > √2 x),   erfc(x) = 2 P(z > √2 x),   gelu(x) = x P(z > −x)
with the tail probability of ``moments/tails.py``, a fraction of two polynomials times an exp.
The error of erf is below 5e-7 in float32 and below 1e-7 in float64; gelu is more accurate than
through 1 + erf, which cancels on the left. Of the moment formulas only gelu needs an erf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma.moments.tails import upper_probability

aten = torch.ops.aten
_SQRT_2 = math.sqrt(2)


def erf(x: Tensor) -> Tensor:
    """The error function to 5e-7 in float32."""
    return 1 - erfc(x)


def erfc(x: Tensor) -> Tensor:
    """1 − erf(x) without the subtraction: its tail keeps four digits and more."""
    return 2 * upper_probability(_SQRT_2 * x)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x Φ(x); the tanh form has no erf and stays as it is."""
    if approximate != "none":
        return nn.functional.gelu(x, approximate=approximate)
    return x * upper_probability(-x)


_REPLACEMENTS: dict[Any, Callable[..., Tensor]] = {
    aten.erf.default: erf,
    aten.erfc.default: erfc,
    aten.gelu.default: gelu,
}


class WithoutErf(fx.Interpreter):
    """Runs a graph with those ops replaced; to be traced, not to be deployed."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(_REPLACEMENTS.get(target, target), args, kwargs)
