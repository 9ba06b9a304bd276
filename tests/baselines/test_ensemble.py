"""Deep ensembles: against sums written out by hand."""

import pytest
import torch
from torch import nn

import onesigma
from onesigma import InputError, ensemble
from onesigma.baselines.backbone import backbone

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
FIELDS = ("mean", "var", "probs", "entropy", "aleatoric", "epistemic")


def member(seed: int, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, classes)
    return nn.Sequential(*layers).eval()


@torch.no_grad()
def test_average_softmax_and_mutual_information():
    members = [member(seed) for seed in range(4)]
    answer = ensemble(members)(X)
    logits = torch.stack([model(X) for model in members]).double()
    torch.testing.assert_close(answer.mean, logits.mean(0).float())
    torch.testing.assert_close(answer.var, logits.var(0).float())
    probs = logits.softmax(-1)
    torch.testing.assert_close(answer.probs, probs.mean(0).float())
    # I(answer; member) as the mean divergence from the average, not as a difference of entropies.
    divergence = (probs * (probs / probs.mean(0)).log()).sum(-1).mean(0)
    torch.testing.assert_close(answer.epistemic, divergence.float())
    torch.testing.assert_close(answer.entropy, answer.aleatoric + answer.epistemic)


def test_an_ensemble_of_one_is_the_backbone():
    one, alone = ensemble([member(0)])(X), backbone(member(0))(X)
    for name in FIELDS:
        torch.testing.assert_close(getattr(one, name), getattr(alone, name), rtol=1e-6, atol=1e-6)


def test_twins_have_no_doubt_of_their_own():
    answer = ensemble([member(0), member(0)])(X)
    assert not answer.var.any()
    torch.testing.assert_close(answer.epistemic, torch.zeros(5))


def test_a_final_softmax_and_its_dim_are_understood():
    members = [member(seed) for seed in range(3)]
    ended = ensemble(nn.Sequential(model, nn.Softmax(-1)) for model in members)(X)
    assert ended.class_dim == -1
    torch.testing.assert_close(ended.probs, ensemble(members)(X).probs)
    x = X.expand(2, 5, 6)
    last = ensemble(members, class_dim=-1)(x)
    torch.testing.assert_close(last.probs[1], ended.probs)
    assert last.epistemic.shape == (2, 5)


def test_the_members_stay_as_they_are():
    members = [member(0).train(), member(1)]
    first = ensemble(members)(X)
    assert members[0].training
    assert torch.equal(ensemble(members)(X).probs, first.probs)


def test_regression():
    answer = ensemble([member(0), member(1)], task="regression")(X)
    assert answer.probs is None
    assert answer.var.min() > 0


def test_members_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="at least one"):
        ensemble([])
    with pytest.raises(InputError, match="Member 1"):
        ensemble([member(0), member(1, classes=4)])(X)


def test_it_is_public():
    assert isinstance(onesigma.ensemble([member(0)]), onesigma.Ensemble)
