"""The uncertainty at each node, and where it comes from, by hand on networks that allow it."""

import math

import pytest
import torch
from pages.report.small_reports import converted, inputs, residual
from torch import nn

from onesigma.pages.report.uncertainty_flow import uncertainty_flow, uncertainty_shares


def test_dropout_then_linear_by_hand() -> None:
    model = converted(nn.Sequential(nn.Dropout(0.2), nn.Linear(5, 3)), 5)
    x = inputs(5)
    given, drop, linear = uncertainty_flow(model, [x])
    size = math.sqrt(float(x.square().mean()))
    assert (given.relative, given.signal) == (0, pytest.approx(size, rel=1e-5))
    # Var of inverted dropout: x² p / (1 − p).
    assert drop.relative == pytest.approx(math.sqrt(0.25), rel=1e-5)
    weight, bias = (p.detach() for p in model.source.parameters())
    var = 0.25 * x.square() @ weight.square().T
    assert linear.spread == pytest.approx(math.sqrt(float(var.mean())), rel=1e-4)
    mean = x @ weight.T + bias
    assert linear.signal == pytest.approx(math.sqrt(float(mean.square().mean())), rel=1e-4)
    assert [stop.inputs for stop in (given, drop, linear)] == [
        (),
        (given.entry.node,),
        (drop.entry.node,),
    ]


def test_a_residual_join_has_two_inputs() -> None:
    flow = uncertainty_flow(residual(), [inputs(2, 12)])
    (join,) = [stop for stop in flow if "add" in stop.entry.op]
    assert len(join.inputs) == 2
    assert [stop.entry.status for stop in flow][:4] == ["certain", "certain", "certain", "noise"]


def test_sizes_are_not_drawn() -> None:
    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.drop(x).view(x.size(0), -1))

    ops = [stop.entry.op for stop in uncertainty_flow(converted(Viewed(), 2, 3), [inputs(2, 3)])]
    assert ops == ["input", "aten.dropout", "aten.view", "aten.linear"]


def test_a_prior_enters_at_the_input() -> None:
    model = converted(nn.Linear(5, 3), 5, input_std=0.1)
    first, _ = uncertainty_flow(model, [inputs(5)])
    assert first.entry.status == "noise"
    assert first.spread == pytest.approx(0.1, rel=1e-5)
    assert uncertainty_shares(model, inputs(5), passes=4) == {first.entry.node: 1.0}


def test_shares_by_hand() -> None:
    """Two dropouts in a row: E[x²] p/(1−p) of each alone, and a linear layer behind."""
    model = converted(nn.Sequential(nn.Dropout(0.2), nn.Dropout(0.5), nn.Linear(5, 3)), 5)
    found = list(uncertainty_shares(model, inputs(5), passes=150).values())
    assert found == pytest.approx([0.2, 0.8], abs=0.04)  # 0.25 : 1


def test_a_rate_of_zero_has_no_share() -> None:
    model = converted(nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.5), nn.Linear(5, 3)), 5)
    assert list(uncertainty_shares(model, inputs(5), passes=8).values()) == [1.0]


def test_the_last_node_is_the_answer() -> None:
    model = residual()
    x = inputs(2, 12)
    last = uncertainty_flow(model, [x])[-1]
    with torch.no_grad():
        answer = model(x)
    assert last.spread == pytest.approx(math.sqrt(float(answer.var.mean())), rel=1e-4)
    assert last.signal == pytest.approx(math.sqrt(float(answer.mean.square().mean())), rel=1e-4)
