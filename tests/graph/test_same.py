"""Same: a graph that answers differently from its model is found out, on every conversion."""

import pytest
import torch
from torch import Tensor, nn

import onesigma

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.4), nn.Linear(6, 3)


class WritesAPart(Base):
    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(x) + 0
        h.chunk(2, 1)[0].mul_(3)
        return self.head(h)


class TreatsOneAlone(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(x)) * (2.0 if len(x) == 1 else 1.0)


class Counts(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(self.drop(x)) + self.calls


class TakesSmallNumbers(Base):
    """Refuses some values: the check must not take that for another answer."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and bool((x != X[: len(x)]).any()):
            raise ValueError("unknown input")
        return self.head(self.drop(x))


class AlwaysOn(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(nn.functional.dropout(x, 0.4, training=True))


def test_a_write_into_a_part_is_refused():
    with pytest.raises(onesigma.CaptureError, match="does not answer as the model does"):
        onesigma.convert(WritesAPart().eval(), X)


def test_a_branch_on_the_batch_fixes_the_batch():
    converted = onesigma.convert(TreatsOneAlone().eval(), X)
    assert any("batch of 4 only" in note for note in converted.report.notes)
    with pytest.raises(onesigma.InputError):
        converted(X[:1])


def test_state_that_changes_is_refused_and_left_as_it_was():
    model = Counts().eval()
    with pytest.raises(onesigma.ModelError, match=r"changes its own state \(calls\)"):
        onesigma.convert(model, X)
    assert model.calls == 0


class CountsAndFails(Counts):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        raise ValueError("no answer")


def test_a_run_that_fails_leaves_the_state_as_it_was():
    model = CountsAndFails().eval()
    with pytest.raises(onesigma.InputError, match="does not run on the example"):
        onesigma.convert(model, X)
    assert model.calls == 0


def test_a_model_that_refuses_other_values_converts():
    converted = onesigma.convert(TakesSmallNumbers().eval(), X)
    assert converted(X).probs is not None


def test_dropout_that_is_always_on_is_a_site():
    converted = onesigma.convert(AlwaysOn().eval(), X, task="regression")
    assert any("is on in eval mode, too" in note for note in converted.report.notes)
    ordinary = nn.Sequential(nn.Dropout(0.4), converted_head(converted)).eval()
    wanted = onesigma.convert(ordinary, X, task="regression")(X)
    torch.testing.assert_close(converted(X).var, wanted.var)


def converted_head(converted: onesigma.Converted) -> nn.Linear:
    head = nn.Linear(6, 3)
    head.load_state_dict(
        {k: converted.source.get_parameter(f"head.{k}") for k in ("weight", "bias")}
    )
    return head
