"""The one answer type."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import onesigma
from onesigma import Prediction
from onesigma.decide.threshold import AbstainRule


def prediction(batch: int = 3, *shape: int, **kwargs) -> Prediction:
    generator = torch.Generator().manual_seed(batch)
    mean = torch.randn(batch, 4, *shape, generator=generator)
    return Prediction(mean, mean.square(), mean.softmax(1), mean.sum(1), **kwargs)


def test_std_label_and_confidence():
    answer = prediction()
    torch.testing.assert_close(answer.std, answer.mean.abs())
    assert torch.equal(answer.label, answer.mean.argmax(1))
    assert torch.equal(answer.confidence, answer.probs.max(1).values)


def test_dense_labels():
    answer = prediction(2, 5, 5)
    assert answer.label.shape == answer.confidence.shape == (2, 5, 5)


def test_label_follows_the_class_dim():
    probs = torch.rand(2, 3, 5)
    answer = Prediction(probs, probs, probs, class_dim=-1)
    assert torch.equal(answer.label, probs.argmax(-1))
    assert torch.equal(answer.confidence, probs.amax(-1))


def test_regression_has_no_label():
    answer = Prediction(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(AttributeError, match="regression"):
        _ = answer.label
    with pytest.raises(AttributeError, match="regression"):
        _ = answer.confidence


def test_arrays_are_what_it_holds_in_order():
    answer = prediction()
    held = answer.arrays()
    assert list(held) == ["mean", "var", "probs", "entropy"]
    assert held["entropy"] is answer.entropy


def test_cat():
    parts = [prediction(2), prediction(1), prediction(3)]
    whole = Prediction.cat(parts)
    assert whole.mean.shape == (6, 4)
    assert torch.equal(whole.mean[2:3], parts[1].mean)
    assert torch.equal(whole.entropy[3:], parts[2].entropy)
    assert whole.aleatoric is None
    assert whole.class_dim == 1


def test_cat_keeps_the_class_dim():
    assert Prediction.cat([prediction(class_dim=-1)] * 2).class_dim == -1


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        prediction().mean = torch.zeros(1)


def test_it_travels_through_torch_export_trees():
    answer = prediction()
    leaves, tree = pytree.tree_flatten(answer)
    again = pytree.tree_unflatten(leaves, tree)
    assert isinstance(again, Prediction)
    assert again.mean is answer.mean
    assert again.aleatoric is None
    assert again.class_dim == 1


BAD = [float("nan"), float("inf"), -float("inf")]


def converted() -> onesigma.Converted:
    """ReLU makes 0 of minus infinity: without a check the answer would look like any other."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(6, 3))
    model = onesigma.convert(network.eval(), torch.ones(2, 2, 3))
    return model.with_abstain(AbstainRule("entropy", math.inf, 0.05, None, 100, 1.0, 0.0))


@pytest.mark.parametrize("bad", BAD)
def test_a_row_that_is_not_finite_is_not_answered(bad):
    x = torch.ones(4, 2, 3)
    x[1, 0, 2] = bad
    with torch.no_grad():
        answer, good = converted()(x), converted()(torch.ones(4, 2, 3))
    assert answer.valid.tolist() == answer.act.tolist() == [True, False, True, True]
    for name in ("mean", "var", "probs", "entropy", "aleatoric", "epistemic"):
        value = getattr(answer, name)
        assert value[1].isnan().all()
        assert torch.equal(value[[0, 2, 3]], getattr(good, name)[[0, 2, 3]])
    assert good.valid.all()


def test_the_largest_numbers_are_finite_and_zeros_keep_their_bits():
    x = torch.full((2, 2, 3), 1e12)
    x[1] = -0.0
    with torch.no_grad():
        assert converted()(x).valid.all()


def test_it_is_checked_when_compiled_or_exported_too():
    x = torch.ones(3, 2, 3)
    x[2, 1, 1] = math.inf
    program = torch.export.export(converted(), (torch.ones(2, 2, 3),), strict=False)
    compiled = torch.compile(converted(), backend="eager", fullgraph=True)
    with torch.no_grad():
        assert compiled(x).act.tolist() == [True, True, False]
        assert program.module()(x[1:]).act.tolist() == [True, False]


class TwoInputs(nn.Module):
    """An index and a number for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last, self.dropout = nn.Embedding(5, 4), nn.Linear(4, 3), nn.Dropout(0.5)

    def forward(self, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(self.table(index) * x))


def test_inputs_of_several_kinds():
    index, x = torch.tensor([1, 2, 3]), torch.tensor([[1.0], [math.nan], [2.0]])
    model = onesigma.convert(TwoInputs().eval(), (index, torch.ones(3, 1)))
    with torch.no_grad():
        assert model(index, x).valid.tolist() == [True, False, True]


def test_it_prints_short_and_without_gradients():
    model = nn.Sequential(nn.Dropout(0.4), nn.Linear(6, 3)).eval()
    answer = onesigma.convert(model, torch.randn(2, 6))(torch.randn(2000, 6))
    title, header, _, *rows, more = repr(answer).splitlines()
    assert title == "Prediction: mean of shape (2000, 3)"
    assert header.split() == ["label", "confidence", "entropy", "epistemic"]
    assert [int(row.split()[0]) for row in rows] == answer.label[:5].tolist()
    assert [float(row.split()[1]) for row in rows] == pytest.approx(
        answer.confidence[:5].tolist(), rel=5e-3
    )
    assert more == "… and 1995 more"
    assert repr(prediction(2, 5, 5)) == "Prediction: mean of shape (2, 4, 5, 5)"
    wide = repr(Prediction(torch.zeros(1, 9), torch.ones(1, 9)))
    assert wide.splitlines()[-1].split("  ")[0] == "[0, 0, 0, 0, 0, …]"
