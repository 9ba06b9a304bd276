"""Particles: rows with fixed masks, for any ops, that say what Monte Carlo says."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma.graph.particles import balanced_masks, spread
from onesigma.graph.prepare import prepare
from onesigma.lab import c_verify

X = torch.randn(6, 4, 20, generator=torch.Generator().manual_seed(0))


class Recurrent(nn.Module):
    """Time first, as nn.LSTM has it unless told otherwise; dropout between its layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.lstm = nn.LSTM(4, 8, num_layers=2, dropout=0.4, bidirectional=True)
        self.last = nn.Linear(16, 3)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(x.permute(2, 0, 1))[0][-1])


class Attending(nn.Module):
    """Noise in the weights of attention, which eval mode does not show, and behind a switch."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.fused = fused
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 3)
        self.attention = nn.MultiheadAttention(16, 4, dropout=0.3)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x.permute(2, 0, 1))
        h = h + self.attention(h, h, h, need_weights=not self.fused)[0]
        if self.training:
            h = nn.functional.dropout(h, 0.2)
        return self.last(h.mean(0))


def convolutional() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        *(nn.Conv1d(4, 8, 5), nn.ReLU(), nn.Dropout(0.3), nn.MaxPool1d(2), nn.Conv1d(8, 8, 3)),
        *(nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout1d(0.25), nn.AvgPool1d(2), nn.Flatten()),
        *(nn.Dropout(0.5), nn.Linear(24, 3)),
    )


NETWORKS = {
    "recurrent": Recurrent,
    "attention": lambda: Attending(fused=False),
    "fused attention": lambda: Attending(fused=True),
    "convolutional": convolutional,
}


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.7])
@pytest.mark.parametrize("count", [4, 8])
def test_masks_keep_the_mean_and_have_the_variance_of_dropout(p, count):
    masks = balanced_masks(p, count, [3000, 4], torch.Generator().manual_seed(0))
    torch.testing.assert_close(masks.mean(0), torch.ones(3000, 4))
    each = masks.var(0, correction=0)
    error = float(each.std()) / each.numel() ** 0.5
    assert abs(float(each.mean()) - p / (1 - p)) <= 5 * error + 1e-6
    # Elements have nothing to do with each other: sums over them vary as much as they do.
    sums = masks.sum(2).var(0, correction=0) / 4
    assert abs(float(sums.mean()) - p / (1 - p)) <= 5 * float(sums.std()) / len(sums) ** 0.5


@pytest.mark.parametrize("name", NETWORKS)
def test_an_input_gets_the_same_answer_alone_and_in_a_batch(name):
    converted = onesigma.convert(NETWORKS[name]().eval(), X, particles=4)
    with torch.no_grad():
        together, alone = converted(X), [converted(x.unsqueeze(0)) for x in X]
    for index, each in enumerate(alone):
        torch.testing.assert_close(together.probs[index], each.probs[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_many_particles_say_what_monte_carlo_says(name):
    """Of the user's own network, in training mode; its error bars, and those of the particles."""
    model, count = NETWORKS[name]().eval(), 256
    found = onesigma.convert(model, X, particles=count)(X)
    reference = onesigma.mc_dropout(model, passes=4000, seed=1)(X)
    error = reference.std / count**0.5 + reference.std / 4000**0.5
    assert ((found.mean - reference.mean).abs() <= 5 * error).all()
    ratio = found.std / reference.std
    assert ((ratio - 1).abs() <= 5 * (0.5 / count) ** 0.5).all()
    assert (found.probs - reference.probs).abs().max() < 0.05


def test_there_are_more_rows_behind_the_last_dropout():
    """They say what Monte Carlo says; each input's are together, and the masks of its own."""
    model = convolutional().eval()
    rows = spread(prepare(model, X, "classification", None).graph, 64, late=4)
    (logits,) = rows(X)
    each = logits.unflatten(0, (len(X), 256))
    reference = onesigma.mc_dropout(model, passes=4000, seed=1)(X)
    error = reference.std / 64**0.5 + reference.std / 4000**0.5
    assert ((each.mean(1) - reference.mean).abs() <= 5 * error).all()
    ratio = each.std(1, correction=0) / reference.std
    assert ((ratio - 1).abs() <= 5 * (0.5 / 64) ** 0.5).all()
    torch.testing.assert_close(rows(X[2:3])[0], each[2])


@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_and_c_say_the_same(name, tmp_path):
    pytest.importorskip("onnxruntime")
    converted = onesigma.convert(NETWORKS[name]().eval(), X, particles=4)
    with torch.no_grad():
        wanted = converted(X)
    onesigma.export(converted, tmp_path / "m.onnx", example_input=X)
    found = onesigma.runtime.load(tmp_path / "m.onnx")(X.numpy())
    np.testing.assert_allclose(found.probs, wanted.probs.numpy(), atol=1e-5)
    if not shutil.which("gcc"):
        pytest.skip("no compiler")
    generated = onesigma.export(converted, tmp_path / "c", example_input=X)
    (given,) = generated.inputs
    ran = c_verify.run(generated, [{given: x.unsqueeze(0).numpy()} for x in X])
    for field in ("mean", "var", "probs"):
        each = np.stack([output[field] for output in ran.outputs])
        np.testing.assert_allclose(each, getattr(wanted, field).numpy(), rtol=1e-4, atol=1e-5)


def test_hidden_dropout_is_a_site():
    graph = prepare(Attending(fused=True).eval(), X, "classification", None)
    assert not graph.notes
    report = onesigma.convert(Attending(fused=True).eval(), X, particles=4).report
    assert sorted(site.rate for site in report.sites) == [0.2, 0.3]
    assert "stratified sampling" in str(report)


def test_the_last_dropout_is_carried_in_closed_form():
    """With no other noise it is exact: the variance is Σ w² h² p / q, whatever the masks are."""
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    x = X[:, :, 0]
    found = onesigma.convert(model, x, particles=2)(x)
    hidden = model[1](model[0](x))
    torch.testing.assert_close(found.mean, model(x))
    torch.testing.assert_close(found.var, hidden.square() @ model[3].weight.square().T)


def test_too_few_particles_for_a_rate_are_refused():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9), nn.Linear(8, 8), nn.ReLU()).eval()
    with pytest.raises(onesigma.UnsupportedOp, match="take 10 or more"):
        onesigma.convert(model, X[:, :, 0], particles=4)


def test_dropout_of_something_without_rows_is_refused():
    class OfWeights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.place, self.last = nn.Parameter(torch.randn(1, 4)), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(x + nn.functional.dropout(self.place, 0.5, self.training)).relu()

    graph = prepare(OfWeights().eval(), X[:, :, 0], "classification", None).graph
    with pytest.raises(onesigma.UnsupportedOp, match="a row for each input"):
        spread(graph, 4)


def test_without_dropout_it_is_the_network():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.ReLU(), nn.Linear(8, 3)).eval()
    graph = prepare(model, X[:, :, 0], "classification", None).graph
    each = model(X[:, :, 0]).repeat_interleave(4, 0)
    assert torch.equal(spread(graph, 4)(X[:, :, 0])[0], each)
