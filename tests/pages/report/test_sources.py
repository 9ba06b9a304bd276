"""Where the uncertainty comes from, by hand on networks that allow it."""

import pytest
from pages.report.small_reports import converted, inputs
from torch import nn

from onesigma.pages.report.sources import uncertainty_shares


def test_a_prior_enters_at_the_input() -> None:
    model = converted(nn.Linear(5, 3), 5, input_std=0.1)
    first = next(node for node in model.source.graph.nodes if node.op == "placeholder")
    assert uncertainty_shares(model, inputs(5), passes=4) == {first.name: 1.0}


def test_shares_by_hand() -> None:
    """Two dropouts in a row: E[x²] p/(1−p) of each alone, and a linear layer behind."""
    model = converted(nn.Sequential(nn.Dropout(0.2), nn.Dropout(0.5), nn.Linear(5, 3)), 5)
    found = list(uncertainty_shares(model, inputs(5), passes=150).values())
    assert found == pytest.approx([0.2, 0.8], abs=0.04)  # 0.25 : 1


def test_a_rate_of_zero_has_no_share() -> None:
    model = converted(nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.5), nn.Linear(5, 3)), 5)
    assert list(uncertainty_shares(model, inputs(5), passes=8).values()) == [1.0]
