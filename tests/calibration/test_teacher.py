"""The teacher: passes of the user's own network, its masks drawn quickly."""

import pytest
import torch
from torch import nn

from onesigma.baselines.backbone import original
from onesigma.calibration.observation import silent
from onesigma.calibration.teacher import Lesson, Teacher, quick_dropout

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 0.9])
def test_quick_masks_have_the_rate_and_keep_the_mean(rate):
    torch.manual_seed(0)
    count = 400_003  # no multiple of four
    found = quick_dropout(torch.ones(count), rate)
    assert {*found.unique().tolist()} == {0.0, float(torch.tensor(1.0) / (1 - rate))}
    error = (rate * (1 - rate) / count) ** 0.5
    assert abs(float((found == 0).double().mean()) - rate) < 5 * error + 2**-16


def test_quick_masks_are_independent():
    torch.manual_seed(0)
    kept = (quick_dropout(torch.ones(2, 100_000), 0.5) > 0).double()
    pairs = [(kept[0], kept[1]), *((kept[0][:-d], kept[0][d:]) for d in (1, 2, 3, 4))]
    for a, b in pairs:
        assert abs(float(((a - 0.5) * (b - 0.5)).mean())) < 5 * 0.25 / len(a) ** 0.5


def test_what_is_no_dropout_is_left_to_pytorch():
    assert quick_dropout(X, 0.5, training=False) is X
    assert torch.equal(quick_dropout(X, 0.0), X)
    assert (quick_dropout(X, 1.0) == 0).all()
    changed = X.clone()
    assert quick_dropout(changed, 0.5, inplace=True) is changed


def teacher() -> tuple[Teacher, nn.Module]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Dropout(0.4), nn.Linear(6, 3)).eval()
    return Teacher(original(model, (X[:4],), "classification", None), (X[:4],)), model


def test_passes_have_the_moments_of_dropout():
    asked, model = teacher()
    logits = asked.teach((X,), 4000, 0, silent).logits
    var = X.square() @ model[1].weight.detach().square().T * 0.4 / 0.6
    assert ((logits.mean(1) - model(X).detach()).abs() < 5 * (var / 4000).sqrt() + 1e-5).all()
    fourth = (logits - logits.mean(1, keepdim=True)).pow(4).mean(1)
    error = ((fourth - var.square()).clamp(min=0) / 4000).sqrt()
    assert ((logits.var(1) - var).abs() < 5 * error + 1e-5).all()


def test_the_same_seed_gives_the_same_passes_and_leaves_the_callers_draws_alone():
    asked, _ = teacher()
    before = torch.random.get_rng_state()
    first, again, other = (asked.teach((X,), 3, seed, silent).logits for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_every_row_has_masks_of_its_own():
    asked, _ = teacher()
    logits = asked.teach((X[:1].expand(70, 6),), 3, 0, silent).logits.flatten(1)
    assert len(logits.unique(dim=0)) > 60  # of 64 masks in three passes, hardly two rows are alike


def test_how_far_one_pass_is():
    """Σ Var[p] / 2p by hand, averaged over the rows of a kind."""
    probs = torch.tensor([[[0.2, 0.8], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]])
    found = Lesson((X[:2],), probs.log(), kinds=2).noise
    by_hand = 0.02 / (2 * 0.3) + 0.02 / (2 * 0.7)
    torch.testing.assert_close(found, torch.tensor([by_hand, 0.0]))


def test_aleatoric_is_the_expected_entropy():
    logits = torch.tensor([[[0.0, 0.0], [50.0, 0.0]]])
    torch.testing.assert_close(Lesson((X,), logits).aleatoric, torch.tensor([0.5]).log().neg() / 2)
