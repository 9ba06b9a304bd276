"""Small models and their findings, made once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import onesigma
from onesigma.converted import Converted
from onesigma.lab.bench.measurement import Plan
from onesigma.pages.report import cost
from onesigma.pages.report.gather import Findings, gather

HOSTILE = "<img src=x onerror=alert(1)>"
NAMES = ("walk", HOSTILE, "run & jump")
COUNT, PASSES = 60, 40
UNTIMED = "not timed in this test"
# In place of the real one, which takes seconds.
QUICK = Plan(("eager",), (1,), (1,), repeats=6, seconds=0.05, processes=0)


class Residual(nn.Module):
    """Two channels in; the second block goes around its dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(2, 6, 3, padding=1)
        self.inner, self.drop = nn.Conv1d(6, 6, 3, padding=1), nn.Dropout(0.3)
        self.out, self.head = nn.Dropout(0.5), nn.Linear(6 * 12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = (x + self.inner(self.drop(x))).relu()
        return self.head(self.out(x.flatten(1)))


def inputs(*shape: int, count: int = COUNT) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1))


def converted(model: nn.Module, *shape: int, **options: Any) -> Converted:
    return onesigma.convert(model.eval(), inputs(*shape)[:2], **options)


def seeded(make: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


@cache
def residual() -> Converted:
    return converted(seeded(Residual), 2, 12)


def labels() -> Tensor:
    """Mostly what the model says, so that right and wrong answers both occur."""
    with torch.no_grad():
        said = residual()(inputs(2, 12)).label
    return torch.where(torch.arange(COUNT) % 4 == 0, (said + 1) % 3, said)


def found(model: Converted, x: Tensor, truth: Tensor | None = None, **options: Any) -> Findings:
    """Without timing."""
    measure = cost.measure
    cost.measure = lambda *_, **__: UNTIMED  # type: ignore[assignment]
    try:
        return gather("m.safetensors", model, x, truth, passes=PASSES, **options)
    finally:
        cost.measure = measure


@cache
def labelled() -> Findings:
    made = found(residual(), inputs(2, 12), labels(), classes=NAMES, risk=0.2)
    return replace(made, times=cost.measure(residual(), inputs(2, 12), plan=QUICK))


@cache
def regression() -> Findings:
    layers = (nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 2))
    model = converted(seeded(lambda: nn.Sequential(*layers)), 5, task="regression")
    truth = inputs(2, count=COUNT)
    return found(model, inputs(5), truth)
