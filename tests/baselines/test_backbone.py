"""The plain network as a ``Prediction``."""

import pytest
import torch
from torch import nn

import onesigma
from onesigma import InputError, mc_dropout
from onesigma.baselines.backbone import backbone

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def network(p: float = 0.5, *last: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(p), nn.Linear(8, 3), *last)


def plain(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(X)


def test_it_is_the_softmax_of_the_network_without_uncertainty():
    model = network().train()  # whatever mode the user left it in
    answer = backbone(model)(X)
    assert model.training
    logits = plain(model)
    assert torch.equal(answer.mean, logits)
    assert not answer.var.any()
    torch.testing.assert_close(answer.probs, logits.softmax(1))
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(answer.entropy, entropy)
    assert torch.equal(answer.aleatoric, answer.entropy)
    assert not answer.epistemic.any()


def test_a_final_softmax_is_not_applied_twice():
    answer = backbone(network(0.5, nn.Softmax(-1)))(X)
    torch.testing.assert_close(answer.probs, plain(network()).softmax(1))
    assert answer.class_dim == -1


def test_classes_on_the_last_dim():
    x = torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(1))
    model = network().eval()
    answer = backbone(model, class_dim=-1)(x)
    with torch.no_grad():
        torch.testing.assert_close(answer.probs, model(x).softmax(-1))
    assert answer.entropy.shape == answer.label.shape == (2, 7)


def test_regression_has_no_probabilities():
    answer = backbone(network(), task="regression")(X)
    assert answer.probs is None
    assert torch.equal(answer.mean, plain(network()))


def test_of_a_converted_model_its_original_is_run():
    converted = onesigma.convert(network(), X)
    assert torch.equal(backbone(converted)(X).mean, plain(network()))


@pytest.mark.parametrize("passes", [1, 7])
def test_monte_carlo_without_dropout_is_the_backbone(passes):
    sampled, answer = mc_dropout(network(p=0.0), passes)(X), backbone(network(p=0.0))(X)
    for name in ("mean", "var", "probs", "entropy", "aleatoric", "epistemic"):
        found, expected = getattr(sampled, name), getattr(answer, name)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_wrong_input_is_refused():
    method = backbone(network())
    method(X)
    with pytest.raises(InputError, match="shape"):
        method(X[:, :4])
    with pytest.raises(InputError, match="task"):
        backbone(network(), task="ranking")
