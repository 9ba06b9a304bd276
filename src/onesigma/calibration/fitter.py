"""Fit what the diagonal cannot know: how much noise elements share, layer by layer, in order.

    linear layer   a gain per channel, and how much of what a dropout before it let through is
                   shared: Var[y] = w² (inherited · old part + fresh · the masks' own part) · gain
    maximum        the correlation of its members, from the mean it should have
    sum            the correlation of its two branches, from the variance it should have
    last layer     how its inputs are correlated, in a few factors

Each against the mean or variance over Monte-Carlo passes, averaged over inputs and positions, with
everything before it already corrected. All of it is constant: at run time a gain is part of the
squared weights, the rest part of a formula that is there anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.calibration.observation import Moments, RunningCovariance
from onesigma.converted import Converted
from onesigma.engine import Propagate
from onesigma.graph.scale import WEIGHTS_BY_OUTPUT
from onesigma.rules.affine import before_dropout
from onesigma.rules.dropout import RATE_ARGUMENT
from onesigma.rules.table import RULES, Rule
from onesigma.values.factored import Factored
from onesigma.values.gaussian import Gaussian

FAMILIES = {"linear", "product", "maximum", "sum"}

_CORRELATIONS = [step / 20 for step in range(20)] + [0.97, 0.99]
_FACTORS = 16
_LEAST = 0.05  # a part of a variance does not vanish; below this the fit followed noise


class Tuner(Propagate):
    """One run of the engine that, at each layer, first corrects the value, then goes on."""

    def __init__(
        self,
        converted: Converted,
        targets: Mapping[str, Moments],
        together: Mapping[str, RunningCovariance],
    ) -> None:
        super().__init__(converted.source, **converted.settings.engine())
        self.targets = targets
        self.together = together  # the inputs of a last layer
        self.found: dict[str, dict[str, Any]] = {}
        self.tuning = self.found  # what is found counts at once; what was tuned before does not
        self.garbage_collect_values = False  # a layer may have to be run again

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Factored) and self._rule(n).family == "gate":
            self.found[n.name] = {"share": _share_let_through(value)}
            return super().run_node(n)
        target = self.targets.get(n.name)
        if target is None or not isinstance(value, Gaussian):
            return value
        family = self._rule(n).family
        if family not in FAMILIES:
            return value
        if family == "maximum":
            self._fit_maximum(n, target.mean)
        elif family == "sum":
            self._fit_sum(n, target.var)
        else:
            if not self._fit_factors(n):
                self._fit_parts(n, target.var)
            self._fit_gain(n, target.var)
        return super().run_node(n)

    def _rule(self, n: fx.Node) -> Rule:
        return self.rules[n.target]  # type: ignore[index]

    def _fit_maximum(self, n: fx.Node, wanted: Tensor) -> None:
        def distance(correlation: float) -> float:
            self.found[n.name] = {"correlation": correlation}
            return float((super(Tuner, self).run_node(n).mean - wanted).square().mean())

        best = min(_CORRELATIONS, key=distance)
        self.found[n.name] = {"correlation": best}

    def _fit_sum(self, n: fx.Node, wanted: Tensor) -> None:
        """The variance is linear in the correlation: two runs tell the slope."""
        branches = [self.env[a] for a in n.args if isinstance(a, fx.Node)]
        if sum(isinstance(b, Gaussian) for b in branches) < 2 or branches[0] is branches[1]:
            return
        apart, full = (self._mean_var(n, {"correlation": c}) for c in (0.0, 1.0))
        if full != apart:
            correlation = (float(wanted.mean()) - apart) / (full - apart)
            self.found[n.name] = {"correlation": min(max(correlation, -1.0), 1.0)}

    def _fit_parts(self, n: fx.Node, wanted: Tensor) -> None:
        """Of a dropout right before the layer: the share of old and of fresh noise."""
        chain = _from_dropout(n, self.rules)
        if chain is None:
            return
        site = chain[0]
        if not isinstance(self.env[site.args[0]], Gaussian):  # type: ignore[index]
            return  # all of it is fresh: a gain does
        old = self._along(chain, {"inherited": 1.0, "fresh": 0.0})
        own = self._along(chain, {"inherited": 0.0, "fresh": 1.0})
        if self._rule(site).shared:
            inherited, fresh = _two_parts(old, own, wanted)
        else:  # masks of single elements are independent: their part is right as it is
            inherited, fresh = float(_ratio((wanted - own).mean(), old.mean())), 1.0
        self.found[site.name] = {"inherited": max(inherited, _LEAST), "fresh": max(fresh, _LEAST)}
        self._along(chain, self.found[site.name])

    def _fit_factors(self, n: fx.Node) -> bool:
        """The largest eigenvectors of the correlation of a last layer's inputs, less its diagonal.

        In units of the std that is carried, so what that is off by is repaired, too.
        """
        source = n.args[0]
        if not isinstance(source, fx.Node) or source.name not in self.together:
            return False
        observed = self.together[source.name]
        rate = _rate_before(n, self.rules)
        std = before_dropout(self.env[source].expanded(), rate).double().sqrt()
        scale = std.transpose(0, 1) @ std
        correlation = _ratio(observed.covariance, scale, otherwise=0.0).clamp(-2, 2)
        correlation.fill_diagonal_(0)
        values, vectors = torch.linalg.eigh(correlation)
        # Independent elements, too, seem correlated in few passes: up to this eigenvalue.
        share = len(values) / (observed.rows * (observed.count - 1))
        strong = values[-_FACTORS:] > 2 * math.sqrt(share) + share
        if not bool(strong.any()):
            return False
        factors = (vectors[:, -_FACTORS:] * values[-_FACTORS:].sqrt())[:, strong]
        rows = [[round(f, 5) for f in row] for row in factors.tolist()]
        self.found[n.name] = {"factors": rows, "rate": rate}
        return True

    def _fit_gain(self, n: fx.Node, wanted: Tensor) -> None:
        carried = super().run_node(n).expanded().var.double()
        if n.target in WEIGHTS_BY_OUTPUT:
            channel = WEIGHTS_BY_OUTPUT[n.target] % carried.dim()
            rest = [d for d in range(carried.dim()) if d != channel]
            shape = [-1] + [1] * (carried.dim() - 1 - channel)
            gain = _ratio(wanted.mean(rest), carried.mean(rest)).reshape(shape)
        else:
            gain = _ratio(wanted.mean(), carried.mean())
        self.found[n.name] = {**self.found.get(n.name, {}), "gain": gain.tolist()}

    def _mean_var(self, n: fx.Node, options: dict[str, Any]) -> float:
        self.found[n.name] = options
        var = super().run_node(n).expanded().var.double().mean()
        del self.found[n.name]
        return float(var)

    def _along(self, chain: list[fx.Node], options: dict[str, Any]) -> Tensor:
        """Run a dropout with these options, and all up to the layer again; the layer's variance."""
        self.found[chain[0].name] = options
        for node in chain:
            self.env[node] = super().run_node(node)
        var: Tensor = self.env[chain[-1]].expanded().var.double()
        return var


def _share_let_through(value: Factored) -> list[Any]:
    """For each channel, the part of the variance that a gate let through, over inputs and places.

    One number for each channel keeps a variance in factors, which a mask does not.
    """
    gate = torch.ones_like(value.mean) if value.gate is None else value.gate
    weight = 1.0 if value.position is None else value.position
    rest = [d for d in range(gate.dim()) if d != 1]
    let_through, all_of_it = (gate * weight).mean(rest), (torch.ones_like(gate) * weight).mean(rest)
    shape = [-1] + [1] * (gate.dim() - 2)
    share: list[Any] = _ratio(let_through, all_of_it, otherwise=0.0).reshape(shape).tolist()
    return share


def _from_dropout(layer: fx.Node, rules: Mapping[Any, Rule]) -> list[fx.Node] | None:
    """The nodes from a dropout to ``layer``, if only moves lie between and nothing else looks."""
    chain = [layer]
    while True:
        before = chain[0].args[0]
        if not isinstance(before, fx.Node) or len(before.users) > 1:
            return None
        rule = rules.get(before.target)
        if rule is None or rule.family not in ("dropout", "passthrough"):
            return None
        chain.insert(0, before)
        if rule.family == "dropout":
            return chain


def _rate_before(layer: fx.Node, rules: Mapping[Any, Rule]) -> float:
    """The rate of an inverted dropout of single elements right before; 0 if there is none."""
    chain = _from_dropout(layer, rules)
    if chain is None or rules[chain[0].target] is not RULES[torch.ops.aten.dropout.default]:
        return 0.0
    return float(chain[0].args[RATE_ARGUMENT])  # type: ignore[arg-type]


def _two_parts(old: Tensor, own: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Least squares: wanted ≈ inherited · old + fresh · own."""
    columns = torch.stack([old.flatten(), own.flatten()], 1)
    inherited, fresh = torch.linalg.lstsq(columns, wanted.flatten()).solution.tolist()
    return inherited, fresh


def _ratio(wanted: Tensor, carried: Tensor, otherwise: float = 1.0) -> Tensor:
    sound = (wanted != 0) & (carried > 0)
    return torch.where(sound, wanted / torch.where(sound, carried, 1.0), otherwise)
