"""What conversion promises: the user's model untouched, weights shared, clear errors."""

import copy
import shutil
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from models import fresh_copy, inputs_for, trained
from torch import Tensor, nn

import onesigma
from onesigma import (
    CaptureError,
    Converted,
    InputError,
    ModelError,
    NoRandomness,
    OnesigmaError,
    Prediction,
    UnsupportedOp,
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


# The user's model


@pytest.mark.parametrize("name", ["residual", "norm_after_dropout", "in_place"])
@pytest.mark.parametrize("mode", [True, False])
def test_the_original_is_untouched(name, mode):
    model, x = fresh_copy(name).train(mode), inputs_for(name, 4)
    next(model.children()).eval()  # a mixed mode, to see that flags are kept one by one
    next(model.parameters()).requires_grad_(False)
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    before = _snapshot(model, x)
    converted = onesigma.convert(model, x)
    with torch.no_grad():
        converted(*x)
    onesigma.mc_dropout(model, 3)(*x)
    converted.double().to(torch.float32).half()
    after = _snapshot(model, x)
    assert before["ids"] == after["ids"]
    assert before["flags"] == after["flags"]
    assert before["attributes"] == after["attributes"]
    assert before["requires_grad"] == after["requires_grad"]
    assert before["hooks"] == after["hooks"]
    assert before["dtypes"] == after["dtypes"]
    for key, value in before["state"].items():
        assert torch.equal(value, after["state"][key])
    assert torch.equal(before["answer"], after["answer"])


def _snapshot(model: nn.Module, x: tuple[Tensor, ...]) -> dict:
    with torch.no_grad():
        answer = copy.deepcopy(model).eval()(*x)
    return {
        "ids": {k: (id(v), v.data_ptr()) for k, v in model.state_dict(keep_vars=True).items()},
        "state": {k: v.clone() for k, v in model.state_dict().items()},
        "dtypes": {k: v.dtype for k, v in model.state_dict().items()},
        "flags": [m.training for m in model.modules()],
        "attributes": [sorted(vars(m)) for m in model.modules()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "hooks": [len(m._forward_hooks) for m in model.modules()],
        "answer": answer,
    }


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


# The converted one


def test_train_and_eval_change_nothing():
    converted = onesigma.convert(small(), X)
    before = converted(X)
    assert_equal(before, converted.train()(X))
    assert_equal(before, converted.eval()(X))


@pytest.mark.parametrize("name", ["paper_cnn", "norm_after_dropout"])
def test_same_input_same_answer_bit_for_bit(name):
    x = inputs_for(name, 5)
    with torch.no_grad():
        torch.manual_seed(1)
        first = shared(name)(*x)
        torch.manual_seed(2)
        assert_equal(first, shared(name)(*x))
        again = onesigma.convert(trained(name), inputs_for(name, 2))
        assert_equal(first, again(*x))


@pytest.mark.parametrize("name", ["paper_cnn", "norm_after_dropout", "two_inputs"])
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


# Kinds of model


def test_half_precision_becomes_a_float32_copy():
    for dtype in (torch.float16, torch.bfloat16):
        model = small().to(dtype)
        converted = onesigma.convert(model, X.to(dtype))
        assert any(str(dtype) in note and "float32" in note for note in converted.report.notes)
        prediction = converted(X.to(dtype))
        assert prediction.mean.dtype == torch.float32
        torch.testing.assert_close(
            prediction.mean, model.float()(X.to(dtype).float()), rtol=1e-2, atol=1e-2
        )


def test_half_precision_model_under_monte_carlo():
    model = small().half()
    prediction = onesigma.mc_dropout(model, 4)(X.half())
    assert bool(torch.isfinite(prediction.mean).all())


def test_a_float64_model_takes_a_float32_example():
    converted = onesigma.convert(small().double(), X)
    assert converted(X.double()).mean.dtype == torch.float64


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.drop, self.head = nn.Embedding(10, 8), nn.Dropout(0.3), nn.Linear(8, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.drop(self.embed(words)).mean(1))


def test_an_embedding_model_takes_integers():
    converted = onesigma.convert(Words().eval(), torch.zeros(2, 5, dtype=torch.long))
    assert converted(torch.ones(3, 5, dtype=torch.long)).probs.shape == (3, 3)
    with pytest.raises(InputError, match="int64"):
        converted(torch.ones(3, 5))


def test_everything_dropped_is_certain():
    converted = onesigma.convert(small(1.0), X)
    prediction = converted(X)
    assert not prediction.var.any()
    torch.testing.assert_close(
        prediction.mean, converted.network.source.get_parameter("3.bias").expand(4, 3)
    )


class FixedBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(x).reshape(4, -1))


def test_a_model_that_fixes_its_batch_is_static_and_says_so():
    converted = onesigma.convert(FixedBatch().eval(), X)
    assert any("batch of 4" in note for note in converted.report.notes)
    assert converted(X).probs.shape == (4, 3)
    with pytest.raises(InputError, match=r"\(4, 6\)"):
        converted(X[:2])
    assert onesigma.mc_dropout(FixedBatch().eval(), 3)(X).probs.shape == (4, 3)


def test_dense_output_with_classes_last():
    model = nn.Sequential(nn.Dropout(0.4), nn.Linear(6, 3)).eval()
    x = X.reshape(2, 2, 6)
    prediction = onesigma.convert(model, x, class_dim=-1)(x)
    assert prediction.probs.shape == (2, 2, 3)
    assert prediction.entropy.shape == (2, 2)
    torch.testing.assert_close(prediction.probs.sum(-1), torch.ones(2, 2))
    assert torch.equal(prediction.label, prediction.probs.argmax(-1))
    assert torch.equal(prediction.confidence, prediction.probs.amax(-1))


class Masked(nn.Module):
    """An attention-like mask of −∞ before a softmax, the dropout after it: all legitimate."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, float("-inf")]))
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(torch.softmax(x + self.mask, -1)))


def test_a_mask_of_minus_infinity_is_no_bad_weight():
    prediction = onesigma.convert(Masked().eval(), X)(X)
    assert bool(torch.isfinite(prediction.mean).all())
    assert bool(torch.isfinite(prediction.var).all())


def test_torch_dropout_with_keywords():
    class Keywords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.dropout(x, train=self.training, p=0.25))

    (site,) = onesigma.convert(Keywords().eval(), X).report.sites
    assert site.rate == 0.25


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.drop = nn.Linear(6, 6), nn.Linear(6, 6), nn.Dropout(0.3)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.drop(self.one(x)))

    model = Tied().eval()
    converted = onesigma.convert(model, X)
    assert torch.equal(converted(X).mean, model(X))
    assert sum(p.numel() for p in converted.parameters()) == sum(
        p.numel() for p in model.parameters()
    )


# Errors


def test_no_dropout():
    with pytest.raises(NoRandomness, match="input_std"):
        onesigma.convert(nn.Linear(6, 3).eval(), X)


class TrainingOnly(nn.Module):
    def __init__(self, also: bool = False) -> None:
        super().__init__()
        self.also, self.drop, self.head = also, nn.Dropout(0.2), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = F.dropout(x, 0.5)
        return self.head(self.drop(x) if self.also else x)


def test_dropout_that_only_training_sees_is_named_in_the_error():
    with pytest.raises(NoRandomness, match=r"test_conversion\.py:\d+.* training mode") as error:
        onesigma.convert(TrainingOnly().eval(), X)
    assert "F.dropout(x, p, self.training)" in str(error.value)


def test_dropout_that_only_training_sees_is_reported():
    notes = onesigma.convert(TrainingOnly(also=True).eval(), X).report.notes
    assert len(notes) == 1
    assert "training mode" in notes[0]
    assert "p=0.5" in notes[0]


class Unsupported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x)
        x = torch.cumsum(x, 1)
        x = torch.softmax(x, 1)
        x = torch.special.erfcx(x)
        x = x / self.drop(x)
        return self.head(x)


def test_all_unsupported_ops_at_once_with_lines_and_remedies():
    with pytest.raises(UnsupportedOp) as error:
        onesigma.convert(Unsupported().eval(), X)
    text = str(error.value)
    assert text.startswith("4 op(s)")
    assert all(op in text for op in ("cumsum", "softmax", "erfcx", "div"))
    first = Unsupported.forward.__code__.co_firstlineno
    assert all(f"test_conversion.py:{first + i}" in text for i in (2, 3, 4, 5))
    assert "Division by an uncertain value" in text  # said by the rule itself
    assert "rules/README.md" in text
    assert "Put the dropout after it" in text
    assert "head" not in text.split("Put")[0]  # a supported op is not listed


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x)
        return self.head(F.scaled_dot_product_attention(x, x, x).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.drop, self.layer, self.head = nn.Dropout(0.3), kind(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.drop(x))[0].mean(1))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Attention(), "attention has no moment rule"),
        (Recurrent(nn.LSTM), "recurrent layers have no moment rule"),
        (Recurrent(nn.GRU), "recurrent layers have no moment rule"),
    ],
    ids=["attention", "lstm", "gru"],
)
def test_attention_and_recurrence_are_refused_with_a_way_out(model, text):
    with pytest.raises(UnsupportedOp, match=text) as error:
        onesigma.convert(model.eval(), X.reshape(2, 2, 6))
    assert "Put the dropout after" in str(error.value)
    assert "test_conversion.py:" in str(error.value)


class Divides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x)
        return x / x.sum(1, keepdim=True)


def test_a_rule_that_refuses_says_where():
    with pytest.raises(UnsupportedOp, match=r"aten\.div.*test_conversion\.py:\d+.*uncertain"):
        onesigma.convert(Divides().eval(), X)


class SharedMemory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x) + 1
        part = x[:, :3]
        part.mul_(2)
        return self.head(x)


def test_in_place_writes_to_shared_memory_are_refused():
    with pytest.raises(UnsupportedOp, match=r"mul_.*test_conversion\.py:\d+.*shares"):
        onesigma.convert(SharedMemory().eval(), X)


class WritesItsDropoutInput(nn.Module):
    """In eval, dropout returns its input itself: writing to the result changes the input too."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        y = self.drop(x)
        y.add_(1)
        return self.head(x + y)


def test_writing_through_an_eval_dropout_is_refused():
    with pytest.raises(UnsupportedOp, match="shares"):
        onesigma.convert(WritesItsDropoutInput().eval(), X)


class Assigns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x) + 1
        x[:, 0] = 0.0
        return self.head(x)


def test_assignment_to_a_slice_is_refused():
    with pytest.raises(UnsupportedOp, match=r"test_conversion\.py:\d+"):
        onesigma.convert(Assigns().eval(), X)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(x if x.sum() > 0 else -x))


def test_data_dependent_control_flow():
    with pytest.raises(CaptureError, match=r"torch\.where"):
        onesigma.convert(Branches().eval(), X)


class Cond(nn.Module):
    """torch.cond after the dropout (refused) or before it (certain, and left alone)."""

    def __init__(self, after: bool) -> None:
        super().__init__()
        self.after, self.drop, self.head = after, nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.after:
            x = self.drop(x)
        x = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return self.head(x if self.after else self.drop(x))


def test_a_nested_graph_that_meets_noise_is_refused():
    with pytest.raises(UnsupportedOp, match=r"\n  cond \(cond.*no rule"):
        onesigma.convert(Cond(after=True).eval(), X)


def test_a_nested_graph_without_noise():
    model = Cond(after=False).eval()
    converted = onesigma.convert(model, X)
    for x in (X, -X):  # both branches
        torch.testing.assert_close(converted(x).mean, model(x))


def test_wrong_example_shape():
    with pytest.raises(InputError, match=r"(?s)\(4, 5\).*shaped like a real batch"):
        onesigma.convert(small(), X[:, :5])
    with pytest.raises(InputError, match="batch dimension"):
        onesigma.convert(small(), torch.tensor(1.0))
    with pytest.raises(InputError, match="not str"):
        onesigma.convert(small(), "x")
    with pytest.raises(InputError, match="nothing"):
        onesigma.convert(small(), ())


def test_integer_example_for_a_float_model():
    with pytest.raises(InputError, match="int64"):
        onesigma.convert(small(), torch.ones(4, 6, dtype=torch.long))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_weights_are_named(bad):
    model = small()
    with torch.no_grad():
        model[3].weight[0, 0] = bad
    with pytest.raises(ModelError, match=r"3\.weight"):
        onesigma.convert(model, X)


def test_bad_buffers_are_named():
    model = nn.Sequential(nn.Dropout(0.3), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    model[1].running_mean[0] = float("nan")
    with pytest.raises(ModelError, match=r"1\.running_mean"):
        onesigma.convert(model, X)


def test_meta_device():
    with pytest.raises(ModelError, match="meta device"):
        onesigma.convert(small().to("meta"), X)


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.drop(x)), x


def test_several_outputs():
    with pytest.raises(ModelError, match=r"tuple.*Wrap the model"):
        onesigma.convert(Several().eval(), X)


def test_a_final_sigmoid_is_no_logit():
    model = nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 3), nn.Sigmoid()).eval()
    with pytest.raises(ModelError, match=r"sigmoid.*task='regression'"):
        onesigma.convert(model, X)
    assert onesigma.convert(model, X, task="regression")(X).mean.shape == (4, 3)


def test_one_class():
    with pytest.raises(ModelError, match=r"class_dim|regression"):
        onesigma.convert(small(classes=1), X)


def test_a_class_dim_that_does_not_exist():
    with pytest.raises(OnesigmaError):
        onesigma.convert(small(), X, class_dim=5)


@pytest.mark.parametrize(
    "std",
    [
        torch.ones(2),
        torch.ones(8),  # the length of the signal, not of its channels
        torch.ones(3, 7),
        torch.ones(1, 3, 8),
        -1.0,
        float("nan"),
        float("inf"),
        torch.tensor([1.0, -1.0, 1.0]),
    ],
    ids=["channels", "length", "sample", "batch", "negative", "nan", "inf", "one_negative"],
)
def test_wrong_input_std(std):
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(24, 3)).eval()
    with pytest.raises(InputError, match="input_std"):
        onesigma.convert(model, torch.randn(2, 3, 8), input_std=std)


def test_input_std_needs_one_floating_input():
    with pytest.raises(InputError, match="one floating-point input"):
        onesigma.convert(Words().eval(), torch.zeros(2, 5, dtype=torch.long), input_std=0.1)
    with pytest.raises(InputError, match="one floating-point input"):
        onesigma.convert(trained("two_inputs"), inputs_for("two_inputs", 2), input_std=0.1)


@pytest.mark.parametrize(
    "wrong", [{"task": "ranking"}, {"sampling": "sobol"}, {"dropout": "old"}, {"draws": 1}]
)
def test_wrong_choices(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(InputError, match=f"{name}=.?{value}"):
        onesigma.convert(small(), X, **wrong)


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


class Uncopyable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)
        self.items = (n for n in range(3))  # a generator cannot be copied

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(x))


def test_a_model_that_cannot_be_copied():
    with pytest.raises(CaptureError, match="cannot be copied"):
        onesigma.convert(Uncopyable().eval(), X)


def test_a_rule_of_ones_own():
    """``onesigma.rule`` adds an op that was refused before."""
    from onesigma.rules import RULES

    op = torch.ops.aten.sin.default
    model = nn.Sequential(nn.Dropout(0.3), Sine(), nn.Linear(6, 3)).eval()
    if op not in RULES:
        with pytest.raises(UnsupportedOp, match="sin"):
            onesigma.convert(model, X)
    known = RULES.pop(op, None)
    try:

        @onesigma.rule(op, assumes=(onesigma.Assumption.NORMAL,), note="first order")
        def sin(x):
            return onesigma.Gaussian(torch.sin(x.mean), torch.cos(x.mean) ** 2 * x.var)

        with pytest.raises(ValueError, match="replace=True"):
            onesigma.rule(op)(sin)
        converted = onesigma.convert(model, X)
        entry = next(e for e in converted.report.entries if e.op == "aten.sin")
        assert "first order" in entry.note
        var = X.cos() ** 2 * (0.3 / 0.7 * X**2) @ (model[2].weight ** 2).T
        torch.testing.assert_close(converted(X).var, var)
    finally:
        RULES.pop(op, None)
        if known is not None:
            RULES[op] = known


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)
