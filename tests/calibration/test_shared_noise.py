"""Noise that elements share, where one variance per element is badly off: calibrate repairs it.

Masks of whole channels before a convolution and before a pool, a residual join, one dropout used
twice, neighbours in a pool's window. Against Monte Carlo on inputs that calibrate has not seen.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onesigma
from onesigma.moments.piecewise import maximum

FIT, CHECK, PASSES = 60, 40, 1000


def positive(conv: nn.Module) -> nn.Module:
    """Weights of one sign: elements that drop together then add up, as in a smoothing filter."""
    conv.weight.data.abs_()
    return conv


class Residual(nn.Module):
    """Both branches carry the noise of one dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.branch = nn.Linear(12, 12), positive(nn.Linear(12, 12))
        self.last = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(torch.relu(self.first(x)), 0.5, self.training)
        return self.last(x + torch.relu(self.branch(x)))


class Twice(nn.Module):
    """One dropout's output, used by two layers whose outputs meet again."""

    def __init__(self):
        super().__init__()
        self.dropout, self.one, self.other = nn.Dropout(0.4), nn.Linear(12, 4), nn.Linear(12, 4)
        self.other.weight.data = self.one.weight.data + 0.1 * torch.randn(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(x)
        return self.one(x) + self.other(x)


NETWORKS = {
    "channel dropout, convolution": lambda: nn.Sequential(
        nn.Dropout2d(0.3), positive(nn.Conv2d(4, 6, 3)), nn.Flatten(), nn.Linear(6 * 16, 4)
    ),
    "channel dropout, pool": lambda: nn.Sequential(
        nn.Dropout2d(0.3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)
    ),
    "maximum of neighbours": lambda: nn.Sequential(
        nn.Dropout2d(0.3), positive(nn.Conv2d(4, 6, 3)), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(6 * 4, 4),
    ),
    "residual join": Residual,
    "one dropout used twice": Twice,
}  # fmt: skip


def inputs(name: str, count: int) -> Tensor:
    shape = (12,) if name in ("residual join", "one dropout used twice") else (4, 6, 6)
    smooth = torch.randn(count, *shape, generator=torch.Generator().manual_seed(3))
    return smooth.abs() + 0.5


@pytest.mark.parametrize("name", NETWORKS)
def test_the_spread_is_repaired(name):
    torch.manual_seed(0)
    model = NETWORKS[name]().eval()
    x = inputs(name, FIT + CHECK)
    fit, check = x[:FIT], x[FIT:]
    plain = onesigma.convert(model, fit[:2], task="regression")
    tuned = onesigma.calibrate(plain, fit, passes=200)
    monte_carlo = onesigma.mc_dropout(model, PASSES, seed=9, task="regression")(check)
    with torch.no_grad():
        answers = [m(check) for m in (plain, tuned)]
    before, after = (a.std / monte_carlo.std for a in answers)
    noise = 5 * math.sqrt(1 / (2 * PASSES)) / math.sqrt(CHECK)
    assert float(before.log().abs().mean()) > 0.1, "not off, nothing to repair"
    assert float(after.median()) == pytest.approx(1, abs=0.04 + noise)
    assert float(after.log().abs().mean()) < 0.5 * float(before.log().abs().mean())
    error = (answers[1].mean - monte_carlo.mean).abs() / monte_carlo.std
    assert float(error.median()) < 0.05 + 1 / math.sqrt(PASSES)


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.9, 1.0])
def test_the_larger_of_two_correlated_normals(correlation):
    """Against Monte Carlo with five standard errors, and never a negative variance."""
    draws = 200_000
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, draws, 1, generator=generator, dtype=torch.float64)
    other = correlation * one + math.sqrt(1 - correlation**2) * other
    means = torch.tensor([[0.0, 1, -2, 0], [0.5, 0, 1, 0]], dtype=torch.float64)
    variances = torch.tensor([[1.0, 0.2, 3, 1], [0.5, 2, 3, 1]], dtype=torch.float64)
    (mean_a, mean_b), (var_a, var_b) = means, variances
    samples = torch.maximum(mean_a + var_a.sqrt() * one, mean_b + var_b.sqrt() * other)
    mean, var = maximum(mean_a, var_a, mean_b, var_b, correlation)
    centred = samples - samples.mean(0)
    var_error = ((centred**4).mean(0) - (centred**2).mean(0) ** 2).sqrt() / math.sqrt(draws)
    assert ((samples.mean(0) - mean).abs() < 5 * samples.std(0) / math.sqrt(draws)).all()
    assert ((samples.var(0) - var).abs() < 5 * var_error).all()
    assert (var >= 0).all()


@pytest.mark.long
def test_an_op_of_two_outputs_is_left_as_it_is():
    """Adaptive max pooling returns values and indices: nothing is fitted there."""
    torch.manual_seed(0)
    layers = [nn.Dropout(0.3), nn.Conv1d(4, 6, 3), nn.AdaptiveMaxPool1d(2), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(12, 4)).eval()
    x = torch.randn(20, 4, 12)
    tuned = onesigma.calibrate(onesigma.convert(model, x), x, passes=20)
    with torch.no_grad():
        assert bool((tuned(x).var > 0).all())


def test_pool_and_rectifier_change_places_without_a_trace():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.ReLU(), nn.MaxPool1d(2, padding=1), nn.Dropout(0.0), nn.Flatten(),
        nn.Linear(24, 3),
    ).eval()  # fmt: skip
    x = torch.randn(5, 2, 12)
    converted = onesigma.convert(model, x)
    order = [str(n.target) for n in converted.source.graph.nodes if "conv" not in str(n.target)]
    assert order.index("aten.max_pool1d.default") < order.index("aten.relu.default")
    with torch.no_grad():
        assert torch.equal(converted(x).mean, model(x))
