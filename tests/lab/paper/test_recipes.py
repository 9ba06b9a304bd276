"""The recipes: all networks of a task from its data."""

import torch
from lab.training.trainings import EXAMPLES, SETTINGS, VALIDATION
from onesigma.lab.paper.recipes import SETTINGS as RECIPES
from onesigma.lab.paper.recipes import train_task

from onesigma.lab.datasets.prepared import Splits
from onesigma.lab.datasets.tasks import DATASETS
from onesigma.lab.training.train import TrainingSettings


def test_every_task_has_a_recipe():
    assert RECIPES.keys() == DATASETS.keys()


def test_the_papers_settings_are_the_defaults():
    settings = TrainingSettings()
    assert (settings.batch, settings.learning_rate) == (64, 1e-4)
    assert {recipe.batch for recipe in RECIPES.values()} == {64}


def test_both_networks_of_a_task_are_trained_and_read_again(tmp_path):
    nothing = torch.zeros(2, 1)
    splits = Splits(EXAMPLES, VALIDATION, VALIDATION, ("a", "b", "c"), nothing, nothing + 1)
    options = {"members": 2, "trials": 1, "processes": 1, "progress": False}
    pools = train_task(splits, SETTINGS, tmp_path, **options)
    assert [len(pool.members) for pool in pools] == [2, 1]
    x = VALIDATION.inputs
    for pool, again in zip(pools, train_task(splits, SETTINGS, tmp_path, **options), strict=True):
        network, (same,) = pool.members[0].network, again.draw(1, 0)
        assert network(x).shape == (30, 3)
        assert torch.equal(network(x), same(x))
