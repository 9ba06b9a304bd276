import hashlib

import numpy as np
import pytest
from data_files import write_wav

from onesigma.errors import DataError
from onesigma.lab.datasets import speech, speech_archive
from onesigma.lab.datasets.prepared import data_root, read_npz

SPEAKERS = [f"{number:08x}" for number in range(40)]


def sha1(text):
    return int(hashlib.sha1(text.encode()).hexdigest()[:8], 16)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve clips of each word in the official layout, of which eight are asked for."""
    monkeypatch.setattr(speech_archive, "WORD_CLIPS", 8)
    monkeypatch.setattr(speech_archive, "UNKNOWN_CLIPS", 5)
    monkeypatch.setattr(speech_archive, "_TEST_CLIPS", dict.fromkeys(speech.CLASS_NAMES, 2))
    generator = np.random.default_rng(0)
    tested = [s for s in SPEAKERS if sha1(s) < 0.3 * 2**32][:4]
    others = [s for s in SPEAKERS if sha1(s) >= 0.3 * 2**32][:8]
    for word in speech.CLASS_NAMES:
        for speaker in tested + others:
            sound = generator.integers(-9000, 9000, size=generator.integers(20, 50))
            write_wav(tmp_path / word / f"{speaker}_nohash_0.wav", sound)
    for number in range(7):
        sound = generator.integers(-9000, 9000, size=30)
        write_wav(tmp_path / "_unknown_" / f"bed_{number}_nohash_0.wav.wav", sound)
    write_wav(tmp_path / "_silence_" / "0.wav", np.zeros(16000))
    return tmp_path


def test_words_have_as_many_clips_and_speakers_are_apart(folder):
    clips = speech_archive.read(folder)
    assert clips.audio.shape == (80, 16000)
    assert clips.unknown.shape == (5, 16000)
    assert np.bincount(clips.labels).tolist() == [8] * 10
    assert np.bincount(clips.labels[clips.is_test]).tolist() == [2] * 10
    assert not set(clips.speakers[clips.is_test]) & set(clips.speakers[~clips.is_test])
    assert all(
        (sha1(s) < 0.3 * 2**32) == t for s, t in zip(*(clips.speakers, clips.is_test), strict=True)
    )


def test_clips_are_padded_with_silence(folder):
    clips = speech_archive.read(folder)
    assert np.abs(clips.audio[:, :20]).max(axis=1).min() > 0
    assert not clips.audio[:, 50:].any()


def test_the_same_clip_under_two_names_is_taken_once(folder):
    for path in (folder / "no").iterdir():
        path.write_bytes((folder / "yes" / path.name).read_bytes())
    with pytest.raises(DataError, match="no has too few clips"):
        speech_archive.read(folder)


def test_the_clips_make_splits(folder):
    data = speech.splits(speech_archive.read(folder), validation_share=0.4)
    assert data.name == "Speech Commands"
    assert data.test.inputs.shape == (20, *speech.INPUT_SHAPE)
    assert len(data.train) + len(data.validation) == 60


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: [p.unlink() for p in (f / "go").iterdir()], "go has too few"),
        (lambda f: [p.unlink() for p in (f / "_unknown_").iterdir()], "_unknown_ has too few"),
        (lambda f: (f / "up").rename(f / "down2"), "no folder up: not the official archive"),
        (lambda f: write_wav(next((f / "on").iterdir()), np.zeros(16001)), "longer than a second"),
        (lambda f: write_wav(next((f / "on").iterdir()), np.zeros(9), 8000), "16000 Hz"),
    ],
)
def test_another_layout_is_refused(folder, spoil, message):
    spoil(folder)
    # Every clip is looked at, whichever the test spoilt.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speech_archive, "WORD_CLIPS", 12)
        patch.setattr(speech_archive, "_TEST_CLIPS", dict.fromkeys(speech.CLASS_NAMES, 4))
        with pytest.raises(DataError, match=message):
            speech_archive.read(folder)


def test_the_prepared_clips_are_those_this_would_choose(tmp_path):
    try:
        names = read_npz(data_root(), speech.FILE, ("name", "unknown_name"))
        prepared = speech.read(data_root())
    except DataError as error:
        pytest.skip(str(error))
    for name, sound in zip(names["name"], prepared.audio, strict=True):
        write_wav(tmp_path / str(name), sound)
    for name, sound in zip(names["unknown_name"], prepared.unknown, strict=True):
        write_wav(tmp_path / "_unknown_" / str(name), sound)
    clips = speech_archive.read(tmp_path)
    for field in ("audio", "labels", "speakers", "is_test", "unknown"):
        assert np.array_equal(getattr(clips, field), getattr(prepared, field)), field
