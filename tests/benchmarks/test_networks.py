import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import onesigma
from onesigma.lab.datasets.prepared import Splits
from onesigma.lab.datasets.watch import Split


@pytest.fixture
def networks(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import networks

    yield networks
    for name in ("networks", "architectures"):
        sys.modules.pop(name, None)


def tiny(root):
    """Two classes apart by their sign, in the shape of MotionSense."""
    labels = torch.arange(48) % 2
    noise = torch.randn(48, 6, 200, generator=torch.Generator().manual_seed(0))
    split = Split(noise + (2 * labels - 1.0)[:, None, None], labels, torch.zeros(48).long())
    return Splits(split, split, split, ("a", "b"), torch.zeros(6, 1), torch.ones(6, 1))


@pytest.fixture
def recipe(networks, monkeypatch):
    changed = replace(networks.RECIPES["residual_cnn"], data=tiny, batch=16)
    monkeypatch.setitem(networks.RECIPES, "residual_cnn", changed)
    return changed


def test_the_second_time_nothing_is_trained(networks, recipe, tmp_path, monkeypatch):
    first, data = networks.train_cached("residual_cnn", epochs=1, cache_folder=tmp_path / "new")
    monkeypatch.setattr(networks, "_fit", lambda *_: pytest.fail("trained again"))
    again, _ = networks.train_cached("residual_cnn", epochs=1, cache_folder=tmp_path / "new")
    assert not first.training
    assert not again.training
    assert torch.equal(first(data.test.inputs), again(data.test.inputs))


def test_seed_epochs_and_settings_name_the_file(networks, recipe, tmp_path, monkeypatch):
    for seed, epochs in ((0, 1), (1, 1), (0, 2), (0, 1)):
        networks.train_cached("residual_cnn", seed, epochs, cache_folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    monkeypatch.setitem(networks.RECIPES, "residual_cnn", replace(recipe, weight_decay=0.5))
    networks.train_cached("residual_cnn", 0, 1, cache_folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_damaged_file_is_replaced(networks, recipe, tmp_path):
    first, data = networks.train_cached("residual_cnn", epochs=1, cache_folder=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    again, _ = networks.train_cached("residual_cnn", epochs=1, cache_folder=tmp_path)
    assert torch.equal(first(data.test.inputs), again(data.test.inputs))
    assert path.stat().st_size > 100


def test_the_random_state_is_left_alone(networks, recipe, tmp_path):
    before = torch.get_rng_state()
    networks.train_cached("residual_cnn", epochs=1, cache_folder=tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_name_lists_the_known(networks, tmp_path):
    with pytest.raises(ValueError, match="motion_cnn, residual_cnn, keyword_cnn"):
        networks.train_cached("nothing", cache_folder=tmp_path)


def test_six_networks_are_listed(networks):
    trained = ["digits_cnn", "motion_cnn", "residual_cnn", "keyword_cnn", "paper_cnn"]
    assert list(networks.NETWORKS) == ["watch_cnn", *trained]


@pytest.mark.parametrize(
    ("name", "shape", "classes", "sites"),
    [
        ("digits_cnn", (1, 8, 8), 10, 4),
        ("motion_cnn", (6, 200), 6, 4),
        ("residual_cnn", (6, 200), 6, 5),
        ("keyword_cnn", (1, 24, 98), 10, 5),
        ("paper_cnn", (6, 20, 20), 6, 4),
    ],
)
def test_each_converts(networks, name, shape, classes, sites):
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    converted = onesigma.convert(networks.RECIPES[name].build(), x)
    assert converted(x).var.shape == (2, classes)
    assert converted(x).var.min() > 0
    assert len(converted.report.sites) == sites


def test_digits_come_with_scikit_learn(networks):
    data = networks.digits(None)
    parts = (data.train, data.validation, data.test)
    assert [tuple(part.inputs.shape) for part in parts] == [(n, 1, 8, 8) for n in (1297, 200, 300)]
    assert data.train.inputs.mean().abs() < 1e-5
    assert all(part.labels.unique().tolist() == list(range(10)) for part in parts)


def test_another_take_moves_and_colours_each_image_by_itself(networks):
    ramp = torch.arange(98.0).expand(20, 1, 24, 98)
    torch.manual_seed(0)
    moved = networks.another_take(ramp, most=10, colour=0.0)
    lags = (moved - ramp)[:, 0, 0, 49]
    assert lags.abs().max() <= 10
    assert len(lags.unique()) > 5
    assert moved.min() == 0
    assert moved.max() == 97
    coloured = networks.another_take(ramp, most=0, colour=0.3) - ramp
    torch.testing.assert_close(coloured, coloured[..., :1].expand_as(coloured), rtol=0, atol=1e-4)
    assert coloured.std() == pytest.approx(0.3, rel=0.2)
