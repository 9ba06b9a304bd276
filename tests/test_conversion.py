"""What ``convert`` promises: classes, priors and choices checked, refusals all at once."""

import pytest
import torch
import torch.nn.functional as F
from models import inputs_for, trained
from torch import Tensor, nn
from truth.verdicts import CRASH, SILENT, judge

import onesigma
from onesigma import (
    CaptureError,
    InputError,
    ModelError,
    NoRandomness,
    OnesigmaError,
    UnsupportedOp,
)

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def small(p: float = 0.3, classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(p), nn.Linear(8, classes)).eval()


def test_everything_dropped_is_certain():
    converted = onesigma.convert(small(1.0), X)
    prediction = converted(X)
    assert not prediction.var.any()
    torch.testing.assert_close(
        prediction.mean, converted.network.source.get_parameter("3.bias").expand(4, 3)
    )


def test_dense_output_with_classes_last():
    model = nn.Sequential(nn.Dropout(0.4), nn.Linear(6, 3)).eval()
    x = X.reshape(2, 2, 6)
    prediction = onesigma.convert(model, x, class_dim=-1)(x)
    assert prediction.probs.shape == (2, 2, 3)
    assert prediction.entropy.shape == (2, 2)
    torch.testing.assert_close(prediction.probs.sum(-1), torch.ones(2, 2))
    assert torch.equal(prediction.label, prediction.probs.argmax(-1))
    assert torch.equal(prediction.confidence, prediction.probs.amax(-1))


def test_no_dropout():
    with pytest.raises(NoRandomness, match="input_std"):
        onesigma.convert(nn.Linear(6, 3).eval(), X)


def test_dropout_of_rate_0_is_the_original_with_a_warning():
    model = small(p=0.0)
    converted = onesigma.convert(model, X)
    assert any("WARNING: every dropout has the rate p = 0" in n for n in converted.report.notes)
    with torch.no_grad():
        assert torch.equal(converted(X).mean, model(X))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = small()

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = 2 * x
        return self.inner(x)


def test_a_branch_on_data_is_one_paragraph_with_its_line(capfd):
    with pytest.raises(
        CaptureError, match=r"test_conversion\.py:\d+: 'if x\.sum\(\) > 0:'"
    ) as said:
        onesigma.convert(Branching(), X)
    assert len(str(said.value)) < 300
    assert "torch.where" in str(said.value)
    assert capfd.readouterr() == ("", "")


class Unsupported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(self.drop(x))
        x = torch.cummax(x, 1).values
        x = torch.special.erfcx(x)
        x = F.layer_norm(x, (3,), x[0])
        return x * x.argmax(1, keepdim=True)


def test_all_unsupported_ops_at_once_with_lines_and_remedies():
    with pytest.raises(UnsupportedOp) as error:
        onesigma.convert(Unsupported().eval(), X)
    text = str(error.value)
    assert text.startswith("4 op(s)")
    assert all(op in text for op in ("cummax", "erfcx", "layer_norm", "argmax"))
    first = Unsupported.forward.__code__.co_firstlineno
    assert all(f"test_conversion.py:{first + i}" in text for i in (2, 3, 4, 5))
    assert "something other than its first input is uncertain" in text  # a raw error before
    assert "rules/README.md" in text
    assert "Return the scores" in text  # said by the rule itself
    assert "linear" not in text  # a supported op is not listed


class Compared(nn.Module):
    """One op that is refused, again and again."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(x, 0.3, self.training) @ torch.ones(6, 6)
        for _ in range(9):
            x = torch.where(x > 0, x, 0.1 * x) + 1
        return x.sort(1).values


def test_refusals_that_repeat_are_told_once():
    with pytest.raises(UnsupportedOp) as error:
        onesigma.convert(Compared().eval(), X)
    title, *lines = str(error.value).splitlines()
    assert title.startswith("10 op(s)")
    assert [line.split()[0] for line in lines] == ["aten.gt.Scalar", "aten.sort"]
    assert "and 6 more): whether an uncertain value is larger" in lines[0]
    assert lines[0].count("test_conversion.py:") == 3


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.drop, self.layer, self.head = nn.Dropout(0.3), kind(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.drop(x))[0].mean(1))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrence_is_refused_with_a_way_out(kind):
    with pytest.raises(UnsupportedOp, match="recurrent layers have no moment rule") as error:
        onesigma.convert(Recurrent(kind).eval(), X.reshape(2, 2, 6))
    assert "particles=8" in str(error.value)
    assert "put the dropout after" in str(error.value)
    assert "test_conversion.py:" in str(error.value)


LAYERS = {
    "linear": lambda x, w, b: nn.functional.linear(x, w, b),
    "addmm": lambda x, w, b: torch.addmm(b, x, w.t()),
    "convolution": lambda x, w, b: nn.functional.conv1d(x[:, :, None], w[:, :, None], b)[..., 0],
    "batch norm": lambda x, w, b: nn.functional.batch_norm(
        x[:, :3], torch.zeros(3), torch.ones(3), w[:, 0], b
    ),
    "layer norm": lambda x, w, b: nn.functional.layer_norm(x[:, :3], (3,), w[:, 0], b),
}


class NoisyParameter(nn.Module):
    """Dropout of a layer's weight (DropConnect) or of its bias, and of its input or not."""

    def __init__(self, layer, which: str, also_input: bool) -> None:
        super().__init__()
        self.own, self.layer = nn.Linear(6, 3), layer
        self.which, self.also_input = which, also_input

    def forward(self, x: Tensor) -> Tensor:
        w, b = self.own.weight, self.own.bias
        w = nn.functional.dropout(w, 0.5, self.training) if self.which == "weight" else w
        b = nn.functional.dropout(b, 0.5, self.training) if self.which == "bias" else b
        x = nn.functional.dropout(x, 0.5, self.training) if self.also_input else x
        return self.layer(x, w, b)


@pytest.mark.long
@pytest.mark.parametrize("also_input", [False, True])
@pytest.mark.parametrize("which", ["weight", "bias"])
@pytest.mark.parametrize("name", LAYERS)
def test_dropout_of_a_weight_or_a_bias(name, which, also_input):
    network = NoisyParameter(LAYERS[name], which, also_input).eval()
    verdict = judge(network, X, rows_apart=False)
    assert verdict.word not in (SILENT, CRASH), verdict.why


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
        1e20,  # its square overflows float32
    ],
    ids=[
        *("channels", "length", "sample", "batch", "negative", "nan", "inf", "one_negative"),
        "overflow",
    ],
)
def test_wrong_input_std(std):
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(24, 3)).eval()
    with pytest.raises(InputError, match="input_std"):
        onesigma.convert(model, torch.randn(2, 3, 8), input_std=std)


def test_input_std_needs_one_floating_input():
    words = nn.Sequential(
        nn.Embedding(9, 4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(20, 3)
    ).eval()
    with pytest.raises(InputError, match="one floating-point input"):
        onesigma.convert(words, torch.zeros(2, 5, dtype=torch.long), input_std=0.1)
    with pytest.raises(InputError, match="one floating-point input"):
        onesigma.convert(trained("two_inputs"), inputs_for("two_inputs", 2), input_std=0.1)


@pytest.mark.parametrize(
    "wrong", [{"task": "ranking"}, {"sampling": "sobol"}, {"dropout": "old"}, {"draws": 1}]
)
def test_wrong_choices(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(InputError, match=f"{name}=.?{value}"):
        onesigma.convert(small(), X, **wrong)


def test_a_rule_of_ones_own():
    """``onesigma.rule`` adds an op that was refused before."""
    from onesigma.rules import RULES

    op = torch.ops.aten.sinh.default
    model = nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 6), Arched(), nn.Linear(6, 3)).eval()
    if op not in RULES:
        with pytest.raises(UnsupportedOp, match="sinh"):
            onesigma.convert(model, X)
    known = RULES.pop(op, None)
    try:

        @onesigma.rule(op, assumes=(onesigma.Assumption.NORMAL,), note="first order")
        def sinh(x):
            return onesigma.Gaussian(torch.sinh(x.mean), torch.cosh(x.mean) ** 2 * x.var)

        with pytest.raises(ValueError, match="replace=True"):
            onesigma.rule(op)(sinh)
        converted = onesigma.convert(model, X)
        entry = next(e for e in converted.report.entries if e.op == "aten.sinh")
        assert "first order" in entry.note
        before = (0.3 / 0.7 * X**2) @ (model[1].weight ** 2).T
        var = model[1](X).cosh() ** 2 * before @ (model[3].weight ** 2).T
        torch.testing.assert_close(converted(X).var, var)
    finally:
        RULES.pop(op, None)
        if known is not None:
            RULES[op] = known


class Arched(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sinh(x)
