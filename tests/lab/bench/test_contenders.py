"""What is timed must be what it says: each program against another route to the same answer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lab.bench.small import examples, small
from onesigma.lab.bench.bench import check
from onesigma.lab.bench.network import INPUT_SHAPE, paper_cnn, seeded_cnn

from onesigma import Converted
from onesigma.baselines.totals import Totals
from onesigma.exporters.agreement import columns
from onesigma.lab.bench import contenders as target
from onesigma.lab.bench import programs
from onesigma.lab.bench.contenders import (
    AS_SAVED,
    CALIBRATED,
    MODES,
    PLAIN,
    Contender,
    contenders,
    summed_up,
)
from onesigma.lab.bench.runtimes import eager, onnxruntime, openvino

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = tuple(x.numpy() for x in examples())


def run(program, runtime, inputs=X):
    return runtime.start(runtime.translate(program, inputs), inputs, 1)(*inputs)


@pytest.fixture(scope="module")
def model() -> Converted:
    return small()


@pytest.fixture(scope="module")
def entries(model, tmp_path_factory) -> dict[str, Contender]:
    folder = tmp_path_factory.mktemp("programs")
    made = contenders(model, examples(), folder, passes=(3,), sizes=(2,))
    return {entry.name: entry for entry in made}


def test_who_takes_part(entries):
    rest = ["MC-3, one batch", "MC-3, loop", "ensemble of 2", "ApDeepSense"]
    assert list(entries) == [PLAIN, *MODES, CALIBRATED, *rest]
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
    assert entries["one pass, full"].programs[0].graph is model.network
    frozen = small(mean="frozen", variance="lowrank")(*examples())
    found = run(entries["one pass, frozen + lowrank"].programs[0], eager)
    for array, expected in zip(found, columns(frozen).values(), strict=True):
        np.testing.assert_allclose(array, expected.detach(), rtol=1e-4, atol=1e-6)


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
    """It belongs to the mode it was made for: in another it might not even run."""
    tuned = replace(model.settings, mean="frozen", tuning={"linear": {"gain": 1.5}})
    calibrated = model.replaced(settings=tuned)
    made = target.one_passes(calibrated, examples())
    assert list(made) == [*MODES, CALIBRATED, AS_SAVED]
    assert made[AS_SAVED] is calibrated
    assert all(not made[name].settings.tuning for name in MODES)
    assert made[CALIBRATED].settings.tuning["linear"]["gain"] != 1.5


@pytest.mark.parametrize(("shape", "dim"), [((5, 3), 1), ((5, 3), -1), ((2, 3, 4), 1)])
def test_runs_are_summed_up_as_the_baselines_do(shape, dim):
    logits = torch.randn(7, *shape, generator=torch.Generator().manual_seed(0))
    totals = Totals("classification", dim)
    totals.add(logits)
    expected = totals.prediction()
    found = summed_up(list(logits.numpy()), dim)
    names = ("mean", "var", "probs", "entropy", "aleatoric", "epistemic")
    for name, value in zip(names, found, strict=True):
        np.testing.assert_allclose(value, getattr(expected, name), rtol=1e-4, atol=1e-6)


def test_a_regression_model_has_moments_only(tmp_path, monkeypatch):
    monkeypatch.setattr(target, "one_passes", lambda *_: {})
    made = contenders(small(task="regression"), examples(), tmp_path, passes=(3,), sizes=())
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


def test_the_papers_network():
    network = paper_cnn()
    assert network(torch.zeros(2, *INPUT_SHAPE)).shape == (2, 6)
    convolutions = [m for m in network if isinstance(m, torch.nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [64] * 4
    assert [m.kernel_size for m in convolutions] == [(3, 3)] * 4
    assert not network.training


def test_the_benchmarks_weights_are_the_same_each_time_and_keep_the_signal():
    first, second = (seeded_cnn(width=16, size=8) for _ in range(2))
    x = torch.randn(8, 6, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(first(x), second(x))
        assert 0.3 < first(x).std() < 3
