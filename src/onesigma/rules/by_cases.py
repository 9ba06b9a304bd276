"""By cases: an op on values of which each element is one of two is the op on both of them.

That is exact for any op that looks at single elements, whether it has a rule or not. The engine
asks here first; ``graph/flow.py`` follows the same masks to prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from onesigma.rules.table import Op, Reach, Rule
from onesigma.values.gaussian import Uncertain
from onesigma.values.two_valued import TwoValued, two_valued, uncertain_in

NOTE = "of both values that a dropout leaves"
# Of an op that has no rule and needs none here.
POINTWISE = Rule(None, "elementwise", note=NOTE, reach=Reach.EACH, bends=True)


def takes_cases(op: Op, rule: Rule | None) -> bool:
    """Whether an element of the output depends on one element of each input."""
    if rule is None:
        return torch.Tag.pointwise in getattr(op, "tags", ())
    return not rule.adds_noise and (rule.moves_only or rule.reach is Reach.EACH)


def keeps_mask(rule: Rule) -> bool:
    """Whether an element stays at its place, so that it may meet others of the same mask."""
    return rule.reach is Reach.EACH


def by_cases(op: Op, rule: Rule | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The op's output, or None if its inputs are not the two values of one mask."""
    found = list(uncertain_in((args, dict(kwargs))))
    first = found[0]
    if not isinstance(first, TwoValued) or not takes_cases(op, rule):
        return None
    if any(not isinstance(x, TwoValued) or x.mask is not first.mask for x in found):
        return None
    kept = op(*_swap(args, _kept), **_swap(dict(kwargs), _kept))
    dropped = op(*_swap(args, _dropped), **_swap(dict(kwargs), _dropped))
    rule = rule or POINTWISE
    # A shift or a scale of one value has its own formula, which loses no digits.
    own = not rule.bends and len(found) == 1 and rule.can_be_exact(_swap(args, _nothing), kwargs)
    carried = rule.apply(args, kwargs) if own else None
    if isinstance(kept, list | tuple):
        carried = carried or [None] * len(kept)
        return [_joined(*each, first, object()) for each in zip(kept, dropped, carried, strict=True)]
    return _joined(kept, dropped, carried, first, first.mask if keeps_mask(rule) else object())


def _kept(x: TwoValued) -> Any:
    return x.kept


def _dropped(x: TwoValued) -> Any:
    return x.dropped


def _nothing(x: TwoValued) -> Any:
    return None


def _swap(values: Any, new: Callable[[TwoValued], Any]) -> Any:
    """Nested arguments with something else in the place of each that has two values."""
    if isinstance(values, list | tuple):
        return type(values)(_swap(value, new) for value in values)
    if isinstance(values, dict):
        return {key: _swap(value, new) for key, value in values.items()}
    return new(values) if isinstance(values, TwoValued) else values


def _joined(kept: Any, dropped: Any, carried: Any, like: TwoValued, mask: object) -> Any:
    if carried is None:
        return two_valued(kept, dropped, like.rate, mask, like.mean)
    if not isinstance(carried, Uncertain):  # a size
        return carried
    return TwoValued(carried.mean, carried.expanded().var, kept, dropped, like.rate, mask)
