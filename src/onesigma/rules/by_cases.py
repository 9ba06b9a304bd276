"""By cases: an op on values of which each element is one of two is the op on both of them.

That is exact for any op that looks at single elements, whether it has a rule or not. The engine
asks here first; ``graph/flow.py`` follows the same masks to prove it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any

import torch

from onesigma.errors import UnsupportedOp
from onesigma.rules.table import Op, Reach, Rule
from onesigma.values.gaussian import TwoValued, Uncertain, mapped, two_valued, uncertain_in

# For an op that has no rule, and here needs none.
POINTWISE = Rule(None, "elementwise", note="by cases", reach=Reach.EACH, bends=True)


def takes_cases(op: Op, rule: Rule | None, *, moved_by: bool) -> bool:
    """Whether an element of the output depends on one element of the mask.

    ``moved_by``: something after the first argument is uncertain. Of an index, that is another one.
    """
    if rule is None:
        return torch.Tag.pointwise in getattr(op, "tags", ())
    moves = rule.moves_only and not moved_by
    return not rule.adds_noise and (moves or rule.reach is Reach.EACH)


def by_cases(op: Op, rule: Rule | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The op's output, or None if its inputs are not the two values of one mask."""
    given = (args, dict(kwargs))
    found = uncertain_in(given)
    first, masks = found[0], {getattr(x, "mask", None) for x in found}
    moved_by = bool(uncertain_in((args[1:], dict(kwargs))))
    if len(masks) > 1 or not takes_cases(op, rule, moved_by=moved_by):
        return None
    if not isinstance(first, TwoValued):
        return None
    own = None
    if rule is not None and len(found) == 1 and not rule.bends:
        # A shift or a scale of one value has its own formula, which loses no digits.
        with suppress(UnsupportedOp):  # of values in general
            own = rule.apply(args, kwargs)
    if own is not None and not uncertain_in(own):
        return own
    cases = (mapped(given, attrgetter(case)) for case in ("kept", "dropped"))
    kept, dropped = (op(*arguments, **options) for arguments, options in cases)
    if isinstance(kept, list | tuple):
        parts = zip(kept, dropped, own or [None] * len(kept), strict=True)
        return [_joined(*part, first, object()) for part in parts]
    stays = (rule or POINTWISE).reach is Reach.EACH
    return _joined(kept, dropped, own, first, first.mask if stays else object())


def _joined(kept: Any, dropped: Any, own: Uncertain | None, like: TwoValued, mask: object) -> Any:
    if own is None:
        return two_valued(kept, dropped, like.rate, mask, like.mean)
    return TwoValued(own.mean, own.expanded().var, kept, dropped, like.rate, mask)
