import numpy as np
import pytest
import scipy.signal
from data_files import write_wav
from lab.datasets.test_speech import encode

from onesigma.errors import DataError
from onesigma.lab.datasets import esc
from onesigma.lab.datasets.prepared import data_root

HEADER = "filename,fold,target,category,esc10,src_file,take"
ROWS = [
    "1-100-A-0.wav,1,0,dog,True,100,A",
    "2-200-A-10.wav,2,10,rain,True,200,A",
    "1-300-A-1.wav,1,1,rooster,False,300,A",
    "3-400-B-0.wav,3,0,dog,True,400,B",
]


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONESIGMA_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    """Four recordings in the official layout, the one that is not of ESC-10 missing on disk."""
    made = tmp_path / "ESC-50-master"
    (made / "meta").mkdir(parents=True)
    (made / esc.TABLE).write_text("\n".join([HEADER, *ROWS]))
    for number, name in enumerate(("1-100-A-0", "2-200-A-10", "3-400-B-0")):
        write_wav(made / "audio" / f"{name}.wav", tone(200 * (number + 1)), 44100)
    return made


def tone(hertz, rate=44100):
    return np.rint(9000 * np.sin(2 * np.pi * hertz * np.arange(5 * rate) / rate))


def test_the_ten_kinds_are_read_at_16_khz(folder):
    noise = esc.read_official(folder)
    assert {kind: clips.shape for kind, clips in noise.items()} == {
        "dog": (2, 80_000),
        "rain": (1, 80_000),
    }
    for found, hertz in ((noise["dog"][0], 200), (noise["dog"][1], 600), (noise["rain"][0], 400)):
        assert np.abs(found - tone(hertz, 16000)).max() <= 2


def test_resampling_agrees_with_scipy():
    sound = np.random.default_rng(0).integers(-9000, 9000, size=44100).astype(np.int16)
    expected = scipy.signal.resample(sound.astype(float), 16000)
    # The two differ in the one line at half the new rate.
    assert np.abs(esc.resample(sound) - expected).max() < 15


def test_resampling_clips_instead_of_wrapping():
    square = np.where(np.arange(44100) % 4410 < 2205, 32767, -32768).astype(np.int16)
    found = esc.resample(square).astype(int)
    assert np.abs(np.diff(found)).max() < 65535
    assert found.max() == 32767


def test_a_name_cannot_lead_out_of_the_folder(folder):
    row = ROWS[0].replace("1-100-A-0.wav", "../../1-100-A-0.wav")
    (folder / esc.TABLE).write_text("\n".join([HEADER, row]))
    assert list(esc.read_official(folder)) == ["dog"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (HEADER.replace(",esc10", ""), "lacks the columns esc10"),
        ("", "lacks the columns category, esc10, filename"),
        (HEADER, "names no recording"),
        (f"{HEADER}\n9-9-A-0.wav,1,0,dog,True,9,A", r"9-9-A-0\.wav"),
        (f"{HEADER}\n9-\0-A-0.wav,1,0,dog,True,9,A", "no such file"),
        (f"{HEADER}\n9-9-A-0.wav,1,0", "cut short"),
        (f"{HEADER}\n{'x' * 200_000}", "field limit"),
    ],
)
def test_another_table_is_refused(folder, table, message):
    (folder / esc.TABLE).write_text(table)
    with pytest.raises(DataError, match=message):
        esc.read_official(folder)


def test_a_recording_of_another_length_is_refused(folder):
    write_wav(folder / "audio" / "1-100-A-0.wav", np.zeros(1000), 44100)
    with pytest.raises(DataError, match="1000 samples instead of 220500"):
        esc.read_official(folder)


def test_no_table_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"esc50\.csv cannot be read"):
        esc.read_official(tmp_path)


@pytest.fixture
def prepared(tmp_path):
    sound = np.random.default_rng(0).integers(-9000, 9000, size=(6, 100)).astype(np.int16)
    high, low = encode(sound)
    path = tmp_path / esc.FILE
    path.parent.mkdir()
    arrays = {
        "audio_hi": high,
        "audio_lo": low,
        "category": np.array([1, 0, 1, 0, 1, 0], np.uint8),
        "categories": np.array(["dog", "rain"]),
        "rate_hz": np.int32(16000),
    }
    np.savez(path, **arrays)
    return tmp_path, sound, arrays


def test_the_prepared_clips(prepared):
    root, sound, _ = prepared
    noise = esc.load(root)
    assert list(noise) == ["dog", "rain"]
    assert np.array_equal(noise["dog"], sound[1::2])
    assert np.array_equal(noise["rain"], sound[::2])


def test_official_recordings_go_before_prepared_clips(prepared, folder):
    assert esc.load(prepared[0])["dog"].shape == (2, 80_000)


def test_another_rate_is_refused(prepared):
    root, _, arrays = prepared
    np.savez(root / esc.FILE, **{**arrays, "rate_hz": np.int32(8000)})
    with pytest.raises(DataError, match="expected 16000 Hz"):
        esc.read(root)


def test_the_real_clips():
    try:
        noise = esc.read(data_root())
    except DataError as error:
        pytest.skip(str(error))
    assert len(noise) == 10
    assert {clips.shape for clips in noise.values()} == {(40, 32_000)}
