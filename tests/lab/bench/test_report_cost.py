"""What the report is told about cost."""

import pytest
from lab.bench.small_model import SHAPE, examples, small
from torch import Tensor, nn, zeros

import onesigma
from onesigma.lab.bench.measurement import Plan
from onesigma.lab.bench.report_cost import measure_cost

QUICK = Plan(("eager",), (1,), (1,), repeats=6, seconds=0.05, processes=0)


def test_the_three_are_measured_beside_each_other() -> None:
    cost = measure_cost(small(), examples(8)[0], plan=QUICK)
    assert not isinstance(cost, str)
    names = [row.contender for row in cost.rows]
    assert names == ["plain network", "one pass", "MC dropout, 30 passes"]
    assert {row.runtime for row in cost.rows} == {"PyTorch"}
    assert cost.rows[0].ratio == pytest.approx(1)
    assert cost.rows[2].ratio > cost.rows[0].ratio
    assert all(row.median_ms > 0 and row.file_kb is None for row in cost.rows)
    assert "cores" in cost.machine


class FixedBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(x.reshape(2, 16)))


def test_what_cannot_be_timed_says_why() -> None:
    certain = onesigma.convert(nn.Linear(4, 3).eval(), zeros(2, 4), input_std=0.1)
    assert "no dropout" in measure_cost(certain, zeros(2, 4))
    fixed = onesigma.convert(FixedBatch().eval(), zeros(2, *SHAPE))
    assert "fixes its batch" in measure_cost(fixed, zeros(2, *SHAPE))
