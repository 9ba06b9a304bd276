"""The engine: walk the graph, hand each op's arguments to its rule. It knows no op and no mode.

certain in  → the op itself, untouched
one of two values in → the op itself on both, where it looks at single elements
anything else uncertain in, or an op that adds noise → the op's rule

Corrections (found by ``calibrate``) belong to a node, and its rule applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import fx

from onesigma.errors import UnsupportedOp
from onesigma.graph.locate import describe
from onesigma.rules.by_cases import by_cases
from onesigma.rules.corrections import Corrections
from onesigma.rules.table import RuleTable
from onesigma.values.gaussian import uncertain_in

# Called around each node: it gets the engine, the node and a function that computes the node's
# value, and returns the value to go on with. Whoever wants to look, to go on after a refusal, or
# to try another correction first, does it here.
Observer: TypeAlias = Callable[["Engine", fx.Node, Callable[[], Any]], Any]


def watching(see: Callable[[fx.Node, Any], object]) -> Observer:
    """An observer that changes nothing, and shows each node with its value."""

    def observe(engine: Engine, node: fx.Node, compute: Callable[[], Any]) -> Any:
        value = compute()
        see(node, value)
        return value

    return observe


class Engine(fx.Interpreter):
    """Run a captured graph on values that are a ``Tensor`` (certain) or ``Uncertain``."""

    def __init__(
        self,
        module: fx.GraphModule,
        rules: RuleTable,
        corrections: Corrections | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(module)
        self.rules = rules
        self.corrections: Corrections = {} if corrections is None else corrections
        self.observer = observer

    def run_node(self, n: fx.Node) -> Any:
        if self.observer is None:
            return self.compute(n)
        return self.observer(self, n, lambda: self.compute(n))

    def compute(self, node: fx.Node) -> Any:
        """The value of a node, from those already in ``env``."""
        self._node = node
        try:
            return super().run_node(node)
        except UnsupportedOp as error:
            raise UnsupportedOp(f"{describe(node)}: {error}") from None

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        rule = self.rules.get(target)
        adds_noise = rule is not None and rule.adds_noise
        if not adds_noise and not uncertain_in((args, dict(kwargs))):
            return target(*args, **kwargs)
        value = None if adds_noise else by_cases(target, rule, args, kwargs)
        if value is not None:
            return value
        if rule is None:
            raise UnsupportedOp("no rule yet; add one: rules/README.md")
        return rule.apply(args, kwargs, self.corrections.get(self._node.name, ()))
