"""A graph in two parts: together they are the whole, and the first has no noise."""

import pytest
import torch
from torch import nn

from onesigma.graph.capture import is_site
from onesigma.graph.prepare import prepare
from onesigma.graph.split import nodes_behind_noise, split

X = torch.randn(5, 3, 12, generator=torch.Generator().manual_seed(0))


class Residual(nn.Module):
    """What is certain is read behind the noise, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv1d(3, 4, 3, padding=1), nn.Conv1d(4, 4, 3, padding=1)
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x).relu()
        h = h + self.second(nn.functional.dropout(h, 0.3, self.training))
        return self.last(h.mean(-1))


class AsksForTheBatch(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.dropout(self.first(x), 0.3, self.training)
        return self.last(h.reshape(x.shape[0], 4, 12).mean(-1))


def parts(model: nn.Module) -> tuple[torch.fx.GraphModule, ...]:
    graph = prepare(model.eval(), X, "classification", None).graph
    return graph, *split(graph, nodes_behind_noise(graph.graph))


@pytest.mark.parametrize("model", [Residual, AsksForTheBatch])
def test_both_parts_are_the_whole(model):
    whole, certain, noisy = parts(model())
    with torch.no_grad():
        assert torch.equal(noisy(*certain(X))[0], whole(X)[0])
    assert not any(map(is_site, certain.graph.nodes))


def test_the_first_part_does_what_no_noise_reaches():
    _, certain, noisy = parts(Residual())
    assert [len(list(p.parameters())) for p in (certain, noisy)] == [2, 4]
    assert len(certain(X)) == 1  # what both branches read crosses once


def test_weights_are_shared():
    model = Residual()
    _, certain, _ = parts(model)
    addresses = {p.data_ptr() for p in model.parameters()}
    assert all(p.data_ptr() in addresses for p in certain.parameters())
