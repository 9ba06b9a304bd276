"""The fast modes of whole networks: frozen means bit for bit, low rank near the full variance."""

from dataclasses import replace

import pytest
import torch
from models import ZOO, inputs_for, trained
from torch import nn

import onesigma
from onesigma import InputError
from onesigma.calibration.comparison import divergence
from onesigma.conversion import assemble
from onesigma.rules.frozen import FROZEN
from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten
NAMES = (
    "paper_cnn",
    "mlp",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("residual", "separable", "mixer")),
)


def converted(name: str, **modes: str) -> onesigma.Converted:
    example = inputs_for(name, 2)
    return onesigma.convert(trained(name), example, task=ZOO[name].task, **modes)


@pytest.fixture(scope="module")
def paper():
    x = inputs_for("paper_cnn", 40)[0]
    models = {
        (mean, variance): converted("paper_cnn", mean=mean, variance=variance)
        for mean in ("matched", "frozen")
        for variance in ("full", "lowrank")
    }
    return x, models


@pytest.mark.parametrize("variance", ["full", "lowrank"])
@pytest.mark.parametrize("name", NAMES)
def test_a_frozen_mean_is_the_models_own_output_bit_for_bit(name, variance):
    x = inputs_for(name, 5)
    prediction = converted(name, mean="frozen", variance=variance)(*x)
    plain = trained(name)(*x)
    assert torch.equal(prediction.mean, plain)
    assert torch.equal(prediction.plain_probs, plain.softmax(1))
    assert bool((prediction.var > 0).all())


@torch.no_grad()
def test_low_rank_is_near_the_full_variance(paper):
    x, models = paper
    for mean in ("matched", "frozen"):
        full, low = (models[mean, variance](x) for variance in ("full", "lowrank"))
        ratio = (low.std / full.std).median()
        assert 0.8 < float(ratio) < 1.25
        assert divergence(full.probs, low.probs) < 0.02


def test_only_a_frozen_mean_yields_the_plain_probabilities(paper):
    x, models = paper
    assert models["matched", "full"](x).plain_probs is None


@pytest.mark.parametrize("modes", [("matched", "lowrank"), ("frozen", "lowrank")])
def test_calibrated_fast_modes_come_closer_and_survive_a_file(paper, modes, tmp_path):
    x, models = paper
    fit = inputs_for("paper_cnn", 104)[0][40:]
    reference = onesigma.mc_dropout(trained("paper_cnn"), 1000, seed=3)(x).probs
    before = models[modes]
    after = onesigma.calibrate(before, fit, passes=60)
    assert divergence(reference, after(x).probs) <= divergence(reference, before(x).probs)
    onesigma.save(after, tmp_path / "m.safetensors")
    again = onesigma.load(tmp_path / "m.safetensors")
    assert torch.equal(again(x).probs, after(x).probs)
    assert (again.settings.mean, again.settings.variance) == modes
    if modes[0] == "frozen":
        assert torch.equal(after(x).mean, trained("paper_cnn")(x))


@pytest.mark.long
def test_calibrate_finds_a_shift_that_the_logits_explain():
    """relu(dropout(x)) of one unit: the mean under dropout is another, and calibrate learns it."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 64), nn.ReLU())
    model = nn.Sequential(*model, nn.Linear(64, 3)).eval()
    x = torch.randn(200, 8, generator=generator)
    frozen = onesigma.convert(model, x[:2], mean="frozen")
    fitted = onesigma.calibrate(frozen, x[:100], passes=200)
    reference = onesigma.mc_dropout(model, 2000, seed=1)(x[100:])
    assert fitted.settings.shift is not None
    without = assemble(
        *(frozen.source, (x[:2],), frozen.report, replace(fitted.settings, shift=None), None)
    )
    errors = [divergence(reference.probs, m(x[100:]).probs) for m in (fitted, without)]
    assert errors[0] < errors[1]


def test_constants_of_low_rank_are_small_and_computed_once(paper):
    _, models = paper
    network = models["matched", "lowrank"].network
    weights = sum(p.numel() for p in trained("paper_cnn").parameters())
    sums = [b.numel() for name, b in network.named_buffers() if name.startswith("sums")]
    assert sums
    assert sum(sums) < 0.1 * weights
    squares = [
        node
        for node in network.graph.nodes
        if node.target is aten.mul.Tensor and node.args[0] is node.args[1]
    ]
    assert all(n.args[0].op != "get_attr" for n in squares)


def test_the_report_says_what_is_approximate(paper):
    _, models = paper
    entries = models["frozen", "lowrank"].report.entries
    assert any("low rank" in entry.note for entry in entries)
    assert any("first order" in entry.note for entry in entries)


def test_grouped_convolutions_are_exported_by_our_own_table(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.delattr("onesigma.exporters.onnx.torch_writer.write")
    layers = (nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Dropout(0.5), nn.Conv1d(8, 8, 3, groups=2))
    model = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6, 3)).eval()
    grouped = onesigma.convert(model, torch.randn(2, 4, 10), variance="lowrank")
    assert onesigma.export(grouped, tmp_path / "m.onnx").error < 1e-4


@pytest.mark.parametrize("option", [{"mean": "thawed"}, {"variance": "none"}])
def test_an_unknown_mode_is_refused_with_the_choices(option):
    with pytest.raises(InputError, match="choose one of"):
        onesigma.convert(trained("mlp"), inputs_for("mlp", 2), **option)


def test_the_frozen_rectifier_against_the_jacobian():
    x = Gaussian(torch.randn(50, generator=torch.Generator().manual_seed(1)), torch.rand(50))
    found = FROZEN[aten.relu.default].function(x)
    slope = torch.func.vmap(torch.func.grad(torch.relu))(x.mean)
    assert torch.equal(found.mean, torch.relu(x.mean))
    assert torch.allclose(found.var, slope**2 * x.var)
