"""The one answer type."""

import dataclasses

import pytest
import torch
from torch.utils import _pytree as pytree

from onesigma import Prediction


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
