"""Dropout: where the uncertainty comes from.

``p`` is the probability to DROP, as in PyTorch; q = 1 − p. (The paper's p is our q.)
A rate of 0 adds nothing, and a certain input then stays certain.

The variance that leaves has two parts: what came in, and the masks' own. Elements share the first
and not the second, so a layer that sums them needs the first inflated. ``calibrate`` finds by how
much (``Parts``).
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from onesigma.rules.arithmetic import mean_of, var_of
from onesigma.rules.corrections import Parts
from onesigma.rules.table import RULES, Reach, RuleOptions, RuleTable, rule
from onesigma.values.gaussian import Gaussian, TwoValued, Uncertain, Value

aten = torch.ops.aten

# The value a dropped unit takes in alpha dropout, the limit of SELU for x → −∞.
_ALPHA_DROPPED = -1.7580993408473766
# Every dropout op of torch takes (input, p, train).
RATE_ARGUMENT = 1
UNCORRECTED = Parts(1.0, 1.0)
_WHOLE_CHANNELS = "a channel's elements drop together; sums over them spread more than carried"


def _made(x: Value, mean: Tensor, var: Tensor, kept: Tensor, dropped: float, p: float) -> Gaussian:
    """The moments; of something certain, also which two values there are."""
    if isinstance(x, Uncertain):
        return Gaussian(mean, var)
    return TwoValued(mean, var, kept, torch.full_like(kept, dropped), p, mask=object())


def _masked(var: Tensor | float, away: Tensor, p: float, parts: Parts) -> Tensor:
    """q·v + p·(v + away²), the two parts of v + p·away²; ``away`` from the value when dropped."""
    own = parts.fresh * p * away * away
    share = parts.inherited * (1 - p) + parts.fresh * p
    return own + var if share == 1 else own + share * var


_EACH: RuleOptions = {
    "family": "dropout",
    "reach": Reach.EACH,
    "adds_noise": True,
    "two_valued": True,
    "accepts": (Parts,),
}


@rule(aten.dropout.default, **_EACH)
def dropout(x: Value, p: float, train: bool, *, parts: Parts = UNCORRECTED) -> Value:
    """Inverted dropout, y = x z / q with z ~ Bernoulli(q): PyTorch, Keras, ONNX.

        E[y] = m,   Var[y] = (v + p m²) / q
    Exact (equations 10 and 11 of the paper, divided by q and q²). p → 0 gives x itself.
    """
    if p == 0:
        return x
    mean, var = mean_of(x), var_of(x)
    if p == 1:  # everything is dropped, with certainty
        return torch.zeros_like(mean)
    return _made(x, mean, _masked(var, mean, p, parts) / (1 - p), mean / (1 - p), 0.0, p)


@rule(aten.alpha_dropout.default, **_EACH)
def alpha_dropout(x: Value, p: float, train: bool, *, parts: Parts = UNCORRECTED) -> Value:
    """Alpha dropout, y = a (x z + α' (1 − z)) + b, which keeps mean 0 and variance 1 (SELU nets).

        a = (q + α'² q p)^−½,   b = −a p α'
        E[y] = a q m,   Var[y] = a² q (v + p (m − α')²)
    Klambauer et al. 2017. Exact. The mean is NOT the eval network's, because eval skips a and b.
    """
    if p == 0:
        return x
    mean, var = mean_of(x), var_of(x)
    if p == 1:
        return torch.zeros_like(mean)
    q = 1 - p
    a = 1 / math.sqrt(q + _ALPHA_DROPPED**2 * q * p)
    b = -a * p * _ALPHA_DROPPED
    out_var = a * a * q * _masked(var, mean - _ALPHA_DROPPED, p, parts)
    return _made(x, a * q * mean, out_var, a * mean + b, a * _ALPHA_DROPPED + b, p)


# Whole channels (Dropout1d/2d/3d): each element by itself is as above.
_CHANNELS: RuleOptions = {**_EACH, "reach": Reach.COPIES, "note": _WHOLE_CHANNELS}
rule(aten.feature_dropout.default, **_CHANNELS)(dropout)
rule(aten.feature_alpha_dropout.default, **_CHANNELS)(alpha_dropout)


def classic_dropout(x: Value, p: float, train: bool, *, parts: Parts = UNCORRECTED) -> Value:
    """Classic dropout, y = x z with z ~ Bernoulli(q): no scaling in training, as in the paper.

        E[y] = q m,   Var[y] = q (v + m²) − q² m² = q (v + p m²)
    Exact (equations 10 and 11 of the paper).
    """
    if p == 0:
        return x
    mean, var = mean_of(x), var_of(x)
    q = 1 - p
    return _made(x, q * mean, q * _masked(var, mean, p, parts), mean, 0.0, p)


# For networks trained with classic dropout: merged over the common table. A rule never asks.
CLASSIC: RuleTable = {
    aten.dropout.default: replace(RULES[aten.dropout.default], function=classic_dropout)
}
DROPOUTS: dict[str, RuleTable] = {"inverted": {}, "classic": CLASSIC}


def rules_for(dropout: str = "inverted") -> RuleTable:
    """The common rules, with those of the kind of dropout in their place where it has its own."""
    return {**RULES, **DROPOUTS[dropout]}
