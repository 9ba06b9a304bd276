"""A guard behind a network: nothing else changes, and every runtime says the same."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma import runtime
from onesigma.calibration.guarding import Channels, with_guard, with_reference
from onesigma.lab import c_verify as verify
from onesigma.runtime.comparison import TOLERANCE, mismatch

X = torch.randn(300, 4, 24, generator=torch.Generator().manual_seed(0))
NAMES = ("ax", "ay", "az", "gx")
needs_gcc = pytest.mark.skipif(
    verify.TARGETS["host"].missing is not None, reason=f"{verify.TARGETS['host'].missing}"
)


def network() -> nn.Sequential:
    torch.manual_seed(4)
    layers = [nn.Conv1d(4, 8, 5), nn.ReLU(), nn.Dropout(0.3), nn.Conv1d(8, 8, 5), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(0.3), nn.Flatten(), nn.Linear(128, 3)).eval()


FORMS = {
    "moments": partial(onesigma.convert, network(), X[:4]),
    "particles": partial(onesigma.convert, network(), X[:4], particles=4),
}


@pytest.fixture(scope="module", params=FORMS)
def pair(request):
    before = FORMS[request.param]()
    return before, with_guard(before, (X,), channels=Channels(NAMES))


def test_all_else_stays_as_it_was_bit_for_bit(pair):
    before, after = (model(X[:20]) for model in pair)
    for name, value in before.arrays().items():
        assert torch.equal(value, getattr(after, name)), name
    assert before.novelty is None
    assert after.novelty.shape == (20,)
    assert after.contract.shape == (20, 16)


def test_known_is_familiar_and_foreign_is_not(pair):
    _, model = pair
    with torch.no_grad():
        known, foreign = model(X[:100]), model(30 + 5 * X[:100])
    assert float((known.novelty >= 0.02).float().mean()) > 0.9
    assert bool(known.in_contract.float().mean() > 0.95)
    assert float(foreign.novelty.max()) < 1e-3
    assert model.explain(known).count("") > 90
    assert all(
        words.split(":")[0].removeprefix("channel ") in NAMES for words in model.explain(foreign)
    )


def test_it_survives_saving(pair, tmp_path):
    _, model = pair
    onesigma.save(model, tmp_path / "m.safetensors")
    loaded = onesigma.load(tmp_path / "m.safetensors")
    assert loaded.settings.contract == model.settings.contract
    assert loaded.reference == model.reference
    for a, b in zip(model(X[:5]).arrays().values(), loaded(X[:5]).arrays().values(), strict=True):
        assert torch.equal(a, b)


RULE = onesigma.AbstainRule("entropy", 1.0, 0.05, None, 100, 0.8, 0.03, novelty=0.02)
INPUTS = torch.cat([X[:3], 0 * X[:1], 40 * X[:1], X[:1] + 6])


@pytest.fixture(scope="module")
def ruled():
    model = with_guard(FORMS["moments"](), (X,), channels=Channels(NAMES, ("g",) * 4, 50.0))
    heat = onesigma.Temperature(1.3, shift=0.2)
    model = model.with_temperature(heat).with_abstain(RULE)
    return with_reference(model, (X,), torch.rand(len(X)))


def test_the_runtime_says_the_same(ruled, tmp_path):
    onesigma.export(ruled, tmp_path / "m.onnx", class_names=["a", "b", "c"])
    device = runtime.load(tmp_path / "m.onnx")
    with torch.no_grad():
        wanted = ruled(INPUTS)
    found = device(INPUTS.numpy())
    for name, value in wanted.arrays().items():
        assert mismatch(name, getattr(found, name), value.numpy()) < TOLERANCE, name
    assert found.reason == wanted.reason
    assert found.reason[3:] == ["broken input"] * 3
    assert device.explain(found) == ruled.explain(wanted)
    assert device.contract == ruled.settings.contract
    assert device.contract.rate == 50.0
    assert device.contract.window == 24
    assert device.reference == ruled.reference
    assert len(json.dumps(device.reference.to_dict())) < 1000


@needs_gcc
def test_c_says_the_same(ruled, tmp_path):
    generated = onesigma.export(ruled, tmp_path / "c")
    samples = [{"input": x.numpy()[None]} for x in INPUTS]
    (name,) = generated.inputs
    ran = verify.run(generated, [{name: s["input"]} for s in samples], flags=verify.SANITIZERS)
    with torch.no_grad():
        wanted = ruled(INPUTS)
    for row, fields in enumerate(ran.outputs):
        for name, value in fields.items():
            expected = np.ravel(getattr(wanted, name)[row].numpy())
            assert mismatch(name, value.astype(expected.dtype), expected) < 2 * TOLERANCE, name


def test_what_changes_the_answers_changes_what_is_usual(ruled):
    """Or a monitor would compare with answers that the model no longer gives."""
    rule = replace(RULE, threshold=1.2)  # acts on all that is familiar
    ruled = with_reference(ruled.with_abstain(rule), (X,), torch.rand(len(X)))
    assert [*ruled.reference.tails][-1] == "abstained"
    other = ruled.with_abstain(None)
    assert "abstained" not in {*other.reference.tails, *other.reference.known}
    assert other.reference.tails["novelty"] == ruled.reference.tails["novelty"]
    assert other.with_temperature(None).reference is None


def test_known_inputs_are_no_surer_than_new_ones():
    """Of few inputs it knows each one: held against them, new ones would look like a drift."""
    draw = torch.Generator().manual_seed(5)
    few, new = (torch.randn(count, 4, 24, generator=draw) for count in (100, 4000))
    model = with_guard(FORMS["moments"](), (few,))
    with torch.no_grad():
        seen, fresh = model(few), model(new)
    naive, monitor = (
        onesigma.Monitor(reference)
        for reference in (onesigma.Reference.learn(seen), model.reference)
    )
    naive.update(fresh)
    monitor.update(fresh)
    assert monitor.alarm_count == 0
    assert naive.alarm_count > 4  # what is promised


def test_not_a_number_is_never_acted_on(ruled):
    x = X[:2].clone()
    x[0, 1, 3] = float("nan")
    found = ruled(x)
    assert not bool(found.act[0])
    assert found.reason[0] == "broken input"


def test_double_precision():
    x = X.double()
    model = with_guard(onesigma.convert(network().double(), x[:4]), (x,))
    single = with_guard(FORMS["moments"](), (X,))
    with torch.no_grad():
        found, wanted = model(x[:20]), single(X[:20])
    assert found.novelty.dtype == torch.float64
    torch.testing.assert_close(found.novelty.float(), wanted.novelty, rtol=1e-2, atol=1e-3)


def test_inputs_of_whole_numbers_have_no_guard():
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.drop, self.last = nn.Embedding(9, 8), nn.Dropout(0.3), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.drop(self.table(x).mean(1)))

    torch.manual_seed(0)
    words = torch.randint(0, 9, (60, 5))
    model = with_guard(onesigma.convert(Words().eval(), words[:4]), (words,))
    assert model(words[:2]).novelty is None
    assert any("no guard" in note for note in model.report.notes)
