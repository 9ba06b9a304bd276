"""Monte-Carlo dropout, the reference: against analytic moments, and leaving everything alone."""

import math

import pytest
import torch
import torch.nn.functional as F
from models import fresh_copy, inputs_for, trained
from torch import Tensor, nn

import onesigma
from onesigma import InputError, NoRandomness, mc_dropout

X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
P = 0.3


def dropout_linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Dropout(P), nn.Linear(6, 4)).eval()


def analytic(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and fourth central moment of dropout → linear, by enumerating all masks."""
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 6)
    weight = torch.where(masks == 1, 1 - P, P).prod(1)[:, None, None]
    outputs = model[1].double()(masks[:, None] * X.double() / (1 - P)).detach()
    model.float()
    mean = (weight * outputs).sum(0)
    deviation = outputs - mean
    return mean, (weight * deviation**2).sum(0), (weight * deviation**4).sum(0)


@pytest.mark.parametrize(("form", "passes"), [("repeat", 20_000), ("loop", 1000)])
def test_moments_against_all_masks(form, passes):
    model = dropout_linear()
    mean, var, fourth = analytic(model)
    found = mc_dropout(model, passes, form=form, task="regression")(X)
    mean_error = (var / passes).sqrt()
    var_error = ((fourth - var**2) / passes).sqrt()
    assert ((found.mean - mean).abs() < 5 * mean_error).all()
    assert ((found.var - var).abs() < 5 * var_error).all()


def test_repeat_and_loop_agree_statistically():
    passes, x = 1000, inputs_for("mlp", 8)
    repeat, loop = (mc_dropout(trained("mlp"), passes, form=f)(*x) for f in ("repeat", "loop"))
    error = (repeat.var / passes + loop.var / passes).sqrt()
    assert ((repeat.mean - loop.mean).abs() < 5 * error).all()
    assert ((repeat.probs - loop.probs).abs() < 5 * math.sqrt(2 * 0.25 / passes)).all()


def test_masks_differ_between_samples_and_passes():
    mc = mc_dropout(dropout_linear(), 50)
    (logits,) = mc.samples(X[:1].expand(4, 6))
    assert logits.shape == (50, 4, 4)
    assert (logits[:, 0] != logits[:, 1]).any()  # the same input twice in a batch
    assert (logits[0] != logits[1]).any()


def test_batch_norm_is_left_in_eval():
    model, x = fresh_copy("norm_after_dropout"), inputs_for("norm_after_dropout", 4)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    mc_dropout(model, 20)(*x)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    # In training mode a sample's answer would depend on its neighbours in the batch.
    still = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    for _ in range(3):
        still(torch.randn(8, 6))
    still.train()  # whatever mode the user left it in
    mean = mc_dropout(still, 3000, task="regression")(X).mean
    with torch.no_grad():
        expected = still.eval()(X)
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.15)


@pytest.mark.parametrize("name", ["functional", "in_place", "frozen_trunk", "channel_dropout"])
def test_every_kind_of_dropout_is_on(name):
    x = inputs_for(name, 2)
    prediction = mc_dropout(trained(name), 20)(*x)
    assert (prediction.var > 0).all()


def test_seeded():
    x, model = inputs_for("mlp", 4), trained("mlp")
    first, again = mc_dropout(model, 10)(*x), mc_dropout(model, 10)(*x)
    other, fresh = mc_dropout(model, 10, seed=1)(*x), mc_dropout(model, 10, seed=None)
    assert torch.equal(first.mean, again.mean)
    assert not torch.equal(first.mean, other.mean)
    assert not torch.equal(fresh(*x).mean, fresh(*x).mean)


@pytest.mark.parametrize("max_rows", [4096, 8])
def test_the_callers_random_state_is_untouched(max_rows):
    mc = mc_dropout(dropout_linear(), 10, max_rows=max_rows)
    torch.manual_seed(0)
    expected = [torch.rand(1) for _ in range(3)]
    torch.manual_seed(0)
    first = mc(X).mean
    assert torch.equal(torch.rand(1), expected[0])
    # Nor while the passes are being read, nor when the reader stops half way.
    chunks = mc.samples(X)
    next(chunks)
    assert torch.equal(torch.rand(1), expected[1])
    del chunks
    assert torch.equal(torch.rand(1), expected[2])
    assert torch.equal(mc(X).mean, first)


def test_memory_is_bounded_by_chunks():
    mc = mc_dropout(dropout_linear(), 25, max_rows=12)
    chunks = list(mc.samples(X))
    assert sum(len(chunk) for chunk in chunks) == 25
    assert max(chunk.shape[0] * chunk.shape[1] for chunk in chunks) == 12
    # A batch larger than the bound still runs, one pass at a time.
    assert len(list(mc_dropout(dropout_linear(), 3, max_rows=2).samples(X))) == 3


def test_chunks_do_not_repeat_their_masks():
    chunks = list(mc_dropout(dropout_linear(), 40, max_rows=3).samples(X))
    assert len({tuple(chunk.flatten().tolist()) for chunk in chunks}) > 35


def test_no_dropout():
    with pytest.raises(NoRandomness, match=r"F\.dropout\(x, p, self\.training\)"):
        mc_dropout(nn.Linear(6, 3))(X)


def test_regression_has_no_probabilities():
    prediction = mc_dropout(dropout_linear(), 5, task="regression")(X)
    assert prediction.probs is None
    assert prediction.mean.shape == prediction.var.shape == (3, 4)


def test_one_pass_has_no_variance():
    prediction = mc_dropout(dropout_linear(), 1)(X)
    assert not prediction.var.any()


def test_the_variance_is_the_unbiased_one():
    mc = mc_dropout(dropout_linear(), 7, seed=3, task="regression")
    (samples,) = mc.samples(X)
    torch.testing.assert_close(mc(X).var, samples.var(0))
    torch.testing.assert_close(mc(X).mean, samples.mean(0))


def test_the_probabilities_are_the_mean_softmax():
    mc = mc_dropout(dropout_linear(), 9)
    (samples,) = mc.samples(X)
    probs = samples.softmax(-1)
    prediction = mc(X)
    torch.testing.assert_close(prediction.probs, probs.mean(0))
    aleatoric = -(probs * probs.log()).sum(-1).mean(0)
    torch.testing.assert_close(prediction.aleatoric, aleatoric)
    torch.testing.assert_close(prediction.epistemic, prediction.entropy - aleatoric)


def test_a_converted_model_is_accepted():
    model = dropout_linear()
    converted = onesigma.convert(model, X)
    ours, theirs = mc_dropout(converted, 10)(X), mc_dropout(model, 10)(X)
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.probs, theirs.probs)


def test_a_converted_regression_stays_a_regression():
    converted = onesigma.convert(dropout_linear(), X, task="regression")
    assert mc_dropout(converted, 3)(X).probs is None


def test_a_final_softmax_is_stripped():
    model = dropout_linear()
    plain = mc_dropout(model, 10)(X)
    ended = mc_dropout(nn.Sequential(*model, nn.Softmax(-1)).eval(), 10)(X)
    assert torch.equal(plain.mean, ended.mean)


def test_classes_last():
    x = X.reshape(3, 2, 3)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 4)).eval()
    prediction = mc_dropout(model, 10, class_dim=-1)(x)
    torch.testing.assert_close(prediction.probs.sum(-1), torch.ones(3, 2))
    assert prediction.entropy.shape == (3, 2)
    assert torch.equal(prediction.label, prediction.probs.argmax(-1))


def test_different_batches_through_one_object():
    mc = mc_dropout(dropout_linear(), 5)
    assert [len(mc(X[:n]).mean) for n in (1, 3, 2)] == [1, 3, 2]


def test_no_gradients_are_kept():
    assert not mc_dropout(dropout_linear(), 3)(X).mean.requires_grad


class AlwaysOn(nn.Module):
    """Dropout that its author left on in eval: F.dropout's default."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(x, 0.5))


def test_dropout_that_is_always_on():
    prediction = mc_dropout(AlwaysOn().eval(), 50)(X)
    assert (prediction.var > 0).all()
    assert len(onesigma.convert(AlwaysOn().eval(), X).report.sites) == 1


def test_wrong_choices():
    with pytest.raises(InputError, match="passes=0"):
        mc_dropout(dropout_linear(), 0)
    with pytest.raises(InputError, match="form='fast'"):
        mc_dropout(dropout_linear(), form="fast")
    with pytest.raises(InputError, match="max_rows=0"):
        mc_dropout(dropout_linear(), max_rows=0)


def test_a_converted_model_with_classic_dropout_samples_classic_masks():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.4), nn.Linear(5, 3)).eval()
    x = torch.randn(2, 5)
    converted = onesigma.convert(model, x, task="regression", dropout="classic")
    sampled = onesigma.mc_dropout(converted, 4000)(x)
    expected = converted(x)
    error = sampled.std / 4000**0.5
    assert ((sampled.mean - expected.mean).abs() < 5 * error).all()
    torch.testing.assert_close(sampled.var, expected.var, rtol=0.15, atol=0)
