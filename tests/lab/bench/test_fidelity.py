"""Shifted inputs, and the comparison with Monte Carlo on a small model."""

import pytest
import torch
from lab.bench.small_model import examples
from torch import nn

from onesigma.errors import DataError
from onesigma.lab.bench import fidelity
from onesigma.lab.datasets import speech
from onesigma.lab.datasets.prepared import data_root
from onesigma.lab.datasets.split import Split, Splits


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
    noisy = fidelity.add_noise(inputs, 0.5, seed=1)
    assert (noisy - inputs).std() == pytest.approx(0.5, rel=0.02)
    assert torch.equal(noisy, fidelity.add_noise(inputs, 0.5, seed=1))
    assert not torch.equal(noisy, fidelity.add_noise(inputs, 0.5, seed=2))


def test_turned_windows_keep_raw_lengths_and_angles_between_sensors(splits):
    inputs = splits.test.inputs
    turned = fidelity.turn_sensors(inputs, splits, 40.0)
    assert turned.shape == inputs.shape
    before, after = raw(inputs, splits), raw(turned, splits)
    torch.testing.assert_close(after.norm(dim=2), before.norm(dim=2), rtol=1e-4, atol=1e-4)
    products = [(w[:, 0] * w[:, 1]).sum(dim=1) for w in (before, after)]
    torch.testing.assert_close(products[1], products[0], rtol=1e-3, atol=1e-3)
    assert (after - before).abs().max() > 1


def test_a_turn_of_nothing_changes_nothing(splits):
    inputs = splits.test.inputs
    torch.testing.assert_close(
        fidelity.turn_sensors(inputs, splits, 0.0), inputs, rtol=0, atol=1e-5
    )
    assert torch.equal(
        fidelity.turn_sensors(inputs, splits, 9.0, 3), fidelity.turn_sensors(inputs, splits, 9.0, 3)
    )


@pytest.mark.long
def test_real_speech_in_real_noise_keeps_its_order():
    try:
        clips = speech.read(data_root())
    except DataError as error:
        pytest.skip(str(error))
    kept = clips.is_test.nonzero()[0][:3]
    splits = Splits(*[None] * 3, (), torch.zeros(1), torch.ones(1))
    clean = speech.features(clips.audio[kept]).float()
    faint = fidelity.speech_in_noise(splits, 60.0, data_root())
    assert len(faint) == 562
    assert (faint[:3] - clean).abs().mean() < (faint[3:6] - clean).abs().mean()


def test_more_passes_are_closer_and_one_pass_of_an_exact_model_is_close():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.4), nn.Linear(16, 3)).eval()
    (x,) = examples(20)
    ref = fidelity.reference(network, x, 2000)
    models = {"one pass": fidelity.onesigma.convert(network, x[:2])}
    rows = {row.method: row for row in fidelity.compare(network, models, x, ref)}
    sampled = [rows[f"MC dropout, {passes}"].kl for passes in (100, 30, 10, 3)]
    assert sampled == sorted(sampled)
    assert rows["one pass"].kl < rows["MC dropout, 30"].kl
    assert rows["one pass"].std_ratio == pytest.approx(1, abs=0.1)
    assert "one pass" in fidelity.show("title", list(rows.values()), ref.noise)
