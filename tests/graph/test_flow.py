"""Flow: "exact" is said where it is proved, and nowhere else."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onesigma

X = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))


class Then(nn.Module):
    """Dropout, a function, and a layer whose rule is exact for elements that share no noise."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        with torch.no_grad():
            self.layer = nn.Linear(function(X).flatten(1).shape[1], 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.function(F.dropout(x, 0.4, self.training)).flatten(1))


def status(function) -> str:
    """What the report says of the last layer."""
    report = onesigma.convert(Then(function).eval(), X, task="regression").report
    return report.entries[-1].status


PROVED = {
    "nothing": lambda h: h,
    "reshape": lambda h: h.reshape(len(h), 6, 4).transpose(1, 2),
    "slice": lambda h: h[:, 1:, ::2],
    "flip": lambda h: h.flip(2),
    "zero pad": lambda h: F.pad(h, (1, 1)),
    "scale and shift": lambda h: 2 * h - 1,
    "times a certain vector": lambda h: h * torch.arange(1.0, 7.0),
    "the same twice": lambda h: h + h,
    "mean": lambda h: h.mean(2),
    "pool without overlap": lambda h: F.avg_pool1d(h, 2),
    "a function of each element": lambda h: (h.relu() + 1).log().round(),
    "a value and functions of it": lambda h: torch.where(h > 0.5, h * h.sigmoid(), -h),
    "a function of a moved value": lambda h: h.transpose(1, 2).flip(2).sin(),
    "another dropout": lambda h: F.dropout(h, 0.2, False),
    "with a certain part": lambda h: torch.cat([h, torch.ones(len(h), 4, 1)], 2),
}
NOT_PROVED = {
    "expand": lambda h: h[:, :, :1].expand(-1, -1, 6),
    "broadcast by a sum": lambda h: h[:, :1] + torch.zeros(4, 6),
    "repeat": lambda h: h.repeat(1, 2, 1),
    "reflect pad": lambda h: F.pad(h, (2, 2), mode="reflect"),
    "index with repeats": lambda h: h[:, torch.tensor([0, 0, 1])],
    "cat with itself": lambda h: torch.cat([h, h], 1),
    "overlapping pool": lambda h: F.avg_pool1d(h, 3, 1),
    "residual": lambda h: h + h.flip(1),
    "a value and a function of it, moved": lambda h: h * h.flip(2).sigmoid(),
    "parts of one value": lambda h: torch.mul(*h.chunk(2, 1)).relu(),
    "a function of a layer": lambda h: (h @ torch.ones(6, 2)).relu(),
    "a function of two dropouts": lambda h: (h * F.dropout(h, 0.2, False)).relu(),
    "product with itself": lambda h: torch.bmm(h, h.transpose(1, 2)),
}


@pytest.mark.parametrize("name", PROVED)
def test_exact_where_it_is_proved(name):
    assert status(PROVED[name]) == "exact"


@pytest.mark.parametrize("name", NOT_PROVED)
def test_approximate_where_it_is_not(name):
    assert status(NOT_PROVED[name]) == "approximate"


def test_a_rule_of_ones_own_proves_nothing_unless_it_says_so():
    assert onesigma.rules.Rule(None, "own").reach is onesigma.rules.table.Reach.MIXES
