"""Fold: constants are computed once, and nothing else changes."""

import torch
from torch import Tensor, fx, nn

from onesigma.graph.capture import export, plain_module
from onesigma.graph.fold import fold

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class FromSeed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seed", torch.rand(1, 4))
        self.weight = nn.Parameter(torch.rand(5, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        constant = nn.functional.linear(self.seed, self.weight * self.weight).sqrt()
        return nn.functional.linear(x, self.weight) + constant, x * (
            self.weight * self.weight
        ).sum()


def graph_of(model: nn.Module) -> fx.GraphModule:
    return plain_module(export(model, (X,), dynamic=True))


def count(graph: fx.GraphModule, op: str) -> int:
    return sum(op in str(node.target) for node in graph.graph.nodes)


def test_what_follows_from_the_seed_is_a_constant():
    model = FromSeed()
    graph = graph_of(model)
    assert fold(graph, "seed") == 2
    assert (count(graph, "aten.linear"), count(graph, "aten.sqrt")) == (1, 0)
    assert count(graph, "aten.sum") == 1  # of weights alone: left
    for ours, theirs in zip(graph(X), model(X), strict=True):
        torch.testing.assert_close(ours, theirs)
