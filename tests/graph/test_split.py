"""A graph in two parts: together they are the whole, and the first has no noise."""

import pytest
import torch
from torch import nn

from onesigma.graph.capture import is_site
from onesigma.graph.prepare import prepare
from onesigma.graph.split import cut, nodes_behind, nodes_behind_noise, split

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


class HasPlaces(Residual):
    """Something that is computed from weights alone is read behind the noise; 5 is X's batch."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(5, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.dropout(self.first(x), 0.3, self.training)
        return self.last((h + self.places.abs().sum(0)).mean(-1))


class RowsOfInstants(Residual):
    """A row for each instant and not for each input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.first(x).transpose(1, 2).reshape(-1, 4)
        h = nn.functional.dropout(rows, 0.3, self.training)
        return self.last(h.reshape(-1, 12, 4).mean(1))


def parts(model: nn.Module) -> tuple[torch.fx.GraphModule, ...]:
    graph = prepare(model.eval(), X, "classification", None).graph
    return graph, *split(graph, nodes_behind_noise(graph.graph))


@pytest.mark.parametrize("model", [Residual, AsksForTheBatch, HasPlaces, RowsOfInstants])
def test_both_parts_are_the_whole(model):
    whole, certain, noisy = parts(model())
    with torch.no_grad():
        assert torch.equal(noisy(*certain(X))[0], whole(X)[0])
    assert not any(map(is_site, certain.graph.nodes))


def test_the_first_part_does_what_no_noise_reaches():
    _, certain, noisy = parts(Residual())
    assert [len(list(p.parameters())) for p in (certain, noisy)] == [2, 4]
    assert len(certain(X)) == 1  # what both branches read crosses once


@pytest.mark.parametrize("model", [AsksForTheBatch, HasPlaces, RowsOfInstants])
def test_what_crosses_has_a_row_for_each_input(model):
    _, certain, noisy = parts(model())
    assert all(len(x) == len(X) for x in certain(X))
    assert torch.equal(certain(X)[0], X)  # it does nothing
    more = torch.cat([X, X])
    assert len(noisy(*certain(more))[0]) == len(more)


def test_weights_are_shared():
    model = Residual()
    _, certain, _ = parts(model)
    addresses = {p.data_ptr() for p in model.parameters()}
    assert all(p.data_ptr() in addresses for p in certain.parameters())


@pytest.mark.parametrize("model", [Residual(), HasPlaces()], ids=lambda m: type(m).__name__)
def test_pieces_one_after_the_other_are_the_whole(model):
    whole = prepare(model.eval(), X, "classification", None).graph
    ops = [n for n in whole.graph.nodes if n.op == "call_function"]
    parts = [nodes_behind(whole.graph, ops[k:]) for k in (1, len(ops) - 2)]
    pieces = cut(whole, parts)
    assert len(pieces) == 3
    live = (X,)
    for piece in pieces:
        assert not [n for n in piece.graph.nodes if n.op == "placeholder" and not n.users]
        live = piece(*live)
    assert torch.equal(live[0], whole(X)[0])
    weights = {id(p) for p in whole.parameters()}
    assert {id(p) for piece in pieces for p in piece.parameters()} <= weights
