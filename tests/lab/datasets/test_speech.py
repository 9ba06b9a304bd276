import hashlib

import numpy as np
import pytest
import torch
from data_files import write_wav

from onesigma.errors import DataError
from onesigma.lab.datasets import speech
from onesigma.lab.datasets.prepared import data_root, decode_audio, read_npz

SPEAKERS = [f"{number:08x}" for number in range(40)]


def encode(sound):
    """The coder, written the other way round from the decoder: signed numbers, sample by sample."""
    high, low = np.zeros(sound.shape, np.uint8), np.zeros(sound.shape, np.uint8)
    for row, clip in enumerate(sound.tolist()):
        for column, (before, now) in enumerate(zip([0, *clip[:-1]], clip, strict=True)):
            difference = (now - before + 32768) % 65536 - 32768
            code = 2 * difference if difference >= 0 else -2 * difference - 1
            high[row, column], low[row, column] = divmod(code, 256)
    return high, low


@pytest.fixture(scope="module")
def sound():
    return np.random.default_rng(0).integers(-20000, 20000, size=(60, 1600)).astype(np.int16)


@pytest.fixture(scope="module")
def arrays(sound):
    high, low = encode(sound)
    return {
        "audio_hi": high[:50],
        "audio_lo": low[:50],
        "label": np.tile(np.arange(10), 5).astype(np.uint8),
        "is_test": np.arange(50) % 30 >= 22,
        "speaker": np.array([SPEAKERS[index % 30] for index in range(50)]),
        "name": np.array([f"{index}.wav" for index in range(50)]),
        "words": np.array(speech.CLASS_NAMES),
        "unknown_hi": high[50:],
        "unknown_lo": low[50:],
        "unknown_name": np.array([f"{index}.wav.wav" for index in range(10)]),
        "rate_hz": np.int32(16000),
    }


@pytest.fixture
def root(tmp_path, arrays):
    write(tmp_path, arrays)
    return tmp_path


def write(root, arrays):
    path = root / speech.FILE
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)


def test_decoding_is_lossless(root, sound):
    clips = speech.read(root)
    assert clips.audio.dtype == np.int16
    assert np.array_equal(clips.audio, sound[:50])
    assert np.array_equal(clips.unknown, sound[50:])


def test_decoding_survives_the_largest_steps():
    extreme = np.array([[-32768, 32767, -32768, 0, 32767, -1]], dtype=np.int16)
    assert np.array_equal(decode_audio(*encode(extreme)), extreme)


def test_every_speaker_is_in_one_split_only(root, arrays):
    data = speech.load(root)
    groups = [set(split.subjects.tolist()) for split in (data.train, data.validation, data.test)]
    assert all(groups)
    assert sum(map(len, groups)) == len(set.union(*groups)) == 30
    assert len(data.test) == arrays["is_test"].sum()
    assert len(data.train) + len(data.validation) + len(data.test) == 50


def test_shapes_types_and_standard(root):
    data = speech.load(root)
    for split in (data.train, data.validation, data.test):
        assert split.inputs.shape == (len(split), 1, 24, 8)
        assert split.inputs.dtype == torch.float32
        assert split.labels.dtype == split.subjects.dtype == torch.int64
    assert data.unknown.shape == (10, 1, 24, 8)
    assert data.input_mean.shape == data.input_std.shape == (1, 24, 1)
    inputs = data.train.inputs.double()
    assert inputs.mean(dim=(0, 1, 3)) == pytest.approx(np.zeros(24), abs=1e-4)
    assert inputs.std(dim=(0, 1, 3), correction=0) == pytest.approx(np.ones(24), abs=1e-4)


def test_a_test_clip_is_its_own_sound(root, sound, arrays):
    data = speech.load(root)
    row = int(np.flatnonzero(arrays["is_test"])[3])
    raw = data.test.inputs[3] * data.input_std + data.input_mean
    torch.testing.assert_close(raw, speech.features(sound[row : row + 1])[0].float())
    assert data.test.labels[3] == arrays["label"][row]


def test_unknown_words_are_standardised_alike(root, sound):
    data = speech.load(root)
    raw = data.unknown * data.input_std + data.input_mean
    torch.testing.assert_close(raw, speech.features(sound[50:]).float())


@pytest.mark.parametrize(
    ("key", "value"), [("words", np.array(["yes"])), ("rate_hz", np.int32(8000))]
)
def test_another_file_is_refused(root, arrays, key, value):
    write(root, {**arrays, key: value})
    with pytest.raises(DataError, match="expected"):
        speech.load(root)


def test_an_absent_file_says_what_to_pass(tmp_path):
    with pytest.raises(DataError, match="ONESIGMA_DATA"):
        speech.load(tmp_path)


@pytest.fixture(scope="module")
def real():
    try:
        data_root()
    except DataError as error:
        pytest.skip(str(error))
    return speech.read()


def test_the_real_clips(real):
    assert real.audio.shape == (2250, 16000)
    assert real.unknown.shape == (200, 16000)
    assert np.bincount(real.labels).tolist() == [225] * 10
    assert real.is_test.sum() == 562
    # Sound that was decoded wrongly drifts off; some microphones here do have an offset.
    assert np.median(np.abs(real.audio.mean(axis=1))) < 10


def test_the_real_speakers_are_apart(real):
    held_out = ~real.is_test & speech.is_validation(real.speakers)
    parts = [real.speakers[rows] for rows in (~real.is_test & ~held_out, held_out, real.is_test)]
    assert [len(part) for part in parts] == [1371, 317, 562]
    groups = [set(part.tolist()) for part in parts]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_real_features_have_the_stated_shape(real):
    assert speech.features(real.audio[:3]).shape == (3, *speech.INPUT_SHAPE)


def sha1(text):
    return int(hashlib.sha1(text.encode()).hexdigest()[:8], 16)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve clips of each word in the official layout, of which eight are asked for."""
    monkeypatch.setattr(speech, "WORD_CLIPS", 8)
    monkeypatch.setattr(speech, "UNKNOWN_CLIPS", 5)
    monkeypatch.setattr(speech, "TEST_CLIPS", dict.fromkeys(speech.CLASS_NAMES, 2))
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
    clips = speech.read_archive(folder)
    assert clips.audio.shape == (80, 16000)
    assert clips.unknown.shape == (5, 16000)
    assert np.bincount(clips.labels).tolist() == [8] * 10
    assert np.bincount(clips.labels[clips.is_test]).tolist() == [2] * 10
    assert not set(clips.speakers[clips.is_test]) & set(clips.speakers[~clips.is_test])
    assert all(
        (sha1(s) < 0.3 * 2**32) == t for s, t in zip(*(clips.speakers, clips.is_test), strict=True)
    )


def test_clips_are_padded_with_silence(folder):
    clips = speech.read_archive(folder)
    assert np.abs(clips.audio[:, :20]).max(axis=1).min() > 0
    assert not clips.audio[:, 50:].any()


def test_the_same_clip_under_two_names_is_taken_once(folder):
    for path in (folder / "no").iterdir():
        path.write_bytes((folder / "yes" / path.name).read_bytes())
    with pytest.raises(DataError, match="no has too few clips"):
        speech.read_archive(folder)


def test_the_clips_make_splits(folder):
    data = speech.splits(speech.read_archive(folder), validation_share=0.4)
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
        patch.setattr(speech, "WORD_CLIPS", 12)
        patch.setattr(speech, "TEST_CLIPS", dict.fromkeys(speech.CLASS_NAMES, 4))
        with pytest.raises(DataError, match=message):
            speech.read_archive(folder)


@pytest.mark.long
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
    clips = speech.read_archive(tmp_path)
    for field in ("audio", "labels", "speakers", "is_test", "unknown"):
        assert np.array_equal(getattr(clips, field), getattr(prepared, field)), field
