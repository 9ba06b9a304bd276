"""Small models and their findings, made once."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import onesigma
from onesigma.calibration.guarding import Channels, with_guard
from onesigma.converted import Converted
from onesigma.pages.report.findings import OURS, PLAIN, Cost, CostRow, Findings, gather

HOSTILE = "<img src=x onerror=alert(1)>"
NAMES = ("walk", HOSTILE, "run & jump")
COUNT, PASSES = 60, 40
COST = Cost(
    "a small machine",
    (
        CostRow(PLAIN, "PyTorch", 1.0, 0.0, 1.0, 0.5, None),
        CostRow(OURS, "PyTorch", 3.456, 0.12, 3.4, 1.7, None),
        CostRow("MC dropout, 30 passes", "PyTorch", 31.23, 4.5, 29.9, 15.0, None),
        CostRow(OURS, "ONNX Runtime", 2.22, None, 2.2, 0.2, 1234.5),
    ),
    energy=((OURS, "1.50 mJ per answer in PyTorch"),),
    skipped=(("OpenVINO", f"not installed ({HOSTILE})"),),
)


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


def find(model: Converted, x: Tensor, truth: Tensor | None = None, **options: Any) -> Findings:
    """With few passes, where figures of Monte Carlo do not matter."""
    return gather("m.safetensors", model, x, truth, **{"passes": 4} | options)


@cache
def labelled() -> Findings:
    options = {"class_names": NAMES, "risk": 0.2, "passes": PASSES}
    return find(residual(), inputs(2, 12), labels(), **options)


@cache
def guarded() -> Findings:
    """The same with a guard; of its inputs, six are broken and four are noise."""
    known = inputs(2, 12, count=400)
    model = with_guard(residual(), (known,), channels=Channels(("up", HOSTILE)))
    x = inputs(2, 12)
    x[:6, 1] = 0
    x[6:10] *= 1.6
    return find(model, x, labels(), class_names=NAMES, risk=0.2)


@cache
def regression() -> Findings:
    layers = (nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 2))
    model = converted(seeded(lambda: nn.Sequential(*layers)), 5, task="regression")
    return find(model, inputs(5), inputs(2))
