"""The logits' covariance: how the outputs vary together when a linear layer makes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from onesigma.gaussian import Gaussian
from onesigma.passes.locate import output_of
from onesigma.propagate import Propagate

# Beyond, a K × K root per sample would cost more than it tells.
MAX_CLASSES = 64


def has_linear_logits(source: fx.GraphModule) -> bool:
    """Whether a linear layer of few enough classes makes the output."""
    output = output_of(source)
    if output.target is not torch.ops.aten.linear.default:
        return False
    logits = output.meta["val"]
    return logits.dim() == 2 and int(logits.shape[1]) <= MAX_CLASSES


class PropagateToLogits(Propagate):
    """The engine, which also keeps the covariance of the outputs of a last linear layer w.

        Cov[y] = w diag(v) wᵀ
    Exact for independent inputs of that layer, as its diagonal, the variance, is.
    """

    covariance: Tensor | None = None

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        is_linear = n.target is torch.ops.aten.linear.default
        if is_linear and all(user.op == "output" for user in n.users):
            x, weight = self.env[n.args[0]], self.env[n.args[1]]  # type: ignore[index]
            if isinstance(x, Gaussian) and x.mean.dim() == 2 and len(weight) <= MAX_CLASSES:
                spread = (weight * x.expanded().var.unsqueeze(1)) @ weight.transpose(0, 1)
                self.covariance = spread * self.gains.get(n.name, 1.0)
        return value
