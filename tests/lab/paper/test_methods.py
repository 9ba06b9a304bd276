"""The methods: all networks of a task from its data, and ApDeepSense."""

import pytest
import torch
from lab.training.trainings import EXAMPLES, VALIDATION
from torch import nn

import onesigma
from onesigma import UnsupportedOp
from onesigma.lab.datasets.split import Splits
from onesigma.lab.datasets.tasks import DATASETS
from onesigma.lab.paper import methods
from onesigma.lab.paper.methods import apdeepsense, train_task
from onesigma.lab.training.train import TrainingSettings

X = torch.randn(4, 2, 3, 5, generator=torch.Generator().manual_seed(0))


def test_every_task_has_its_settings():
    assert methods.SETTINGS.keys() == DATASETS.keys()


def test_the_papers_settings_are_the_defaults():
    settings = TrainingSettings()
    assert (settings.batch, settings.learning_rate) == (64, 1e-4)
    assert {recipe.batch for recipe in methods.SETTINGS.values()} == {64}


def test_both_networks_of_a_task_are_trained_and_read_again(tmp_path):
    nothing = torch.zeros(2, 1)
    splits = Splits(EXAMPLES, VALIDATION, VALIDATION, ("a", "b", "c"), nothing, nothing + 1)
    settings = TrainingSettings(epochs=1, batch=72)
    options = {"members": 2, "trials": 1, "processes": 1, "progress": False}
    pools = train_task(splits, settings, tmp_path, **options)
    assert [len(pool.members) for pool in pools] == [2, 1]
    x = VALIDATION.inputs
    for pool, again in zip(pools, train_task(splits, settings, tmp_path, **options), strict=True):
        network, (same,) = pool.members[0].network, again.draw(1, 0)
        assert network(x).shape == (30, 3)
        assert torch.equal(network(x), same(x))


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(30, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 4)
    model = nn.Sequential(nn.Flatten(), *layers).eval()
    with torch.no_grad():
        model[-1].weight *= 20  # logits as far apart as those of a trained network
    return model


def test_our_moments_and_one_softmax_of_the_mean(network):
    method = apdeepsense(network, X[:2])
    answer = method(X)
    with torch.no_grad():
        ours = onesigma.convert(network, X)(X)
    torch.testing.assert_close(answer.mean, ours.mean)
    torch.testing.assert_close(answer.var, ours.var)
    assert answer.var.min() > 0
    torch.testing.assert_close(answer.probs, ours.mean.softmax(1))
    # Not ours, which averages over the logits.
    assert (answer.probs - ours.probs).abs().max() > 1e-3
    entropy = torch.distributions.Categorical(probs=answer.probs).entropy()
    torch.testing.assert_close(answer.entropy, entropy)
    assert not answer.epistemic.any()
    torch.testing.assert_close(method(X[:1]).probs, answer.probs[:1])


def test_probabilities_in_place_of_logits_are_refused(network):
    with pytest.raises(UnsupportedOp, match="softmax"):
        apdeepsense(nn.Sequential(network, nn.Softmax(1)), X)
