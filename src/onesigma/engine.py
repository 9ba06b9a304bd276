"""The engine: walk the graph, hand each op's arguments to its rule. It knows no op.

certain in  → the op itself, untouched
anything uncertain in, or a source of noise → the op's rule

With ``keep_means`` (frozen), the mean of every value is what the op itself makes of the means.

A node may have been tuned (by ``calibrate``): a ``gain`` multiplies its variance, anything else is
handed to its rule as an option.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from onesigma.errors import UnsupportedOp
from onesigma.graph.locate import describe
from onesigma.rules.table import RuleTable
from onesigma.values.gaussian import Gaussian, gaussians_in

# By node name: option → a number, or a nested list of them that broadcasts over the value.
Tuning: TypeAlias = Mapping[str, Mapping[str, Any]]


class Propagate(fx.Interpreter):
    """Run a captured graph on values that are ``Tensor`` (certain) or ``Gaussian``."""

    def __init__(
        self,
        module: fx.GraphModule,
        rules: RuleTable,
        tuning: Tuning | None = None,
        *,
        keep_means: bool = False,
    ) -> None:
        super().__init__(module)
        self.rules = rules
        self.keep_means = keep_means
        self.tuning = tuning or {}

    def run_node(self, n: fx.Node) -> Any:
        self.options = dict(self.tuning.get(n.name, {}))
        gain = self.options.pop("gain", None)
        try:
            value = super().run_node(n)
        except UnsupportedOp as error:
            raise UnsupportedOp(f"{describe(n)}: {error}") from None
        if gain is not None and isinstance(value, Gaussian):
            return value.scaled(as_factor(gain, value.mean), value.mean)
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        rule = self.rules.get(target)
        is_source = rule is not None and rule.source
        if not is_source and not gaussians_in((args, dict(kwargs))):
            return target(*args, **kwargs)
        if rule is None:
            raise UnsupportedOp("no rule yet; add one: rules/README.md")
        if rule.refuses:
            raise UnsupportedOp(rule.note)
        value = rule.function(*args, **kwargs, **self.options)
        if not self.keep_means:
            return value
        # Of a source of noise (dropout), the original network returns the input itself.
        kept = _means(args[0]) if is_source else target(*_means(args), **_means(dict(kwargs)))
        return _with_means(value, kept)


def as_factor(number: Any, like: Tensor) -> Tensor | float:
    """A tuned number as what it multiplies: a float stays one, and can move into weights."""
    if isinstance(number, int | float):
        return float(number)
    return torch.tensor(number, dtype=like.dtype, device=like.device)


def _with_means(value: Any, means: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_means(*each) for each in zip(value, means, strict=True)]
    return value.with_mean(means) if isinstance(value, Gaussian) else means


class Rehearse(Propagate):
    """A trial run that notes every refusal and goes on, so that all can be told at once."""

    def __init__(self, module: fx.GraphModule, rules: RuleTable) -> None:
        super().__init__(module, rules)
        self.refusals: list[str] = []

    def run_node(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except UnsupportedOp as refusal:
            self.refusals.append(str(refusal))
            args, kwargs = (_means(part) for part in self.fetch_args_kwargs_from_env(n))
            return _as_if_uncertain(n.target(*args, **kwargs))  # type: ignore[operator]


def _means(values: Any) -> Any:
    if isinstance(values, list | tuple):
        return type(values)(_means(value) for value in values)
    if isinstance(values, dict):
        return {key: _means(value) for key, value in values.items()}
    return values.mean if isinstance(values, Gaussian) else values


def _as_if_uncertain(output: Any) -> Any:
    """What follows a refused op is uncertain too, and its own refusals are to be heard."""
    if isinstance(output, list | tuple):
        return [_as_if_uncertain(value) for value in output]
    if isinstance(output, Tensor) and output.is_floating_point():
        return Gaussian(output, torch.zeros_like(output))
    return output
