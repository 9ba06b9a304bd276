"""A small fitted network with exits, made once, and its data."""

import dataclasses
import math
from functools import cache

import pytest
import torch
from short_fit import short_fit
from torch import Tensor, nn

import onesigma
from onesigma.calibration import exits


def waves(count: int, draw: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Sines of three frequencies, with noise: the class is the frequency."""
    draw = draw or torch.Generator().manual_seed(0)  # the same, whichever test comes first
    labels = torch.randint(0, 3, (count,), generator=draw)
    start = 6.28 * torch.rand(count, 3, 1, generator=draw)
    angle = start + (1 + labels.view(-1, 1, 1)) * torch.arange(48) / 4
    return angle.sin() + 0.7 * torch.randn(count, 3, 48, generator=draw), labels


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(3, 8, 5), nn.Linear(8, 3)
        self.second, self.third = (nn.Conv1d(8, 8, 5, padding=2) for _ in range(2))
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.first(x).relu())
        h = h + self.drop(self.second(h).relu())
        h = h + self.third(h).relu()
        return self.last(self.drop(h.mean(-1)))


@cache
def ready(keep_answer: bool) -> onesigma.Converted:
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(1)
    network, (x, y) = Residual(), waves(600, draw)
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    with short_fit(ROWS=600, STEPS=60):
        return onesigma.fit(network.eval(), waves(80, draw)[0], worth=1, keep_answer=keep_answer)


@cache
def model(keep_answer: bool) -> onesigma.EarlyExit:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exits, "STEPS", 150)
        known = waves(800, torch.Generator().manual_seed(2))
        return onesigma.early_exit(ready(keep_answer), labelled=known, excess_risk=0.01)


def never(model: onesigma.EarlyExit) -> onesigma.EarlyExit:
    rule = dataclasses.replace(model.rule, threshold=-math.inf)
    return onesigma.EarlyExit(model.whole, [*model.segments], rule, model.costs)
