"""The rules, by kind of op. Importing this package fills the table; see README.md to add one."""

from onesigma.rules import activation as activation
from onesigma.rules import affine as affine
from onesigma.rules import arithmetic as arithmetic
from onesigma.rules import dropout as dropout
from onesigma.rules import norm as norm
from onesigma.rules import pool as pool
from onesigma.rules import refused as refused
from onesigma.rules import shape as shape
from onesigma.rules import softmax as softmax
from onesigma.rules.dropout import rules_for as rules_for
from onesigma.rules.table import RULES as RULES
from onesigma.rules.table import Assumption as Assumption
from onesigma.rules.table import Rule as Rule
from onesigma.rules.table import RuleTable as RuleTable
from onesigma.rules.table import rule as rule
