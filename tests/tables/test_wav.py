import wave

import numpy as np
import pytest
from onesigma.tables.wav import read_wav

from onesigma.errors import DataError


def write_wav(path, sound, rate=16000, channels=1, width=2):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", None))
        file.writeframes(np.asarray(sound, f"<i{width}").tobytes())


def test_samples_come_back(tmp_path):
    sound = np.array([0, 1, -1, 32767, -32768], dtype=np.int16)
    write_wav(tmp_path / "a.wav", sound)
    found = read_wav(tmp_path / "a.wav", 16000)
    assert found.dtype == np.int16
    assert np.array_equal(found, sound)


@pytest.mark.parametrize("other", [{"rate": 8000}, {"channels": 2}, {"width": 4}])
def test_another_kind_is_refused(tmp_path, other):
    write_wav(tmp_path / "a.wav", np.zeros(8), **other)
    with pytest.raises(DataError, match="expected 1 channel, 2 bytes a sample and 16000 Hz"):
        read_wav(tmp_path / "a.wav", 16000)


@pytest.mark.parametrize("length", [0, 10, 40, 60])
def test_a_damaged_file_is_refused(tmp_path, length):
    path = tmp_path / "a.wav"
    write_wav(path, np.arange(100))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"cannot be read as WAV|ends after"):
        read_wav(path, 16000)


def test_a_header_with_any_byte_changed_is_refused_or_harmless(tmp_path):
    path = tmp_path / "a.wav"
    write_wav(path, np.arange(20))
    whole, refused = path.read_bytes(), 0
    for place in range(44):
        for value in (0, 1, 127, 255):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                read_wav(path, 16000)
            except DataError:
                refused += 1
    assert refused > 80


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.wav"):
        read_wav(tmp_path / "absent.wav", 16000)
