"""Fit what the diagonal cannot know: how much noise elements share, layer by layer, in order.

    linear layer   a gain per channel, and how much of what a dropout before it let through is
                   shared: Var[y] = w² (inherited · old part + fresh · the masks' own part) · gain
    maximum        the correlation of its members, from the mean it should have
    sum            the correlation of its two branches, from the variance it should have
    last layer     how its inputs are correlated, in a few factors

Each against the mean or variance over Monte-Carlo passes, averaged over inputs and positions, with
everything before it already corrected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from onesigma.calibration.observation import RunningCovariance
from onesigma.converted import Converted, with_prior
from onesigma.engine import Engine
from onesigma.graph.capture import rate_of
from onesigma.graph.scale import WEIGHTS_BY_OUTPUT
from onesigma.rules.affine import before_dropout
from onesigma.rules.corrections import (
    Correction,
    Factors,
    Gain,
    MaximumCorrelation,
    Parts,
    SumCorrelation,
)
from onesigma.rules.table import RULES, Reach, Rule, RuleTable
from onesigma.values.gaussian import Gaussian, Uncertain

_CORRELATIONS = [step / 20 for step in range(20)] + [0.97, 0.99]
_FACTORS = 16
_LEAST = 0.05  # a part of a variance does not vanish; below this the fit followed noise


class Fitter:
    """Observes one run of the engine and, at each layer, corrects the value before it goes on."""

    def __init__(
        self,
        converted: Converted,
        targets: Mapping[str, Gaussian],
        covariances: Mapping[str, RunningCovariance],
    ) -> None:
        self.targets = targets
        self.covariances = covariances  # of the inputs of a last layer
        self.found: dict[str, tuple[Correction, ...]] = {}
        # What is found counts at once; what was corrected before does not.
        self.engine = Engine(converted.source, converted.settings.rules, self.found, self.correct)
        self.engine.garbage_collect_values = False  # a layer may have to be run again
        self.input_var = converted.input_var

    def run(self, inputs: Sequence[Tensor]) -> dict[str, tuple[Correction, ...]]:
        """The corrections of all nodes, from inputs that ``targets`` belong to."""
        self.engine.run(*with_prior(inputs, self.input_var))
        return self.found

    def correct(self, engine: Engine, node: fx.Node, compute: Callable[[], Any]) -> Any:
        """The value of a node with the corrections that its rule accepts."""
        value = compute()
        rule = engine.rules.get(node.target)
        if rule is None or not isinstance(value, Uncertain):
            return value
        if node.name not in self.targets:
            return value
        for kind in rule.accepts:
            if kind in _FITS:
                _FITS[kind](self, node, self.targets[node.name])
        return compute()

    def fit_maximum(self, node: fx.Node, target: Gaussian) -> None:
        def distance(correlation: float) -> float:
            value = self._try(node, MaximumCorrelation(correlation))
            return float((value.mean - target.mean).square().mean())

        self.found[node.name] = (MaximumCorrelation(min(_CORRELATIONS, key=distance)),)

    def fit_sum(self, node: fx.Node, target: Gaussian) -> None:
        """The variance is linear in the correlation: two runs tell the slope."""
        branches = [self.engine.env[a] for a in node.args if isinstance(a, fx.Node)]
        if sum(isinstance(b, Uncertain) for b in branches) < 2 or branches[0] is branches[1]:
            return
        apart, full = (
            float(self._try(node, SumCorrelation(c)).expanded().var.double().mean())
            for c in (0.0, 1.0)
        )
        if full != apart:
            correlation = (float(target.var.mean()) - apart) / (full - apart)
            self.found[node.name] = (SumCorrelation(min(max(correlation, -1.0), 1.0)),)

    def fit_factors(self, node: fx.Node, target: Gaussian) -> None:
        """The largest eigenvectors of the correlation of a last layer's inputs, less its diagonal.

        In units of the std that is carried, so that what that is off by is repaired, too.
        """
        source = node.args[0]
        if not isinstance(source, fx.Node) or source.name not in self.covariances:
            return
        observed = self.covariances[source.name]
        rate = _rate_before(node, self.engine.rules)
        std = before_dropout(self.engine.env[source].expanded(), rate).double().sqrt()
        scale = std.transpose(0, 1) @ std
        correlation = _ratio(observed.covariance, scale, otherwise=0.0).clamp(-2, 2)
        correlation.fill_diagonal_(0)
        values, vectors = torch.linalg.eigh(correlation)
        # Independent elements, too, seem correlated in few passes: up to this eigenvalue.
        share = len(values) / (observed.rows * (observed.count - 1))
        strong = values[-_FACTORS:] > 2 * math.sqrt(share) + share
        if bool(strong.any()):
            loadings = (vectors[:, -_FACTORS:] * values[-_FACTORS:].sqrt())[:, strong]
            self.found[node.name] = (Factors(loadings.double().round(decimals=5), rate),)

    def fit_gain(self, node: fx.Node, target: Gaussian) -> None:
        """What is left after the other corrections: for each channel, or one for all."""
        if node.name not in self.found:
            self._fit_parts(node, target.var)
        carried, wanted = self.engine.compute(node).expanded().var.double(), target.var
        if node.target in WEIGHTS_BY_OUTPUT:
            channel = WEIGHTS_BY_OUTPUT[node.target] % carried.dim()
            rest = [d for d in range(carried.dim()) if d != channel]
            shape = [-1] + [1] * (carried.dim() - 1 - channel)
            factor: float | Tensor = _ratio(wanted.mean(rest), carried.mean(rest)).reshape(shape)
        else:
            factor = float(_ratio(wanted.mean(), carried.mean()))
        self.found[node.name] = (*self.found.get(node.name, ()), Gain(factor))

    def _fit_parts(self, node: fx.Node, wanted: Tensor) -> None:
        """Of a dropout right before the layer: the share of old and of fresh noise."""
        chain = _from_dropout(node, self.engine.rules)
        if chain is None:
            return
        site = chain[0]
        if not isinstance(self.engine.env[site.args[0]], Uncertain):  # type: ignore[index]
            return  # all of it is fresh: a gain does
        old, own = self._along(chain, Parts(1.0, 0.0)), self._along(chain, Parts(0.0, 1.0))
        if self.engine.rules[site.target].reach is Reach.COPIES:
            inherited, fresh = _two_parts(old, own, wanted)
        else:  # masks of single elements are independent: their part is right as it is
            inherited, fresh = float(_ratio((wanted - own).mean(), old.mean())), 1.0
        self._along(chain, Parts(max(inherited, _LEAST), max(fresh, _LEAST)))

    def _try(self, node: fx.Node, correction: Correction) -> Uncertain:
        """The node's value with this correction, which is only tried."""
        self.found[node.name] = (correction,)
        value: Uncertain = self.engine.compute(node)
        del self.found[node.name]
        return value

    def _along(self, chain: list[fx.Node], parts: Parts) -> Tensor:
        """Run a dropout with these parts, and all up to the layer again; the layer's variance."""
        self.found[chain[0].name] = (parts,)
        for node in chain:
            self.engine.env[node] = self.engine.compute(node)
        var: Tensor = self.engine.env[chain[-1]].expanded().var.double()
        return var


_Fit: TypeAlias = Callable[[Fitter, fx.Node, Gaussian], None]
_FITS: dict[type[Correction], _Fit] = {
    Factors: Fitter.fit_factors,
    Gain: Fitter.fit_gain,
    MaximumCorrelation: Fitter.fit_maximum,
    SumCorrelation: Fitter.fit_sum,
}


def is_fitted(rule: Rule) -> bool:
    """Whether Monte Carlo is watched at nodes of this rule, to correct them."""
    return any(kind in _FITS for kind in rule.accepts)


def _from_dropout(layer: fx.Node, rules: RuleTable) -> list[fx.Node] | None:
    """The nodes from a dropout to ``layer``, if only moves lie between and nothing else looks."""
    chain = [layer]
    while True:
        before = chain[0].args[0]
        if not isinstance(before, fx.Node) or len(before.users) > 1:
            return None
        rule = rules.get(before.target)
        if rule is None or not (rule.adds_noise or rule.moves_only):
            return None
        chain.insert(0, before)
        if rule.adds_noise:
            return chain


def _rate_before(layer: fx.Node, rules: RuleTable) -> float:
    """The rate of an inverted dropout of single elements right before; 0 if there is none."""
    chain = _from_dropout(layer, rules)
    dropout = torch.ops.aten.dropout.default
    if chain is None or chain[0].target is not dropout or rules[dropout] is not RULES[dropout]:
        return 0.0
    return rate_of(chain[0])


def _two_parts(old: Tensor, own: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Least squares: wanted ≈ inherited · old + fresh · own."""
    columns = torch.stack([old.flatten(), own.flatten()], 1)
    inherited, fresh = torch.linalg.lstsq(columns, wanted.flatten()).solution.tolist()
    return inherited, fresh


def _ratio(wanted: Tensor, carried: Tensor, otherwise: float = 1.0) -> Tensor:
    sound = (wanted != 0) & (carried > 0)
    return torch.where(sound, wanted / torch.where(sound, carried, 1.0), otherwise)
