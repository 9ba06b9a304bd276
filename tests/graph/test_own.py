"""Monte Carlo is asked of the user's own network, whatever was captured of it."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onesigma
from onesigma import mc_dropout

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A dropout that is found, and after it what a test wants."""

    def __init__(self, after=lambda net, h: h, end=lambda y: y) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.drop = nn.Linear(6, 8), nn.Linear(8, 3), nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(8)
        self.after, self.end = after, end
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(torch.relu(self.first(x)))
        return self.end(self.last(self.after(self, self.drop(h))))


def hidden(net: Net, h: Tensor) -> Tensor:
    return 2 * h * torch.bernoulli(torch.full_like(h, 0.5)) if net.training else h


def one_mask_for_all(net: Net, h: Tensor) -> Tensor:
    return 2 * h * torch.bernoulli(torch.full_like(h[:1], 0.5)) if net.training else h


def off_for_good(net: Net, h: Tensor) -> Tensor:
    return F.dropout(h, 0.9, False)


def exact_variance(model: Net, x: Tensor, factor: float) -> Tensor:
    """Of the last layer, whose inputs are independent with E[h²] = factor · h²."""
    with torch.no_grad():
        h = model.norm(torch.relu(model.first(x)))
        return (factor - 1) * h.square() @ model.last.weight.square().T


@pytest.mark.parametrize("noise", [hidden, one_mask_for_all])
def test_noise_that_the_capture_misses_is_in_monte_carlo(noise):
    model = Net(noise)
    converted = onesigma.convert(model, X, task="regression")
    passes = 2000
    for network in (model, converted):
        found = mc_dropout(network, passes, task="regression")(X)
        wanted = exact_variance(model, X, 2 / 0.7)
        assert (found.var.mean() / wanted.mean()).sqrt() == pytest.approx(1, abs=0.05)
    torch.testing.assert_close(converted(X).var.detach(), exact_variance(model, X, 1 / 0.7))


def test_the_audit_contradicts_a_conversion_that_misses_noise():
    audit = onesigma.audit(onesigma.convert(Net(hidden), X), X)
    assert audit.own_spread == pytest.approx((13 / 3) ** 0.5, rel=0.1)  # (2/0.7 − 1)/(1/0.7 − 1)
    assert audit.contradicted
    assert "CONTRADICTION" in str(audit)
    assert audit.own.std_ratio < 0.6
    honest = onesigma.audit(onesigma.convert(Net(), X), X)
    assert not honest.contradicted
    assert "CONTRADICTION" not in str(honest)


def test_calibrate_says_loudly_that_it_did_not_help():
    calibrated = onesigma.calibrate(onesigma.convert(Net(hidden), X), X)
    assert any(note.startswith("WARNING") for note in calibrated.report.notes)
    honest = onesigma.calibrate(onesigma.convert(Net(), X), X)
    assert not any(note.startswith("WARNING") for note in honest.report.notes)


def test_dropout_that_is_off_in_training_too_is_no_noise():
    converted = onesigma.convert(Net(off_for_good), X, task="regression")
    assert any("off in training" in note for note in converted.report.notes)
    assert torch.equal(converted(X).var, onesigma.convert(Net(), X, task="regression")(X).var)


@pytest.mark.parametrize(
    "softmax", [nn.Softmax(1), lambda y: y.log_softmax(1), torch.nn.LogSoftmax(1)]
)
def test_of_a_network_that_ends_in_softmax_the_logits_are_taken(softmax):
    plain, ended = Net(), Net(end=softmax)
    ours, theirs = (mc_dropout(net, 50)(X) for net in (plain, ended))
    torch.testing.assert_close(ours.mean, theirs.mean)
    torch.testing.assert_close(ours.probs, theirs.probs)


class Auxiliary(Net):
    """Returns more in training, as networks with auxiliary heads do."""

    def forward(self, x: Tensor) -> Tensor:
        answer = super().forward(x)
        return (answer, answer) if self.training else answer


def test_of_a_network_that_returns_more_in_training_its_dropout_modules_are_on():
    found = mc_dropout(Auxiliary(), 3000, task="regression")(X)
    wanted = exact_variance(Net(), X, 1 / 0.7)
    assert (found.var / wanted).sqrt().median() == pytest.approx(1, abs=0.05)


def test_the_network_stays_as_it_is():
    model = Net(hidden)
    model.register_forward_hook(lambda *_: None)
    before, hooks = copy.deepcopy(model.state_dict()), dict(model._forward_hooks)
    converted = onesigma.convert(model, X)
    onesigma.audit(onesigma.calibrate(converted, X), X)
    mc_dropout(model, 10)(X)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    assert dict(model._forward_hooks) == hooks


def test_of_a_saved_model_the_graph_is_asked(tmp_path):
    onesigma.save(onesigma.convert(Net(), X), tmp_path / "m.safetensors")
    loaded = onesigma.load(tmp_path / "m.safetensors")
    assert loaded.own is None
    audit = onesigma.audit(loaded, X)
    assert audit.own is None
    assert audit.own_spread is None
    assert audit.output.kl < 0.01


def test_in_double_precision():
    converted = onesigma.convert(Net(), X).double()
    assert mc_dropout(converted, 10)(X.double()).mean.dtype == torch.float64
    assert converted.own.model.first.weight.dtype == torch.float32
