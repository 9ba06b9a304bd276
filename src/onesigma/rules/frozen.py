"""Frozen means: the answer stays the shipped network's, and only its variance is carried along.

``keep_means`` makes every rule of a table keep the op's own output as the mean. A rule that is
cheaper that way is merged over the table first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from onesigma.rules.corrections import Correction, Share, constant
from onesigma.rules.table import ALWAYS_APPROXIMATE, Op, Reach, Rule, RuleFunction, RuleTable
from onesigma.values.factored import Factored
from onesigma.values.gaussian import Gaussian, Uncertain, means_of

aten = torch.ops.aten


def relu(x: Uncertain, *, share: Share | None = None) -> Uncertain:
    """To first order: as it is where the mean is above 0, else nothing.

    With ``share``, one number for each channel takes the place of the mask: the part of the
    variance that gets through. A variance in factors then stays in them.
    """
    mean = torch.relu(x.mean)
    if share is not None:
        return x.scaled(constant(share.channels, mean), mean)
    is_open = (x.mean > 0).to(mean.dtype)
    if not isinstance(x, Factored):
        return Gaussian(mean, x.var * is_open)
    gate = is_open if x.gate is None else x.gate * is_open
    return Factored(mean, x.scale, x.position, gate, x.square)


FROZEN: dict[Op, Rule] = {
    aten.relu.default: Rule(
        relu,
        "gate",
        frozenset({ALWAYS_APPROXIMATE}),
        "to first order",
        accepts=(Share,),
        reach=Reach.EACH,
    )
}


def keep_means(rules: RuleTable) -> RuleTable:
    """The same rules, with the mean of every result as the op itself makes it of the means."""
    return {
        op: rule
        if rule.function is None
        else replace(rule, function=_keep_mean(op, rule), two_valued=False)
        for op, rule in rules.items()
    }


def _keep_mean(op: Op, rule: Rule) -> RuleFunction:
    def apply(*args: Any, **kwargs: Any) -> Any:
        assert rule.function is not None
        value = rule.function(*args, **kwargs)
        if rule.adds_noise:  # of a dropout, the original network returns the input itself
            return _with_means(value, means_of(args[0]))
        own = {name: x for name, x in kwargs.items() if not isinstance(x, Correction)}
        means: Any = means_of((args, own))
        return _with_means(value, op(*means[0], **means[1]))

    return apply


def _with_means(value: Any, means: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_means(*each) for each in zip(value, means, strict=True)]
    return value.with_mean(means) if isinstance(value, Uncertain) else means
