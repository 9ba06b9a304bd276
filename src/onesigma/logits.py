"""The logits' covariance: how the outputs vary together when a linear layer makes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from onesigma.engine import Propagate, as_factor
from onesigma.graph.locate import output_of
from onesigma.rules.affine import correlated_parts
from onesigma.values.gaussian import Gaussian

# Beyond, a K × K root per sample would cost more than it tells.
MAX_CLASSES = 64
# Beyond, the covariance of the features would take calibrate too long.
MAX_FEATURES = 2048


def has_linear_logits(source: fx.GraphModule) -> bool:
    """Whether a linear layer of few enough classes makes the output."""
    output = output_of(source)
    if output.target is not torch.ops.aten.linear.default:
        return False
    logits = output.meta["val"]
    return logits.dim() == 2 and int(logits.shape[1]) <= MAX_CLASSES


def features_of_logits(source: fx.GraphModule) -> str | None:
    """The node that feeds a last linear layer, if that has few enough inputs and outputs."""
    if not has_linear_logits(source):
        return None
    features = output_of(source).args[0]
    assert isinstance(features, fx.Node)
    return features.name if int(features.meta["val"].shape[1]) <= MAX_FEATURES else None


class PropagateToLogits(Propagate):
    """The engine, which also keeps the covariance of the outputs of a last linear layer w.

        Cov[y] = w diag(v) wᵀ
    Exact for independent inputs of that layer, as its diagonal, the variance, is. Where calibrate
    has found how they are correlated, that enters too (``rules.affine.correlated_parts``).
    """

    covariance: Tensor | None = None

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        is_linear = n.target is torch.ops.aten.linear.default
        if is_linear and all(user.op == "output" for user in n.users):
            x, weight = self.env[n.args[0]], self.env[n.args[1]]  # type: ignore[index]
            if isinstance(x, Gaussian) and x.mean.dim() == 2 and len(weight) <= MAX_CLASSES:
                self.covariance = _covariance(x.expanded(), weight, **self.tuning.get(n.name, {}))
        return value


def _covariance(
    x: Gaussian, weight: Tensor, *, factors: Any = None, rate: float = 0.0, gain: Any = 1.0
) -> Tensor:
    if factors is None:
        spread = (weight * x.var.unsqueeze(1)) @ weight.transpose(0, 1)
    else:
        left, together = correlated_parts(x, weight, factors, rate)
        spread = (weight * left.unsqueeze(1)) @ weight.transpose(0, 1)
        spread = spread + together @ together.transpose(-1, -2)
    if isinstance(gain, int | float):
        return spread * gain
    root = torch.as_tensor(as_factor(gain, spread)).sqrt()
    return spread * root.unsqueeze(-1) * root
