"""The engine: walk the graph, hand each op's arguments to its rule. It knows no op.

certain in  → the op itself, untouched
anything uncertain in, or a source of noise → the op's rule

A node may have a gain, a number fitted by ``calibrate`` that its variance is multiplied by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from onesigma.errors import UnsupportedOp
from onesigma.gaussian import Gaussian, gaussians_in
from onesigma.passes.locate import describe
from onesigma.rules.table import RuleTable


class Propagate(fx.Interpreter):
    """Run a captured graph on values that are ``Tensor`` (certain) or ``Gaussian``."""

    def __init__(
        self, module: fx.GraphModule, rules: RuleTable, gains: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(module)
        self.rules = rules
        self.gains = gains or {}

    def run_node(self, n: fx.Node) -> Any:
        try:
            value = super().run_node(n)
        except UnsupportedOp as error:
            raise UnsupportedOp(f"{describe(n)}: {error}") from None
        gain = self.gains.get(n.name, 1.0)
        if gain != 1 and isinstance(value, Gaussian):
            return Gaussian(value.mean, value.var * gain)
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        rule = self.rules.get(target)
        is_source = rule is not None and rule.source
        if not is_source and not gaussians_in((args, dict(kwargs))):
            return target(*args, **kwargs)
        if rule is None or rule.refuses:
            raise UnsupportedOp("no rule. convert() lists all such ops before it starts.")
        return rule.function(*args, **kwargs)
