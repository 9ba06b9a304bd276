"""The coefficients against scipy's DCT and a filterbank written out bin by bin."""

import math

import numpy as np
import pytest
import scipy.fft
import torch

from onesigma.lab.datasets import mfcc as module
from onesigma.lab.datasets.mfcc import dct_matrix, mel_filters, mfcc


def to_mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def to_hertz(mel: float) -> float:
    return 700 * (10 ** (mel / 2595) - 1)


def naive_filters() -> np.ndarray:
    low, high = to_mel(20), to_mel(8000)
    corners = [to_hertz(low + (high - low) * index / 41) for index in range(42)]
    filters = np.zeros((40, 257))
    for row in range(40):
        left, peak, right = corners[row : row + 3]
        for column in range(257):
            hertz = column * 16000 / 512
            if left < hertz <= peak:
                filters[row, column] = (hertz - left) / (peak - left)
            elif peak < hertz < right:
                filters[row, column] = (right - hertz) / (right - peak)
    return filters


def naive_mfcc(sound: np.ndarray) -> np.ndarray:
    filters, columns = naive_filters(), []
    window = [0.5 - 0.5 * math.cos(2 * math.pi * i / 400) for i in range(400)]
    for start in range(0, len(sound) - 400 + 1, 160):
        frame = np.zeros(512)
        frame[:400] = sound[start : start + 400] * window
        power = np.abs(scipy.fft.fft(frame)[:257]) ** 2
        energies = [max(float(np.dot(row, power)), 1e-6) for row in filters]
        columns.append(scipy.fft.dct(np.log(energies), type=2, norm="ortho")[:24])
    return np.stack(columns, axis=1)


@pytest.fixture
def sound() -> np.ndarray:
    generator = np.random.default_rng(0)
    time = np.arange(16000) / 16000
    tone = np.sin(2 * np.pi * (300 + 1500 * time) * time) * np.exp(-3 * time)
    return np.stack([0.3 * tone + 0.01 * generator.standard_normal(16000), 0.001 * tone])


def test_filters_are_those_written_out_bin_by_bin():
    assert mel_filters().numpy() == pytest.approx(naive_filters(), abs=1e-12)


def test_every_filter_hears_something():
    assert mel_filters().sum(dim=1).min() > 0.5


def test_dct_is_scipys_and_orthonormal():
    expected = scipy.fft.dct(np.eye(40), type=2, norm="ortho", axis=0)
    assert dct_matrix(40, 40).numpy() == pytest.approx(expected, abs=1e-12)
    assert dct_matrix(24, 40).numpy() == pytest.approx(expected[:24], abs=1e-12)


def test_the_whole_against_the_slow_way(sound):
    found = mfcc(torch.from_numpy(sound)).numpy()
    assert found.shape == (2, 24, 98)
    for row in range(2):
        assert found[row] == pytest.approx(naive_mfcc(sound[row]), abs=1e-8)


def test_single_precision_is_close(sound):
    double = mfcc(torch.from_numpy(sound))
    single = mfcc(torch.from_numpy(sound).float())
    assert single.dtype == torch.float32
    assert (single - double).abs().max() < 0.01


def test_chunks_do_not_show(sound, monkeypatch):
    sounds = torch.from_numpy(sound).repeat(3, 1)
    whole = mfcc(sounds)
    monkeypatch.setattr(module, "CHUNK", 2)
    torch.testing.assert_close(mfcc(sounds), whole, rtol=1e-12, atol=1e-12)


def test_silence_is_finite_and_flat():
    silent = mfcc(torch.zeros(1, 1600))
    assert silent[0, 0] == pytest.approx(math.log(1e-6) * math.sqrt(40))
    assert silent[0, 1:].abs().max() < 1e-4


def test_louder_moves_only_the_first_coefficient(sound):
    change = mfcc(torch.from_numpy(sound[:1]) * 2) - mfcc(torch.from_numpy(sound[:1]))
    assert change[0, 0].numpy() == pytest.approx(math.log(4) * math.sqrt(40), abs=1e-6)
    assert change[0, 1:].abs().max() < 1e-6


@pytest.mark.parametrize("shape", [(400,), (1, 399), (1, 1, 400)])
def test_sounds_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="400 samples or more"):
        mfcc(torch.zeros(shape))
