"""Inline: nested graphs become part of the one that is walked."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onesigma
from onesigma import (
    UnsupportedOp,
)
from onesigma.graph.capture import export, is_site, plain_module
from onesigma.graph.inline import inline

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class Cond(nn.Module):
    """torch.cond after the dropout (refused) or before it (certain, and left alone)."""

    def __init__(self, after: bool) -> None:
        super().__init__()
        self.after, self.drop, self.head = after, nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.after:
            x = self.drop(x)
        x = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return self.head(x if self.after else self.drop(x))


def test_a_nested_graph_that_meets_noise_is_refused():
    with pytest.raises(UnsupportedOp, match=r"\n  cond \(cond.*no rule"):
        onesigma.convert(Cond(after=True).eval(), X)


def test_a_nested_graph_without_noise():
    model = Cond(after=False).eval()
    converted = onesigma.convert(model, X)
    for x in (X, -X):  # both branches
        torch.testing.assert_close(converted(x).mean, model(x))


class WithoutGradients(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = F.dropout(x * 2, 0.3, self.training)
        return h + 1


def test_dropout_under_no_grad_is_found():
    graph = plain_module(export(WithoutGradients().eval(), (X,), dynamic=True))
    inline(graph)
    assert any(is_site(node) for node in graph.graph.nodes)
    assert not list(graph.named_children())
    assert torch.equal(graph(X)[0], WithoutGradients().eval()(X))
