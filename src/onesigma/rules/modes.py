"""Modes: small tables merged over the common one. A rule never asks which mode it runs in."""

from __future__ import annotations

from onesigma.rules.dropout import CLASSIC
from onesigma.rules.frozen import FROZEN
from onesigma.rules.lean import LEAN
from onesigma.rules.lowrank import LOWRANK
from onesigma.rules.table import RULES, RuleTable

DROPOUTS: dict[str, RuleTable] = {"inverted": {}, "classic": CLASSIC}
VARIANCES: dict[str, RuleTable] = {"full": {}, "lowrank": LOWRANK}
MEANS: dict[str, RuleTable] = {"matched": {}, "frozen": FROZEN}


def rules_for(
    dropout: str = "inverted", variance: str = "full", mean: str = "matched", *, lean: bool = False
) -> RuleTable:
    """The rules of a mode: the common ones, unless it has its own; ``lean`` is for export."""
    common = {**RULES, **LEAN} if lean else RULES
    # Classic dropout last: low rank knows the inverted one only, and does without for the other.
    return {**common, **VARIANCES[variance], **MEANS[mean], **DROPOUTS[dropout]}
