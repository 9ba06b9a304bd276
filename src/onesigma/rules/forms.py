"""Forms: small tables merged over the common one. A rule never asks which form it runs in."""

from __future__ import annotations

from onesigma.rules.dropout import CLASSIC
from onesigma.rules.frozen import FROZEN, keep_means
from onesigma.rules.lowrank import LOWRANK
from onesigma.rules.table import RULES, RuleTable

DROPOUTS: dict[str, RuleTable] = {"inverted": {}, "classic": CLASSIC}
VARIANCES: dict[str, RuleTable] = {"full": {}, "lowrank": LOWRANK}
MEANS: dict[str, RuleTable] = {"matched": {}, "frozen": FROZEN}


def rules_for(
    dropout: str = "inverted", variance: str = "full", mean: str = "matched"
) -> RuleTable:
    """The common rules, with those of the form in their place where it has its own."""
    # Classic dropout last: low rank knows the inverted one only, and does without the other.
    rules = {**RULES, **VARIANCES[variance], **MEANS[mean], **DROPOUTS[dropout]}
    return keep_means(rules) if mean == "frozen" else rules
