"""The trained networks of the benchmarks: trained once, then read."""

from dataclasses import replace

import pytest
import torch

from onesigma.lab.bench import trained
from onesigma.lab.bench.trained import NETWORKS, RECIPES, another_take, load_digits, load_trained
from onesigma.lab.datasets.split import Split, Splits
from onesigma.lab.networks import ResidualCnn


def tiny(root):
    """Two classes told apart by their sign, in the shape of MotionSense."""
    labels = torch.arange(24) % 2
    noise = torch.randn(24, 6, 200, generator=torch.Generator().manual_seed(0))
    split = Split(noise + (2 * labels - 1.0)[:, None, None], labels, torch.zeros(24).long())
    return Splits(split, split, split, ("a", "b"), torch.zeros(6, 1), torch.ones(6, 1))


@pytest.fixture
def recipe(monkeypatch):
    changed = replace(
        RECIPES["residual_cnn"], build=lambda: ResidualCnn(width=4), data=tiny, epochs=1
    )
    monkeypatch.setitem(RECIPES, "residual_cnn", changed)
    return changed


def load(folder):
    return load_trained("residual_cnn", None, folder, progress=False)


def test_the_second_time_nothing_is_trained(recipe, tmp_path, monkeypatch):
    before = torch.get_rng_state()
    first, data = load(tmp_path / "new")
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *_: pytest.fail("trained again"))
    again, _ = load(tmp_path / "new")
    assert not first.training
    assert not again.training
    assert torch.equal(first(data.test.inputs), again(data.test.inputs))


def test_settings_name_the_file(recipe, tmp_path, monkeypatch):
    load(tmp_path)
    for changes in ({"epochs": 2}, {"learning_rate": 0.5}, {"augment": torch.neg}):
        monkeypatch.setitem(RECIPES, "residual_cnn", replace(recipe, **changes))
        load(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_an_unknown_name_lists_the_known(tmp_path):
    with pytest.raises(ValueError, match="motion_cnn, residual_cnn, keyword_cnn"):
        load_trained("nothing", cache_folder=tmp_path)


def test_one_is_shipped_and_the_others_are_trained():

    assert NETWORKS[0] == trained.SHIPPED
    assert list(NETWORKS[1:]) == list(RECIPES)


def test_digits_come_with_scikit_learn():
    data = load_digits()
    parts = (data.train, data.validation, data.test)
    assert [tuple(part.inputs.shape) for part in parts] == [(n, 1, 8, 8) for n in (1297, 200, 300)]
    assert data.train.inputs.mean().abs() < 1e-5
    assert all(part.labels.unique().tolist() == list(range(10)) for part in parts)


def test_another_take_moves_and_colours_each_image_by_itself():
    ramp = torch.arange(98.0).expand(20, 1, 24, 98)
    torch.manual_seed(0)
    moved = another_take(ramp, most=10, colour=0.0)
    lags = (moved - ramp)[:, 0, 0, 49]
    assert lags.abs().max() <= 10
    assert len(lags.unique()) > 5
    assert moved.min() == 0
    assert moved.max() == 97
    coloured = another_take(ramp, most=0, colour=0.3) - ramp
    torch.testing.assert_close(coloured, coloured[..., :1].expand_as(coloured), rtol=0, atol=1e-4)
    assert coloured.std() == pytest.approx(0.3, rel=0.2)
