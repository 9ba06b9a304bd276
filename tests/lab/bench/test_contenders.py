"""What is timed must be what it says: each program against another route to the same answer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lab.bench.small_model import CLASSES, SHAPE, examples, exported, small
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma import Converted
from onesigma.baselines.backbone import Totals
from onesigma.converted import DISTILLED
from onesigma.errors import FileError, InputError
from onesigma.lab.bench import contenders as target
from onesigma.lab.bench import programs
from onesigma.lab.bench.contenders import (
    AS_SAVED,
    CONVERTED,
    FITTED,
    PLAIN,
    Contender,
    make_contenders,
    make_subject,
    subject_of_files,
    sum_up,
)
from onesigma.lab.bench.measurement import check
from onesigma.lab.bench.runtimes import runtime
from onesigma.rules.corrections import Gain

pytestmark = pytest.mark.xdist_group("contenders")  # what is slow to make, once

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = tuple(x.numpy() for x in examples())
eager, onnxruntime, openvino = map(runtime, ("eager", "onnxruntime", "openvino"))


def run(program, chosen, inputs=X):
    return chosen.start(chosen.translate(program, inputs), inputs, 1)(*inputs)


@pytest.fixture(scope="module")
def model() -> Converted:
    return small()


@pytest.fixture(scope="module")
def entries(model, tmp_path_factory) -> dict[str, Contender]:
    folder = tmp_path_factory.mktemp("programs")
    made = make_contenders(model, examples(), folder, passes=(3,), sizes=(2,), fitted=False)
    return {entry.name: entry for entry in made}


def test_who_takes_part(entries):
    rest = ["MC-3, one batch", "MC-3, loop", "ensemble of 2", "ApDeepSense"]
    assert list(entries) == [PLAIN, CONVERTED, *rest]
    assert len(entries["MC-3, loop"].programs) == 3
    assert len(set(entries["MC-3, loop"].programs)) == 1
    assert len(set(entries["ensemble of 2"].programs)) == 2


def test_onnx_runtime_answers_as_pytorch_does(entries):
    for entry in entries.values():
        run_here = entry.run(lambda p: onnxruntime.start(onnxruntime.translate(p, X), X, 1))
        check(entry, run_here, X)
        assert len(run_here(*X)[0]) == len(X[0])


def test_the_plain_network_is_network_and_softmax(model, entries):
    (probs,) = run(entries[PLAIN].programs[0], onnxruntime)
    with torch.no_grad():
        np.testing.assert_allclose(probs, model.source(*examples())[0].softmax(1), rtol=1e-5)


def test_one_pass_is_the_converted_model(model, entries):
    found = run(entries[CONVERTED].programs[0], eager)
    answer = model(*examples()).arrays()
    for array, expected in zip(found, answer.values(), strict=True):
        np.testing.assert_allclose(array, expected.detach(), rtol=1e-4, atol=1e-6)


def test_what_is_fitted_is_of_the_same_network(model):
    made = target.one_passes(model, examples())
    assert list(made) == [CONVERTED, FITTED]
    assert made[CONVERTED] is model
    assert made[FITTED].settings.form == DISTILLED
    ours, theirs = (made[name].source(*examples())[0] for name in made)
    assert torch.equal(ours, theirs)


def test_monte_carlo_as_one_batch_has_the_exact_moments(model, tmp_path):
    """Dropout before a linear layer: the moments of one pass are exact, and sampling must agree."""
    passes = 4000
    program = programs.all_masks(model, examples(), passes, tmp_path / "mc.onnx")
    with torch.no_grad():
        exact = model(*examples())
    error = exact.std.numpy() / passes**0.5
    path = openvino.translate(program, X)
    assert path.name == "mc.uniform.onnx"
    without_dropout = onnxruntime.start(path, X, 1)(*X)
    for answer in (run(program, eager), run(program, onnxruntime), without_dropout):
        mean, var, probs, *_ = answer
        assert (np.abs(mean - exact.mean.numpy()) < 5 * error).all()
        # The error of a variance; sums of bounded terms have no heavier tails than a normal.
        assert (np.abs(var / exact.var.numpy() - 1) < 5 * (2 / passes) ** 0.5).all()
        np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)


def test_an_ensemble_has_other_weights_of_the_same_size(model, entries):
    first, second = entries["ensemble of 2"].programs
    assert not np.allclose(run(first, eager)[0], run(second, eager)[0])
    assert first.path.stat().st_size == second.path.stat().st_size
    with torch.no_grad():  # the model's own weights are as they were
        assert torch.equal(model.source(*examples())[0], small().source(*examples())[0])


def test_a_saved_calibration_is_measured_as_it_is(model):
    corrected = replace(model.settings, corrections={"linear": (Gain(1.5),)})
    calibrated = model.with_changes(settings=corrected)
    made = target.one_passes(calibrated, examples(), fitted=False)
    assert list(made) == [CONVERTED, AS_SAVED]
    assert made[AS_SAVED] is calibrated
    assert not made[CONVERTED].settings.corrections


def test_a_fitted_model_with_guard_and_rule_is_measured_beside_moments(tmp_path):
    x = torch.randn(80, *SHAPE, generator=torch.Generator().manual_seed(2))
    labelled = (x[40:] + 0.1, torch.arange(40) % CLASSES)
    with short_fit():
        ready = onesigma.fit(small().own.model, x, worth=1, labelled=labelled, risk=0.9)
    onesigma.save(ready, tmp_path / "fitted.safetensors")
    paths = [tmp_path / "fitted.safetensors"]
    found = make_subject(paths, tmp_path, passes=(3,), sizes=(2,))
    entries = {each.name: each for each in found.contenders}
    assert {PLAIN, CONVERTED, AS_SAVED} <= entries.keys()
    moments = run(entries[CONVERTED].programs[0], eager)
    for array, expected in zip(moments, small()(*examples()).arrays().values(), strict=True):
        np.testing.assert_allclose(array, expected.detach(), rtol=1e-4, atol=1e-6)
    assert len(run(entries[AS_SAVED].programs[0], eager)) > len(
        moments
    )  # novelty, contract and act


@pytest.mark.parametrize(("shape", "dim"), [((5, 3), 1), ((5, 3), -1), ((2, 3, 4), 1)])
def test_runs_are_summed_up_as_the_baselines_do(shape, dim):
    logits = torch.randn(7, *shape, generator=torch.Generator().manual_seed(0))
    totals = Totals("classification", dim)
    totals.add(logits)
    expected = totals.prediction()
    found = sum_up(list(logits.numpy()), dim)
    names = ("mean", "var", "probs", "entropy", "aleatoric", "epistemic")
    for name, value in zip(names, found, strict=True):
        np.testing.assert_allclose(value, getattr(expected, name), rtol=1e-4, atol=1e-6)


def test_a_regression_model_has_moments_only(tmp_path, monkeypatch):
    monkeypatch.setattr(target, "one_passes", lambda *_, **__: {})
    made = make_contenders(small(task="regression"), examples(), tmp_path, passes=(3,), sizes=())
    assert [entry.name for entry in made] == [PLAIN, "MC-3, one batch", "MC-3, loop"]
    starts = [entry.run(lambda p: eager.start(p.graph, X, 1)) for entry in made]
    assert [len(start(*X)) for start in starts] == [1, 2, 2]


def test_noise_that_a_runtime_took_out_is_noticed():
    entry = Contender("MC", (), random=True)
    with pytest.raises(ValueError, match="the dropout was removed"):
        check(entry, lambda *inputs: [np.ones(3)], X)


def test_a_wrong_answer_is_noticed(entries):
    right = run(entries[PLAIN].programs[0], eager)
    with pytest.raises(ValueError, match="other answers than PyTorch"):
        check(entries[PLAIN], lambda *inputs: [1.1 * right[0]], X)
    with pytest.raises(ValueError, match="other answers than PyTorch"):
        check(entries[PLAIN], lambda *inputs: [np.full_like(right[0], np.nan)], X)


def test_a_model_with_a_rule_keeps_its_row(model, tmp_path):
    """Whether to act is a boolean, of which numpy subtracts none."""
    labels = model.predict(X[0]).label
    rule = onesigma.threshold(model.predict(X[0]), labels, risk=0.3)
    made = programs.one_pass(model.with_abstain(rule), examples(), tmp_path / "ruled.onnx")
    entry = Contender(AS_SAVED, (made,))
    found = run(made, onnxruntime)
    assert found[-1].dtype == bool
    check(entry, lambda *inputs: found, X)
    with pytest.raises(ValueError, match="other answers than PyTorch"):
        check(entry, lambda *inputs: [*found[:-1], ~found[-1]], X)


@pytest.mark.parametrize("names", [["model.safetensors", "full.onnx"], ["text.txt"]])
def test_other_files_are_refused(tmp_path, names):
    with pytest.raises(InputError, match=r"Pass one \.safetensors"):
        make_subject([exported() / name for name in names], tmp_path)


def test_onnx_files_must_be_readable_and_alike(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(FileError, match="cannot be read"):
        subject_of_files([tmp_path / "bad.onnx"], tmp_path)
    linear = nn.Sequential(nn.Dropout(0.4), nn.Linear(5, 3)).eval()
    onesigma.export(onesigma.convert(linear, torch.randn(2, 5)), tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"other\.onnx takes other inputs"):
        subject_of_files([exported() / "full.onnx", tmp_path / "other.onnx"], tmp_path)


def test_a_stored_file_stays_where_it_is(tmp_path):
    program = programs.stored_program(exported() / "full.onnx", tmp_path)
    assert program.path == exported() / "full.onnx"
    assert (program.name, program.folder) == ("full", tmp_path)
