"""A temperature and an abstain rule on a converted model: attached, carried along, saved."""

import copy
import math

import pytest
import torch
from torch import nn

import onesigma
from onesigma import AbstainRule, InputError
from onesigma.decide.temperature import Temperature
from onesigma.decide.threshold import score_of

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
SHARP = Temperature(0.3)
FIELDS = ("mean", "var", "probs", "entropy", "aleatoric", "epistemic", "act")


def rule(score: str = "entropy", threshold: float = 0.7) -> AbstainRule:
    return AbstainRule(score, threshold, 0.05, None, 100, 0.8, 0.04)


@pytest.fixture(scope="module")
def bare():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)).eval()
    return onesigma.convert(model, X)


@pytest.fixture(scope="module")
def decided(bare):
    return bare.with_temperature(SHARP).with_abstain(rule())


def assert_same(a, b) -> None:
    for field in FIELDS:
        left, right = getattr(a, field), getattr(b, field)
        assert (left is None and right is None) or torch.equal(left, right)


def test_the_model_itself_is_not_changed(bare):
    before = copy.deepcopy(bare)(X)
    decided = bare.with_temperature(SHARP).with_abstain(rule())
    decided.double()
    assert bare.temperature is None
    assert bare.abstain is None
    assert bare(X).act is None
    assert_same(bare(X), before)


def test_weights_are_shared(bare, decided):
    ours = {p.data_ptr() for p in bare.parameters()}
    assert {p.data_ptr() for p in decided.parameters()} == ours
    assert {p.data_ptr() for p in decided.source.parameters()} == ours


def test_temperature_first_then_the_rule(bare, decided):
    tempered = SHARP.apply(bare(X))
    assert torch.equal(decided(X).probs, tempered.probs)
    assert torch.equal(decided(X).act, tempered.entropy < 0.7)
    assert 0 < decided(X).act.double().mean() < 1
    assert decided.temperature == SHARP
    assert decided.abstain == rule()
    assert "temperature=0.300" in repr(decided)
    assert "entropy < 0.7" in repr(decided)


def test_they_can_be_taken_off(bare, decided):
    assert_same(decided.with_abstain(None).with_temperature(None)(X), bare(X))


def test_batches_are_joined_with_their_decisions(decided):
    parts = [decided(X[:7]), decided(X[7:])]
    assert torch.equal(onesigma.Prediction.cat(parts).act, decided(X).act)


def test_what_would_void_the_rule_is_refused(decided):
    with pytest.raises(InputError, match="with_abstain"):
        decided.with_temperature(Temperature(2.0))
    with pytest.raises(InputError, match="fit them again"):
        onesigma.calibrate(decided, X, passes=4)


def test_regression_has_nothing_to_decide():
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    converted = onesigma.convert(model, X, task="regression")
    with pytest.raises(InputError, match="regression"):
        converted.with_temperature(SHARP)
    with pytest.raises(InputError, match="regression"):
        converted.with_abstain(rule())


def test_the_audit_compares_without_them(bare, decided):
    assert onesigma.audit(decided, X, passes=8) == onesigma.audit(bare, X, passes=8)


@pytest.mark.parametrize("score", ["entropy", "confidence", "epistemic"])
def test_traced_it_decides_alike(bare, score):
    sharp = bare.with_temperature(SHARP)
    middle = float(score_of(sharp(X), score).detach().median())
    decided = sharp.with_abstain(rule(score, middle))
    assert decided(X).act.any()
    dynamic = (({0: torch.export.Dim.AUTO},),)
    traced = torch.export.export(decided, (X[:3],), dynamic_shapes=dynamic, strict=False)
    assert_same(traced.module()(X), decided(X))
    # Nothing of the rule is left but plain ops.
    ops = {str(n.target) for n in traced.graph.nodes if n.op == "call_function"}
    assert "aten.lt.Scalar" in ops
    assert_same(torch.compile(decided, backend="eager", fullgraph=True)(X), decided(X))


@pytest.mark.parametrize("threshold", [0.7, math.inf, -math.inf])
def test_saved_with_the_model(bare, tmp_path, threshold):
    decided = bare.with_temperature(SHARP).with_abstain(rule(threshold=threshold))
    onesigma.save(decided, tmp_path / "m")
    loaded = onesigma.load(tmp_path / "m")
    assert loaded.settings == decided.settings
    assert_same(loaded(X), decided(X))


def test_from_labels_to_a_saved_model(bare, tmp_path):
    """The way a user goes; the rule decides on the model as it decided on the examples."""
    prediction = bare(X)
    labels = torch.arange(40) % 3
    found = onesigma.threshold(prediction, labels, risk=0.5)
    onesigma.save(bare.with_abstain(found), tmp_path / "m")
    act = onesigma.load(tmp_path / "m")(X).act
    assert float(act.double().mean()) == pytest.approx(found.coverage)
    assert float((act & (prediction.label != labels)).double().mean()) <= 0.5
