"""Forms: small tables merged over the common one. A rule never asks which form it runs in."""

from __future__ import annotations

from onesigma.rules.dropout import CLASSIC
from onesigma.rules.table import RULES, RuleTable

DROPOUTS: dict[str, RuleTable] = {"inverted": {}, "classic": CLASSIC}


def rules_for(dropout: str = "inverted") -> RuleTable:
    """The common rules, with those of the form in their place where it has its own."""
    return {**RULES, **DROPOUTS[dropout]}
