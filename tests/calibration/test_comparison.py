"""The audit: it passes what is exact, names what is broken, and knows its own noise."""

import json
import math
import statistics
from dataclasses import replace
from functools import cache

import pytest
import torch
from models import CLASSES, converted, inputs_for, trained
from torch import Tensor, nn

import onesigma
from onesigma import Audit, Converted, Gaussian, InputError
from onesigma.calibration.comparison import divergence
from onesigma.conversion import assemble
from onesigma.rules import RULES
from onesigma.rules.corrections import Gain

aten = torch.ops.aten
X = torch.randn(24, 10, generator=torch.Generator().manual_seed(0))
P, PASSES = 0.3, 300


@cache
def exact() -> Converted:
    torch.manual_seed(0)
    return onesigma.convert(nn.Sequential(nn.Dropout(P), nn.Linear(10, CLASSES)).eval(), X)


@cache
def audited(name: str) -> Audit:
    return onesigma.audit(converted(name), inputs_for(name, 12), passes=60)


def with_gains(model: Converted, x: Tensor, gains: dict[str, float]) -> Converted:
    corrections = {node: (Gain(gain),) for node, gain in gains.items()}
    settings = replace(model.settings, corrections=corrections)
    return assemble(model.source, (x[:2],), model.report, settings, model.input_var)


def stated(*probs: Tensor, model: Converted) -> Converted:
    """A model that answers with given probabilities, whatever the input."""

    class Answer(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            entropy = -(probs[0] * probs[0].log()).sum(-1)
            return (probs[0], probs[0], probs[0], entropy, entropy, entropy)

    made = Converted(model.network, model.source, model.report, model.settings)
    made.network = Answer()
    return made


def test_an_exact_network_passes():
    audit = onesigma.audit(exact(), X, passes=PASSES)
    (layer,) = audit.layers
    # Of one element; the median over 96 of them is closer still.
    assert abs(layer.std_ratio - 1) < 5 * math.sqrt(1 / (2 * PASSES)) / 2
    assert layer.low < 1 < layer.high
    assert layer.mean_error < 1.5 * audit.mean_noise
    assert layer.correlation > 0.8
    assert abs(layer.std_ratio - 1) < 4 * audit.ratio_noise
    assert audit.own_spread == 1  # the network itself, from the same seeds
    assert audit.own.std_ratio == pytest.approx(layer.std_ratio, rel=1e-5)
    within = 1 + (abs(layer.std_ratio - 1) < 2 * audit.ratio_noise)
    assert str(audit).count("(noise)") == 2 * within
    assert "no layer's spread is more than 10 % off" in str(audit)


def test_the_ratios_noise_is_that_of_other_passes():
    """An exact network's ratio over many seeds, against the standard error the audit states."""
    audits = [onesigma.audit(exact(), X, passes=60, seed=seed) for seed in range(20)]
    spread = statistics.stdev(a.layers[0].std_ratio for a in audits)
    assert 0.3 * audits[0].ratio_noise < spread < 1.5 * audits[0].ratio_noise


def test_the_means_noise_shrinks_with_the_passes():
    few, many = (onesigma.audit(exact(), X, passes=passes) for passes in (25, 400))
    assert few.mean_noise == pytest.approx(4 * many.mean_noise)
    assert few.layers[0].mean_error == pytest.approx(few.mean_noise, rel=0.5)
    assert many.layers[0].mean_error == pytest.approx(many.mean_noise, rel=0.5)


def test_a_wrong_mean_is_not_called_noise(monkeypatch):
    rule = RULES[aten.linear.default]

    def shifted(x, *args):
        y = rule.function(x, *args)
        return Gaussian(y.mean + 0.5 * y.var.sqrt(), y.var)

    model = exact()
    monkeypatch.setitem(RULES, aten.linear.default, replace(rule, function=shifted))
    audit = onesigma.audit(model, X, passes=PASSES)
    assert audit.layers[0].mean_error == pytest.approx(0.5, abs=0.1)
    assert f"{audit.layers[0].mean_error:.3f} (noise)" not in str(audit)


@pytest.mark.parametrize(
    ("op", "call", "factor", "way"),
    [
        (aten.linear.default, 1, 9.0, "too large"),
        (aten.tanh.default, 1, 9.0, "too large"),
        (aten.tanh.default, 1, 0.04, "too small"),
        (aten.linear.default, 2, 0.04, "too small"),
    ],
)
def test_a_broken_rule_is_named(op, call, factor, way, monkeypatch):
    """Broken in one place only."""
    model, x = converted("mlp"), inputs_for("mlp", 24)
    rule, calls = RULES[op], []

    def broken(value, *args):
        calls.append(op)
        y = rule.function(value, *args)
        return y if len(calls) != call else Gaussian(y.mean, y.var * factor)

    monkeypatch.setitem(RULES, op, replace(rule, function=broken))
    audit = onesigma.audit(model, x, passes=100)
    assert audit.worst is not None
    assert audit.worst.op == f"aten.{op.overloadpacket.__name__}"
    assert audit.worst.std_ratio == pytest.approx(math.sqrt(factor), rel=0.3)
    assert f"worst layer: {audit.worst.where}, its spread is {way}" in str(audit)
    assert "onesigma.calibrate" in str(audit)


def test_a_wrong_gain_is_named():
    x = inputs_for("mlp", 24)
    audit = onesigma.audit(with_gains(converted("mlp"), *x, {"linear_2": 16.0}), x, passes=100)
    assert audit.worst is not None
    assert (audit.worst.node, audit.worst.where) == ("linear_2", "6")
    assert audit.to_dict()["worst"] == "linear_2"
    assert audit.output.kl > 2 * onesigma.audit(converted("mlp"), x, passes=100).output.kl


@cache
def truth() -> tuple[Tensor, Tensor]:
    x = inputs_for("mlp", 24)[0]
    probs = onesigma.mc_dropout(trained("mlp"), 6000)(x).probs
    assert probs is not None
    return x, probs.double()


def test_the_noise_of_the_kl_is_what_finite_passes_cost():
    """KL(T passes ‖ very many passes), averaged over seeds, against the audit's estimate of it."""
    x, probs = truth()
    perfect = stated(probs, model=converted("mlp"))
    audits = [onesigma.audit(perfect, x, passes=60, seed=seed) for seed in range(5)]
    kl = sum(audit.output.kl for audit in audits) / 5
    noise = sum(audit.output.kl_noise for audit in audits) / 5
    assert kl / 2 < noise < 2 * kl
    assert all(audit.output.kl < 4 * audit.output.kl_noise for audit in audits)
    assert all("(within it)" in str(a) for a in audits if a.output.kl < 2 * a.output.kl_noise)
    assert any("(within it)" in str(audit) for audit in audits)


def test_the_noise_of_the_kl_falls_with_the_passes():
    x = inputs_for("mlp", 24)
    few, many = (onesigma.audit(converted("mlp"), x, passes=n).output for n in (30, 300))
    assert few.kl_noise / many.kl_noise == pytest.approx(10, rel=0.5)


def test_a_kl_above_its_noise_does_not_claim_to_be_within():
    x, probs = truth()
    bolder = (probs**1.5) / (probs**1.5).sum(-1, keepdim=True)
    audit = onesigma.audit(stated(bolder, model=converted("mlp")), x, passes=100)
    assert "(within it)" not in str(audit)
    assert audit.output.kl > 5 * audit.output.kl_noise


def test_the_figures_of_the_output():
    x, probs = truth()
    audit = onesigma.audit(stated(probs, model=converted("mlp")), x, passes=200).output
    assert audit.label_agreement > 0.9
    assert audit.entropy_correlation > 0.95
    assert audit.plain_kl > 10 * audit.kl
    wrong = onesigma.audit(stated(probs.roll(1, -1), model=converted("mlp")), x, passes=20).output
    assert wrong.label_agreement < 0.1
    assert wrong.kl > audit.plain_kl


def test_divergence():
    p = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    q = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    expected = (0.5 * math.log(2) + 0.5 * math.log(2 / 3) + math.log(2)) / 2
    assert divergence(p, q) == pytest.approx(expected, rel=1e-9)
    assert divergence(p, p) == pytest.approx(0, abs=1e-12)
    assert math.isfinite(divergence(q, p))


@pytest.mark.parametrize("name", ["mlp", "decoder"])
def test_every_layer_is_in_the_table_and_in_the_dict(name):
    audit = audited(name)
    text, content = str(audit), audit.to_dict()
    uncertain = {
        entry.node
        for entry in converted(name).report.entries
        if entry.status in ("exact", "approximate") and entry.rule != "passthrough"
    }
    assert {layer.node for layer in audit.layers} == uncertain
    rows = [line.split() for line in text.splitlines()]
    assert all([layer.where, layer.op] in [row[:2] for row in rows] for layer in audit.layers)
    assert json.loads(json.dumps(content, allow_nan=False))["passes"] == audit.passes
    assert [layer["node"] for layer in content["layers"]] == [a.node for a in audit.layers]
    rows = [*audit.layers, audit.own]
    noise = [a.mean_error < 1.5 * audit.mean_noise for a in rows]
    noise += [abs(a.std_ratio - 1) < 2 * audit.ratio_noise for a in rows]
    assert text.count("(noise)") == sum(noise)
    assert f"{audit.inputs} inputs, {audit.passes} Monte-Carlo passes" in text


def test_regression_has_no_output_part():
    audit = audited("decoder")
    assert audit.output is None
    assert audit.to_dict()["output"] is None
    assert "KL" not in str(audit)
    assert audit.layers


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.drop, self.left, self.right = nn.Dropout(P), nn.Linear(10, 4), nn.Linear(3, 4)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.left(self.drop(a)) + self.right(self.drop(b))


def test_two_inputs():
    x = (X, X[:, :3] + 1)
    model = onesigma.convert(TwoInputs().eval(), x)
    audit = onesigma.audit(model, x, passes=PASSES)
    assert [layer.where for layer in audit.layers][:2] == ["left", "right"]
    assert audit.inputs == len(X)
    assert all(abs(layer.std_ratio - 1) < 0.1 for layer in audit.layers)
    with pytest.raises(InputError, match="takes 2 inputs, not 1"):
        onesigma.audit(model, X)


def test_a_loaded_model_audits_the_same(tmp_path):
    model = with_gains(exact(), X, {"linear": 1.7})
    onesigma.save(model, tmp_path / "m.safetensors")
    loaded = onesigma.load(tmp_path / "m.safetensors")
    assert loaded.settings.corrections["linear"][0].factor == 1.7
    assert onesigma.audit(loaded, X, passes=20) == onesigma.audit(model, X, passes=20)


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_too_few_passes(passes):
    with pytest.raises(InputError, match=rf"passes={passes}: an audit needs at least 4"):
        onesigma.audit(exact(), X, passes=passes)


def test_wrong_inputs():
    with pytest.raises(InputError, match=r"shape \(batch, 10\), not \(24, 9\)"):
        onesigma.audit(exact(), X[:, :9])
    with pytest.raises(InputError, match=r"torch\.float32 input, not torch\.float64"):
        onesigma.audit(exact(), X.double())
    with pytest.raises(InputError, match="at least one input"):
        onesigma.audit(exact(), X[:0])


def test_progress_sees_every_pass():
    seen = []

    def progress(steps):
        for step in steps:
            seen.append(step)
            yield step

    with_progress = onesigma.audit(exact(), X, passes=17, progress=progress)
    assert seen == list(range(17))
    assert with_progress == onesigma.audit(exact(), X, passes=17)


def test_seeded_and_the_callers_random_state_is_untouched():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, again, other = (onesigma.audit(exact(), X, passes=8, seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)
    assert first == again != other


def test_one_input():
    audit = onesigma.audit(exact(), X[:1], passes=8)
    assert audit.inputs == 1
    assert math.isnan(audit.output.entropy_correlation)
    assert "nan" in str(audit)


def test_classic_dropout_is_audited_against_classic_masks():
    model = nn.Sequential(nn.Dropout(P), nn.Linear(10, CLASSES)).eval()
    audit = onesigma.audit(onesigma.convert(model, X, dropout="classic"), X, passes=PASSES)
    assert audit.layers[0].std_ratio == pytest.approx(1, abs=0.1)
    assert "(noise)" in str(audit)


def test_an_input_prior_alone():
    model = nn.Sequential(nn.Linear(10, CLASSES)).eval()
    audit = onesigma.audit(onesigma.convert(model, X, input_std=0.5), X, passes=PASSES)
    assert audit.layers[0].std_ratio == pytest.approx(1, abs=0.1)
    assert audit.output.kl < audit.output.plain_kl


@pytest.mark.parametrize(
    "layers", [[nn.Linear(10, CLASSES), nn.Dropout(P)], [nn.Dropout(0.0), nn.Linear(10, CLASSES)]]
)
def test_no_layer_has_any_spread(layers):
    """The noise comes after the last layer, or not at all."""
    audit = onesigma.audit(onesigma.convert(nn.Sequential(*layers).eval(), X), X, passes=8)
    assert audit.layers == ()
    assert audit.worst is None
    assert audit.to_dict()["worst"] is None
    assert "no layer carries a spread" in str(audit)
