import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from onesigma.errors import DataError
from onesigma.lab.datasets.prepared import Splits, data_root
from onesigma.lab.datasets.watch import Split

PATH = Path(__file__).parents[2] / "benchmarks" / "shift.py"
SPEC = importlib.util.spec_from_file_location("shift", PATH)
shift = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(shift)


@pytest.fixture(params=[(6, 20), (2, 3, 20)], ids=["6×time", "2×3×time"])
def splits(request):
    inputs = torch.randn(5, *request.param, generator=torch.Generator().manual_seed(0))
    split = Split(inputs, torch.zeros(5).long(), torch.zeros(5).long())
    channels = (*request.param[:-1], 1)
    mean, std = torch.arange(6.0).reshape(channels), torch.arange(1.0, 7.0).reshape(channels)
    return Splits(split, split, split, ("a", "b"), mean, std)


def raw(inputs, splits):
    return (inputs * splits.input_std + splits.input_mean).reshape(len(inputs), 2, 3, -1)


def test_noise_has_its_std_and_its_seed():
    inputs = torch.ones(200, 6, 50)
    noisy = shift.add_noise(inputs, 0.5, seed=1)
    assert (noisy - inputs).std() == pytest.approx(0.5, rel=0.02)
    assert torch.equal(noisy, shift.add_noise(inputs, 0.5, seed=1))
    assert not torch.equal(noisy, shift.add_noise(inputs, 0.5, seed=2))


def test_rotation_is_about_its_axis_by_its_angle():
    quarter = shift.rotation(torch.tensor([[0.0, 0.0, 2.0]], dtype=torch.float64), math.pi / 2)[0]
    expected = torch.tensor([[0, -1, 0], [1, 0, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(quarter, expected, rtol=0, atol=1e-15)


def test_rotation_is_rigid():
    axes = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turn = shift.rotation(axes, 0.7)
    identity = torch.eye(3, dtype=torch.float64).expand_as(turn)
    torch.testing.assert_close(turn @ turn.mT, identity, rtol=0, atol=1e-14)
    assert torch.linalg.det(turn).numpy() == pytest.approx(np.ones(50))
    trace = turn.diagonal(dim1=1, dim2=2).sum(dim=1)
    assert trace.numpy() == pytest.approx(np.full(50, 1 + 2 * math.cos(0.7)))


def test_turned_windows_keep_raw_lengths_and_angles_between_sensors(splits):
    inputs = splits.test.inputs
    turned = shift.rotate(inputs, splits, 40.0)
    assert turned.shape == inputs.shape
    before, after = raw(inputs, splits), raw(turned, splits)
    torch.testing.assert_close(after.norm(dim=2), before.norm(dim=2), rtol=1e-4, atol=1e-4)
    products = [(w[:, 0] * w[:, 1]).sum(dim=1) for w in (before, after)]
    torch.testing.assert_close(products[1], products[0], rtol=1e-3, atol=1e-3)
    assert (after - before).abs().max() > 1


def test_a_turn_of_nothing_changes_nothing(splits):
    inputs = splits.test.inputs
    torch.testing.assert_close(shift.rotate(inputs, splits, 0.0), inputs, rtol=0, atol=1e-5)
    assert torch.equal(shift.rotate(inputs, splits, 9.0, 3), shift.rotate(inputs, splits, 9.0, 3))


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 10.0])
def test_sound_is_mixed_at_the_stated_ratio(snr_db):
    generator = np.random.default_rng(0)
    sound = generator.integers(-9000, 9000, size=(7, 400)).astype(np.int16)
    noise = generator.integers(-900, 900, size=(3, 800)).astype(np.int16)
    added = shift.mix(sound, noise, snr_db, seed=4) - sound
    powers = [np.square(x.astype(np.float64)).mean(axis=1) for x in (sound, added)]
    assert 10 * np.log10(powers[0] / powers[1]) == pytest.approx(np.full(7, snr_db), abs=1e-9)
    assert np.array_equal(added, shift.mix(sound, noise, snr_db, seed=4) - sound)


def test_silence_has_no_ratio_and_stays_as_it_is():
    sound, silence = np.full((2, 10), 5, dtype=np.int16), np.zeros((1, 20), dtype=np.int16)
    assert np.array_equal(shift.mix(sound, silence, 0.0), sound)
    assert np.array_equal(shift.mix(silence[:, :10], sound[:, :10], 0.0), silence[:, :10])


def test_the_real_noise():
    try:
        data_root()
    except DataError as error:
        pytest.skip(str(error))
    assert shift.noise_clips().shape == (400, 32000)
