"""The rules, by kind of op. Importing this package fills the table; see README.md to add one."""

from onesigma.rules import (
    activation,
    affine,
    arithmetic,
    dropout,
    norm,
    pool,
    refused,
    resize,
    shape,
)
from onesigma.rules.forms import rules_for
from onesigma.rules.table import RULES, Assumption, Rule, RuleTable, rule

__all__ = [
    "RULES",
    "Assumption",
    "Rule",
    "RuleTable",
    "activation",
    "affine",
    "arithmetic",
    "dropout",
    "norm",
    "pool",
    "refused",
    "resize",
    "rule",
    "rules_for",
    "shape",
]
