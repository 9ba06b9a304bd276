"""ApDeepSense: the moments of our conversion, the probabilities of one softmax."""

import pytest
import torch
from onesigma.lab.paper.apdeepsense import apdeepsense
from torch import nn

import onesigma
from onesigma import UnsupportedOp
from onesigma.baselines.backbone import backbone
from onesigma.lab.networks import fully_connected

X = torch.randn(4, 2, 3, 5, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    model = fully_connected((2, 3, 5), 4, width=32).eval()
    with torch.no_grad():
        model[-1].weight *= 20  # logits as far apart as those of a trained network
    return model


@pytest.mark.parametrize("input_std", [None, 0.3])
def test_our_moments_and_one_softmax_of_the_mean(input_std):
    answer = apdeepsense(network(), input_std=input_std)(X)
    with torch.no_grad():
        ours = onesigma.convert(network(), X, input_std=input_std)(X)
    torch.testing.assert_close(answer.mean, ours.mean)
    torch.testing.assert_close(answer.var, ours.var)
    assert answer.var.min() > 0
    torch.testing.assert_close(answer.probs, ours.mean.softmax(1))
    # Not ours, which averages over the logits, and not the plain network's, whose mean differs.
    assert (answer.probs - ours.probs).abs().max() > 1e-3
    assert (answer.probs - backbone(network())(X).probs).abs().max() > 1e-3
    entropy = torch.distributions.Categorical(probs=answer.probs).entropy()
    torch.testing.assert_close(answer.entropy, entropy)
    assert not answer.epistemic.any()


def test_any_batch_size():
    method = apdeepsense(network())
    whole = method(X)
    torch.testing.assert_close(method(X[:1]).probs, whole.probs[:1])


def test_classes_on_the_last_dim():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    answer = apdeepsense(model, class_dim=-1)(X)
    torch.testing.assert_close(answer.probs, answer.mean.softmax(-1))
    assert answer.label.shape == (4, 2, 3)


def test_probabilities_in_place_of_logits_are_refused():
    with pytest.raises(UnsupportedOp, match="softmax"):
        apdeepsense(nn.Sequential(network(), nn.Softmax(1)))(X)
