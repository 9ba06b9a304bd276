"""What counts as agreement: the tolerance, or what PyTorch itself rounds away."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

import onesigma
from onesigma import ExportError
from onesigma.exporters import agreement
from onesigma.exporters.agreement import Agreement, compare
from onesigma.exporters.answering import make_answering
from onesigma.runtime.comparison import mismatch

pytest.importorskip("onnxruntime")
ModelProto = pytest.importorskip("onnx").ModelProto


@pytest.fixture(scope="module")
def case() -> tuple[onesigma.Converted, torch.Tensor, dict[str, torch.Tensor]]:
    """A layer of many positive inputs, whose sums cancel; and the truth, in float64."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Dropout(0.5), nn.Linear(4000, 20)).eval()
    x = 5 + torch.randn(3, 4000)
    converted = onesigma.convert(network, x)
    with torch.no_grad():
        return converted, x, deepcopy(converted).double()(x.double()).arrays()


def ask(monkeypatch, case, change: float) -> Agreement:
    """A runtime whose answers are the truth, rounded once, the mean changed by a share."""
    converted, x, truth = case

    class Session:
        def run(self, names, feed):
            return [
                (value * (1 + change * (name == "mean"))).to(torch.float32).numpy()
                for name, value in truth.items()
            ]

    monkeypatch.setattr(agreement, "checking_runtime", lambda: ("a runtime", lambda _: Session()))
    answering = replace(make_answering(converted, x), dynamic=False)
    return compare(ModelProto(), converted, answering, None)


def test_the_rounding_of_pytorch_itself_is_no_disagreement(monkeypatch, case):
    converted, x, truth = case
    with torch.no_grad():
        own = mismatch("mean", converted(x).mean.numpy(), truth["mean"])
    monkeypatch.setattr(agreement, "TOLERANCE", own / 10)
    assert (
        ask(monkeypatch, case, 0.0).error > agreement.TOLERANCE
    )  # it was not within the tolerance, and no error


@pytest.mark.parametrize("change", [3e-3, 1e-2])
def test_more_than_rounding_is_one(monkeypatch, case, change):
    with pytest.raises(ExportError, match="'mean' is off by"):
        ask(monkeypatch, case, change)
