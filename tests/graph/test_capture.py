"""Capture: the user's model untouched, every dropout site found, clear errors."""

import copy
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from models import fresh_copy, inputs_for
from torch import Tensor, nn

import onesigma
from onesigma import (
    CaptureError,
    InputError,
    ModelError,
    NoRandomness,
)
from onesigma.graph.capture import capture

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def small(p: float = 0.3, classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(p), nn.Linear(8, classes)).eval()


@pytest.mark.parametrize(
    ("name", "mode"), [("residual", True), ("norm_after_dropout", False), ("in_place", True)]
)
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


class TrainingOnly(nn.Module):
    def __init__(self, also: bool = False) -> None:
        super().__init__()
        self.also, self.drop, self.head = also, nn.Dropout(0.2), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = F.dropout(x, 0.5)
        return self.head(self.drop(x) if self.also else x)


def test_dropout_that_only_training_sees_is_carried():
    model = TrainingOnly().eval()
    found = onesigma.convert(model, X)
    assert [site.rate for site in found.report.sites] == [0.5]
    assert not found.report.notes
    torch.testing.assert_close(found(X).mean, model(X))
    torch.testing.assert_close(found(X).var, X.square() @ model.head.weight.square().T)
    both = onesigma.convert(TrainingOnly(also=True).eval(), X).report
    assert sorted(site.rate for site in both.sites) == [0.2, 0.5]


class MoreInTraining(TrainingOnly):
    """In training it computes something else, so that its graph there is not the network's."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2 if self.training else 1)


def test_dropout_that_only_another_computation_sees_is_named():
    with pytest.raises(NoRandomness, match=r"test_\w+\.py:\d+.* training mode") as error:
        onesigma.convert(MoreInTraining().eval(), X)
    assert "F.dropout(x, p, self.training)" in str(error.value)
    notes = onesigma.convert(MoreInTraining(also=True).eval(), X).report.notes
    assert len(notes) == 1
    assert "training mode" in notes[0]
    assert "p=0.5" in notes[0]


def test_wrong_example_shape():
    with pytest.raises(InputError, match=r"(?s)\(4, 5\).*shaped like a real batch"):
        onesigma.convert(small(), X[:, :5])
    with pytest.raises(InputError, match="batch dimension"):
        onesigma.convert(small(), torch.tensor(1.0))
    with pytest.raises(InputError, match="is a str"):
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


@dataclass
class Answer:
    logits: Tensor
    state: object = None


Pair = namedtuple("Pair", "logits state")
RETURNED = {  # what is returned, and how its logits are named
    "tuple": (lambda logits, h: (h, logits), 1),
    "list": (lambda logits, h: [h, logits], -1),
    "nested": (lambda logits, h: (h, (h, logits)), "1.1"),
    "dict": (lambda logits, h: {"state": h, "logits": logits}, "logits"),
    "dict by place": (lambda logits, h: {"state": h, "logits": logits}, 1),
    "dataclass": (lambda logits, h: Answer(logits, h), "logits"),
    "named tuple": (lambda logits, h: Pair(logits, h), "logits"),
    "object": (lambda logits, h: SimpleNamespace(logits=logits, state=h), "logits"),
    "softmax of several": (lambda logits, h: (h, logits.softmax(1)), 1),
    "one in a tuple": (lambda logits, h: (logits,), None),
    "one in a dict": (lambda logits, h: {"logits": logits, "label": logits.argmax(1)}, None),
    "one in a dataclass": (lambda logits, h: Answer(logits), None),
}


class Returns(nn.Module):
    def __init__(self, answer) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.drop, self.head, self.answer = nn.Dropout(0.3), nn.Linear(6, 3), answer

    def forward(self, x: Tensor):
        h = self.drop(x)
        return self.answer(self.head(h), h)


def var_of_logits(head: nn.Linear, x: Tensor) -> Tensor:
    """Σ w² x² p / q."""
    return (0.3 / 0.7 * x**2) @ head.weight.T**2


@pytest.mark.parametrize("name", RETURNED)
def test_the_answer_among_several_outputs(name):
    answer, output = RETURNED[name]
    model = Returns(answer)
    converted = onesigma.convert(model, X, output=output)
    out = converted(X)
    torch.testing.assert_close(out.mean, model.head(X))
    torch.testing.assert_close(out.var, var_of_logits(model.head, X))
    chosen = [note for note in converted.report.notes if "its one floating-point tensor" in note]
    assert len(chosen) == (output is None)
    # Monte Carlo runs the network itself, and picks the same: 4 standard errors of a variance.
    for asked in (converted, model):
        sampled = onesigma.mc_dropout(asked, 2000, output=output)(X)
        assert torch.allclose(sampled.var, out.var, rtol=4 * (2 / 2000) ** 0.5, atol=1e-3)


def test_all_outputs_are_listed_with_how_to_say_it():
    model = Returns(lambda logits, h: (logits, (h, logits.argmax(1))))
    with pytest.raises(ModelError) as error:
        onesigma.convert(model, X)
    text = str(error.value)
    assert "output=0: (4, 3) torch.float32" in text
    assert "output='1.0': (4, 6) torch.float32" in text
    assert "output='1.1': (4,) torch.int64" in text


@pytest.mark.parametrize("output", [2, "logit", "1.1"])
def test_an_output_that_is_not_there_or_no_float(output):
    model = Returns(lambda logits, h: (logits, (h, logits.argmax(1))))
    with pytest.raises(ModelError, match=f"output={output!r} is no floating-point one of them"):
        onesigma.convert(model, X, output=output)


def test_no_output_can_be_chosen_of_one_tensor_or_of_none():
    with pytest.raises(ModelError, match="leave output out"):
        onesigma.convert(small(), X, output="logits")
    with pytest.raises(ModelError, match="without a tensor"):
        onesigma.convert(Returns(lambda logits, h: None), X)


def test_a_network_that_returns_more_in_training():
    """Monte Carlo switches the dropout modules on alone, because the auxiliary output is not it."""

    class Auxiliary(Returns):
        def forward(self, x: Tensor):
            h = self.drop(x)
            return {"aux": h, "more": h} if self.training else {"logits": self.head(h), "h": h}

    model = Auxiliary(None)
    out = onesigma.mc_dropout(model, 2000, output="logits")(X)
    wanted = var_of_logits(model.head, X)
    assert torch.allclose(out.var, wanted, rtol=4 * (2 / 2000) ** 0.5, atol=1e-3)


class TwoSensors(nn.Module):
    """Inputs that are known by name; one between them may be left out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.drop, self.a, self.b = nn.Dropout(0.3), nn.Linear(6, 3), nn.Linear(4, 3)

    def forward(self, acc: Tensor, mask: Tensor | None = None, gyro: Tensor | None = None):
        return {"logits": self.a(self.drop(acc)) + self.b(gyro), "acc": acc}


NAMED = {"gyro": torch.randn(4, 4, generator=torch.Generator().manual_seed(1)), "acc": X}


def test_inputs_by_name(tmp_path):
    model = TwoSensors()
    converted = onesigma.convert(model, NAMED, output="logits")
    assert converted.settings.input_names == ("acc", "gyro")  # as in the signature
    onesigma.save(converted, tmp_path / "named.onesigma")
    for each in (converted, onesigma.load(tmp_path / "named.onesigma")):
        for out in (each(**NAMED), each(NAMED), each(NAMED["acc"], NAMED["gyro"])):
            torch.testing.assert_close(out.mean, model.a(X) + model.b(NAMED["gyro"]))
            torch.testing.assert_close(out.var, var_of_logits(model.a, X))
    sampled = onesigma.mc_dropout(model, 2000, output="logits")(NAMED)
    wanted = var_of_logits(model.a, X)
    assert torch.allclose(sampled.var, wanted, rtol=4 * (2 / 2000) ** 0.5, atol=1e-3)


def test_inputs_of_other_names():
    with pytest.raises(InputError, match=r"no argument 'gyros'; it has acc, mask, gyro"):
        onesigma.convert(TwoSensors(), {"acc": X, "gyros": X}, output="logits")
    converted = onesigma.convert(TwoSensors(), NAMED, output="logits")
    with pytest.raises(InputError, match=r"by acc, gyro; got acc"):
        converted(acc=X)
    with pytest.raises(InputError, match=r"by places, not names; got x"):
        onesigma.convert(small(), X)(x=X)


def exported(model: nn.Module) -> torch.export.ExportedProgram:
    batch = ({0: torch.export.Dim("batch")},)
    return torch.export.export(model, (X,), dynamic_shapes=batch)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
@pytest.mark.parametrize("around", [nn.DataParallel, torch.compile, exported])
def test_the_network_inside(around):
    model = small()
    converted = onesigma.convert(around(model), X)
    found, wanted = converted(X), onesigma.convert(model, X)(X)
    torch.testing.assert_close(found.mean, wanted.mean)
    torch.testing.assert_close(found.var, wanted.var)
    lost = any("exported program" in note and "lost" in note for note in converted.report.notes)
    assert lost == (around is exported)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda model: torch.jit.trace(model, X), r"TorchScript.*Pass the nn\.Module"),  # noqa: TID251
        (lambda model: model.state_dict(), "state_dict.*load_state_dict"),
        (lambda model: exported(model.train()), "training mode"),
        (lambda model: None, "no nn.Module"),
    ],
)
def test_what_is_no_network(make, match):
    with pytest.raises(ModelError, match=match):
        onesigma.convert(make(small()), X)


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


class Residual(nn.Module):
    """The input of a dropout is used again."""

    def __init__(self, drop: nn.Module) -> None:
        super().__init__()
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x) + 2 * x


@pytest.mark.parametrize(
    "kind", [nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout]
)
def test_what_a_dropout_took_in_stays_certain(kind):
    """In eval mode it returns its very input, and tracing would take the one for the other."""
    x = X.reshape(4, 2, 3)
    alone, around = nn.Sequential(kind(0.4)).eval(), Residual(kind(0.4)).eval()
    alone, around = (onesigma.convert(m, x, task="regression")(x) for m in (alone, around))
    torch.testing.assert_close(around.mean, alone.mean + 2 * x)
    torch.testing.assert_close(around.var, alone.var)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "norm",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
    ],
    ids=lambda f: f"{f.__module__}.{f.__name__}",
)
def test_weights_that_are_computed(norm, half):
    """The old weight_norm keeps its weight as a plain tensor, which cannot be copied."""
    torch.manual_seed(0)
    layer = norm(nn.Linear(6, 3))
    model = nn.Sequential(nn.Dropout(0.3), layer)
    model(X).sum().backward()  # in training, which the norm of the weights takes part in
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    wanted, x = model.eval()(X), X
    with torch.no_grad():
        var = (0.3 / 0.7 * X**2) @ layer.weight.T**2
    model.train()
    if half and norm is not nn.utils.parametrizations.orthogonal:  # which is not made for it
        state, model = {}, model.bfloat16()
    out = onesigma.convert(model, x, task="regression")(x)
    sampled = onesigma.mc_dropout(model, 2000, task="regression")(x)
    close = {"rtol": 0.03, "atol": 0.03} if not state else {}
    torch.testing.assert_close(out.mean, wanted, **close)
    torch.testing.assert_close(out.var, var, **close)
    # Not one step of the power iteration is taken: 5 standard errors, and what is rounded.
    error = 5 * (var / 2000).sqrt() + close.get("atol", 0)
    assert bool(((sampled.mean - wanted).abs() <= error).all())
    assert all(torch.equal(state[name], now) for name, now in model.state_dict().items() if state)


class Recurrent(nn.Module):
    """Returns all that a recurrent layer does, in one row for each input."""

    def __init__(self, kind: type[nn.RNNBase], **options) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = kind(6, 8, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        states, last = self.layer(x)
        last = last if isinstance(last, tuple) else (last,)
        return torch.cat([states.flatten(1), *(h.transpose(0, 1).flatten(1) for h in last)], 1)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    "options",
    [
        {"kind": nn.LSTM},
        {"kind": nn.LSTM, "num_layers": 2, "bidirectional": True},
        {"kind": nn.LSTM, "proj_size": 5},
        {"kind": nn.GRU, "num_layers": 2, "bidirectional": True},
        {"kind": nn.RNN},
        {"kind": nn.RNN, "nonlinearity": "relu", "bidirectional": True},
    ],
    ids=str,
)
def test_a_recurrent_layer_is_captured_by_the_shapes_of_its_results(options, monkeypatch):
    """Whole and right; and nobody takes it apart into its instants on the way."""
    model = Recurrent(**options).eval()
    taken_apart = "torch._decomp.decompositions.one_layer_rnn"
    monkeypatch.setattr(taken_apart, lambda *_, **__: pytest.fail("taken apart"))
    graph = capture(model, torch.randn(4, 9, 6)).graph
    x = torch.randn(3, 9, 6)
    with torch.no_grad():
        assert torch.equal(graph(x)[0], model(x))
    (layer,) = [n for n in graph.graph.nodes if "input" in str(n.target) and n.args[1:]]
    with torch.no_grad():
        states, last = model.layer(x)
    wanted = [states, *(last if isinstance(last, tuple) else (last,))]
    for found, value in zip(layer.meta["val"], wanted, strict=True):
        assert [int(n) if isinstance(n, int) else 3 for n in found.shape] == [*value.shape]
