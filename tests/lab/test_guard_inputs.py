"""What a guard is tested on: made as it would happen at the sensor."""

import math

import numpy as np
import torch

from onesigma.lab import guard_inputs
from onesigma.lab.datasets.split import Split, make_splits

G = torch.Generator().manual_seed(0)
RAW = torch.randn(12, 6, 40, generator=G) + torch.arange(6.0).reshape(1, 6, 1)


def splits():
    labels = torch.arange(12) % 2
    split = Split(RAW, labels, labels)
    return make_splits(split, split, split, ("a", "b"), "made up")


def test_turning_keeps_lengths_and_one_axis():
    turned = guard_inputs.turned(RAW, 30, axis=2)
    before, after = (x.reshape(12, 2, 3, 40) for x in (RAW, turned))
    torch.testing.assert_close(before.norm(dim=2), after.norm(dim=2))
    torch.testing.assert_close(before[:, :, 2], after[:, :, 2])
    cosine = (before[:, :, :2] * after[:, :, :2]).sum(2) / before[:, :, :2].square().sum(2)
    torch.testing.assert_close(cosine, torch.full_like(cosine, math.cos(math.radians(30))))


def test_broken_motion():
    data = splits()
    broken = guard_inputs._broken_motion(RAW, data)
    assert not broken["dead sensor"][:, :3].any()
    assert (broken["stuck axis"][:, 1].std(-1) == 0).all()
    torch.testing.assert_close(broken["wrong units"][:, :3], 9.81 * RAW[:, :3])
    torch.testing.assert_close(broken["wrong units"][:, 3:], RAW[:, 3:])
    torch.testing.assert_close(broken["swapped sensors"][:, :3], RAW[:, 3:])
    # What a network takes then is the raw input, or the one that was standardised twice.
    torch.testing.assert_close(data.standardise(broken["forgotten scaling"]), RAW)
    torch.testing.assert_close(broken["scaled twice"], data.standardise(RAW))


def test_far_motion_has_the_size_of_the_data():
    data = splits()
    for name, x in guard_inputs._far_motion(RAW, data).items():
        scaled = data.standardise(x)
        assert scaled.shape[1:] == (6, 40), name
        assert 0.5 < float(scaled.std()) < 2, name


def test_noise_in_sound_has_its_ratio():
    rng = np.random.default_rng(0)
    sound, noise = (rng.standard_normal((5, 16000)) * k for k in (1000, 300))
    found = guard_inputs._shifted_sound(sound, noise, rng)
    for db in (20, 10, 0):
        added = found[f"ambient noise, {db} dB"] - sound
        ratio = 10 * np.log10((sound**2).mean(1) / (added**2).mean(1))
        np.testing.assert_allclose(ratio, db, atol=1e-6)
