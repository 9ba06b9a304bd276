"""Sounds of one kind: every sample as it was written, or an error."""

import numpy as np
import pytest
from data_files import write_wav

from onesigma.errors import DataError
from onesigma.lab.datasets.sound import read_wav


def test_samples_of_a_sound_come_back(tmp_path):
    sound = np.array([0, 1, -1, 32767, -32768], dtype=np.int16)
    found = read_wav(write_wav(tmp_path / "a.wav", sound), 16000)
    assert found.dtype == np.int16
    assert np.array_equal(found, sound)
    with pytest.raises(DataError, match=r"absent\.wav"):
        read_wav(tmp_path / "absent.wav", 16000)


@pytest.mark.parametrize(
    ("channels", "width", "rate"), [(1, 2, 8000), (2, 2, 16000), (1, 4, 16000)]
)
def test_a_sound_of_another_kind_is_refused(channels, width, rate, tmp_path):
    path = write_wav(tmp_path / "a.wav", np.zeros((8, channels)), rate, width)
    with pytest.raises(DataError, match="expected 1 channel, 2 bytes a sample and 16000 Hz"):
        read_wav(path, 16000)


@pytest.mark.parametrize("length", [0, 10, 40, 60])
def test_a_sound_cut_short_is_refused(length, tmp_path):
    path = write_wav(tmp_path / "a.wav", np.arange(100))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"cannot be read as WAV|ends after"):
        read_wav(path, 16000)


def test_a_sound_with_any_byte_of_its_header_changed_is_refused_or_harmless(tmp_path):
    path = write_wav(tmp_path / "a.wav", np.arange(20))
    whole, refused = path.read_bytes(), 0
    for place in range(44):
        for value in (0, 1, 127, 255):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                read_wav(path, 16000)
            except DataError:
                refused += 1
    assert refused > 80
