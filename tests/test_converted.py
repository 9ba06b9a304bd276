"""``Converted``: weights shared, one answer everywhere, wrong input refused."""

import copy
import shutil
from dataclasses import replace
from functools import cache

import pytest
import torch
from models import fresh_copy, inputs_for, trained
from torch import Tensor, nn

import onesigma
from onesigma import (
    Converted,
    InputError,
    Prediction,
)

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def small(p: float = 0.3, classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(p), nn.Linear(8, classes)).eval()


@cache
def shared(name: str) -> Converted:
    """A converted network of the zoo. Shared: do not change it."""
    return onesigma.convert(trained(name), inputs_for(name, 4))


def tensors_of(prediction: Prediction) -> list[Tensor]:
    fields = ("mean", "var", "probs", "entropy", "aleatoric", "epistemic")
    return [getattr(prediction, field) for field in fields]


def assert_equal(a: Prediction, b: Prediction) -> None:
    for left, right in zip(tensors_of(a), tensors_of(b), strict=True):
        assert torch.equal(left, right)


def assert_agree(a: Prediction, b: Prediction) -> None:
    for left, right in zip(tensors_of(a), tensors_of(b), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_weights_are_shared():
    model = small()
    converted = onesigma.convert(model, X)
    theirs = {p.data_ptr() for p in model.parameters()}
    assert {p.data_ptr() for p in converted.parameters()} == theirs
    assert {p.data_ptr() for p in converted.source.parameters()} == theirs
    before = converted(X)
    with torch.no_grad():
        model[3].weight.mul_(2)
        model[3].bias.zero_()
    after = converted(X)
    torch.testing.assert_close(after.var, 4 * before.var)
    assert torch.equal(after.mean, model(X))


def test_batch_norm_statistics_are_shared():
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    converted = onesigma.convert(model, X)
    before = converted(X).var
    model[1].running_var.mul_(4)
    torch.testing.assert_close(converted(X).var * 4, before, rtol=1e-3, atol=0)


def test_train_and_eval_change_nothing():
    converted = onesigma.convert(small(), X)
    before = converted(X)
    assert_equal(before, converted.train()(X))
    assert_equal(before, converted.eval()(X))


@pytest.mark.parametrize("name", ["paper_cnn"])
def test_same_input_same_answer_bit_for_bit(name):
    x = inputs_for(name, 5)
    with torch.no_grad():
        torch.manual_seed(1)
        first = shared(name)(*x)
        torch.manual_seed(2)
        assert_equal(first, shared(name)(*x))
        again = onesigma.convert(trained(name), inputs_for(name, 2))
        assert_equal(first, again(*x))


@pytest.mark.parametrize("name", ["paper_cnn", "two_inputs"])
def test_a_sample_does_not_depend_on_its_batch(name):
    x = inputs_for(name, 6)
    with torch.no_grad():
        batch = shared(name)(*x)
        alone = Prediction.cat([shared(name)(*(t[i : i + 1] for t in x)) for i in range(6)])
    assert_agree(batch, alone)


def test_an_empty_batch():
    prediction = onesigma.convert(small(), X)(X[:0])
    assert prediction.probs.shape == (0, 3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile(backend):
    converted, x = shared("norm_after_dropout"), inputs_for("norm_after_dropout", 5)
    with torch.no_grad():
        compiled = torch.compile(converted, backend=backend, fullgraph=True)(*x)
        assert_agree(compiled, converted(*x))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # inductor warns about the machine it runs on
def test_torch_compile_with_inductor():
    converted = onesigma.convert(small(), X)
    with torch.no_grad():
        assert_agree(torch.compile(converted)(X), converted(X))


def test_gradients_reach_input_and_weights():
    model, (x,) = fresh_copy("norm_after_dropout"), inputs_for("norm_after_dropout", 3)
    converted = onesigma.convert(model, x)
    x = x.clone().requires_grad_()
    prediction = converted(x)
    (prediction.epistemic.sum() + prediction.var.sum()).backward()
    for tensor in (x, *model.parameters()):
        assert tensor.grad is not None
        assert bool(torch.isfinite(tensor.grad).all())
        assert bool(tensor.grad.any())


def test_move_to_float64():
    converted = onesigma.convert(small(), X)
    before = converted(X)
    double = converted.to(torch.float64)
    assert double is converted
    assert {p.dtype for p in converted.parameters()} == {torch.float64}
    after = converted(X.double())
    assert after.probs.dtype == torch.float64
    torch.testing.assert_close(after.var.float(), before.var)
    # The Monte-Carlo reference moves along, and still shares its weights.
    assert {id(p) for p in converted.source.parameters()} <= {id(p) for p in converted.parameters()}
    assert onesigma.mc_dropout(converted, 3)(X.double()).mean.dtype == torch.float64


def test_deepcopy():
    converted = onesigma.convert(small(), X)
    twin = copy.deepcopy(converted)
    assert_equal(converted(X), twin(X))
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
        assert converted(X).var.any()
        assert not twin(X).var.any()
        assert not twin.source(X)[0].any()


def test_state_dict_round_trip():
    converted, other = onesigma.convert(small(), X), onesigma.convert(small(0.3), X)
    with torch.no_grad():
        other.network.get_parameter("source.3.weight").zero_()
    other.load_state_dict(converted.state_dict())
    assert_equal(converted(X), other(X))


def test_repr_names_the_sites():
    assert "sites=1" in repr(onesigma.convert(small(), X))


def test_wrong_input_at_call_time():
    converted = onesigma.convert(small(), X)
    with pytest.raises(InputError, match=r"\(batch, 6\), not \(4, 5\)"):
        converted(X[:, :5])
    with pytest.raises(InputError, match=r"\(batch, 6\), not \(6,\)"):
        converted(X[0])
    with pytest.raises(InputError, match="int64"):
        converted(X.long())
    with pytest.raises(InputError, match="ndarray"):
        converted(X.numpy())
    with pytest.raises(InputError, match="1 inputs, not 2"):
        converted(X, X)
    with pytest.raises(InputError, match="float64"):
        converted(X.double())


def test_wrong_precision_after_a_move():
    converted = onesigma.convert(small(), X).double()
    with pytest.raises(InputError, match="float64"):
        converted(X)


def test_a_kept_answer_comes_with_its_own_softmax(tmp_path):
    model = small()
    converted = onesigma.convert(model, X)
    assert converted(X).plain_probs is None
    kept = converted.with_changes(settings=replace(converted.settings, keep_answer=True))
    onesigma.save(kept, tmp_path / "m.safetensors")
    for each in (kept, onesigma.load(tmp_path / "m.safetensors")):
        assert torch.equal(each(X).mean, model(X))
        assert torch.equal(each(X).plain_probs, model(X).softmax(1))


def test_predict_takes_arrays_of_any_size_and_builds_no_gradients():
    converted = onesigma.convert(small(), X)
    many = torch.randn(700, 6, generator=torch.Generator().manual_seed(1))
    expected = converted(many)
    for given in (many, many.numpy(), many.double().numpy()):
        answer = converted.predict(given, batch=64)
        assert_agree(answer, expected)
        assert not any(part.requires_grad for part in answer.arrays().values())
    assert expected.probs.requires_grad
    with pytest.raises(InputError, match=r"not ndarray\. Arrays are taken by predict"):
        converted(many.numpy())


def test_predict_runs_batch_by_batch(monkeypatch):
    converted, sizes = onesigma.convert(small(), X), []
    forward = Converted.forward

    def count(self: Converted, x: Tensor) -> Prediction:
        sizes.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(Converted, "forward", count)
    converted.predict(torch.zeros(600, 6))
    assert sizes == [256, 256, 88]


@pytest.mark.parametrize(
    "given", [torch.zeros(0, 6), (), torch.tensor(1.0), "text", torch.zeros(2, 5)]
)
def test_predict_refuses_what_is_no_batch(given):
    with pytest.raises(InputError):
        onesigma.convert(small(), X).predict(given)
    with pytest.raises(InputError, match="batch=0"):
        onesigma.convert(small(), X).predict(X, batch=0)
