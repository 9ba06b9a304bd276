import numpy as np
import pytest
import torch
from lab.datasets import hhar_files
from lab.datasets.test_speech import encode

from onesigma.errors import DataError
from onesigma.lab.datasets import dsads, hhar, motionsense, opportunity, speech, tasks
from onesigma.lab.datasets.prepared import ENVIRONMENT, data_root


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONESIGMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def save(root, file, **arrays):
    (root / file).parent.mkdir(exist_ok=True)
    np.savez(root / file, **arrays)


def add_motionsense(root):
    """A minute of each activity of each person."""
    count, length = 24 * 6, 3000
    save(
        root,
        motionsense.FILE,
        x=np.random.default_rng(0).integers(-900, 900, (count * length, 6)).astype(np.int16),
        scale=np.full(6, 0.001, np.float32),
        rec_len=np.full(count, length),
        rec_activity=np.tile(np.arange(6), 24),
        rec_user=np.repeat(np.arange(1, 25), 6),
        rec_trial=np.ones(count),
        activities=np.array(motionsense.CLASS_NAMES),
        channels=np.array(motionsense.CHANNELS),
        rate_hz=np.float32(50),
    )


def add_dsads(root):
    save(
        root,
        dsads.FILE,
        x=np.random.default_rng(0).integers(-900, 900, (13, 8, 130, 30)).astype(np.int16),
        scale=np.full(30, 0.001, np.float32),
        activity_ids=np.array(dsads.ACTIVITIES),
        users=np.arange(1, 9),
        channels=np.array(dsads.CHANNELS),
        rate_hz=np.float32(25),
    )


def add_speech(root):
    sound = np.random.default_rng(0).integers(-9000, 9000, size=(60, 1000)).astype(np.int16)
    high, low = encode(sound)
    save(
        root,
        speech.FILE,
        audio_hi=high[:50],
        audio_lo=low[:50],
        unknown_hi=high[50:],
        unknown_lo=low[50:],
        label=np.tile(np.arange(10), 5),
        is_test=np.arange(50) % 30 >= 22,
        speaker=np.array([f"{index % 30:08x}" for index in range(50)]),
        words=np.array(speech.CLASS_NAMES),
        rate_hz=np.int32(16000),
    )


def add_hhar(folder):
    rows = [
        line
        for user in "abi"
        for place, activity in enumerate(hhar.CLASS_NAMES)
        for line in hhar_files.walk(5.1, user=user, activity=activity, lag=100 * place)
    ]
    hhar_files.write(
        folder / "Activity recognition exp", Phones_accelerometer=rows, Phones_gyroscope=rows
    )


def test_a_stand_in_says_so_and_the_official_set_goes_first(root):
    add_dsads(root)
    assert tasks.load("hhar", root).splits.name == "DSADS-B (stand-in for HHAR)"
    add_motionsense(root)
    assert tasks.load("hhar", root).splits.name == "MotionSense (stand-in for HHAR)"
    assert tasks.load("opportunity", root).splits.name == "DSADS-A (stand-in for Opportunity)"
    add_hhar(root)
    assert tasks.load("hhar", root).splits.name == "HHAR"
    chosen = tasks.load("hhar", root, dataset="dsads-b")
    assert chosen.splits.name == "DSADS-B (stand-in for HHAR)"


def test_an_official_set_in_the_cache_needs_no_root(cache):
    add_hhar(cache / "hhar")
    task = tasks.load("hhar")
    assert task.splits.class_names == hhar.CLASS_NAMES
    assert task.splits.test.inputs.shape == (6, 6, 20, 20)


def test_hhar_is_parsed_once(cache, monkeypatch):
    add_hhar(cache / "hhar")
    first = tasks.load("hhar")
    with monkeypatch.context() as patch:
        patch.setattr(hhar, "recordings", lambda folder: pytest.fail("parsed again"))
        again = tasks.load("hhar")
    assert torch.equal(first.splits.train.inputs, again.splits.train.inputs)
    # Files that changed are parsed again.
    path = cache / "hhar" / "Activity recognition exp" / "Phones_gyroscope.csv"
    path.write_text(path.read_text() + hhar_files.row(0, (1, 2, 3), activity="wrong"))
    with pytest.raises(DataError, match="gt holds wrong"):
        tasks.load("hhar")


def test_a_damaged_or_unwritable_cache_does_no_harm(cache, monkeypatch):
    add_hhar(cache / "hhar")
    first = tasks.load("hhar")
    (path,) = (cache / "recordings").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    again = tasks.load("hhar")
    assert torch.equal(first.splits.train.inputs, again.splits.train.inputs)
    assert path.stat().st_size > 100
    path.unlink()
    (cache / "recordings").rmdir()
    (cache / "recordings").write_text("not a folder")
    assert len(tasks.load("hhar").splits.test) == 6


def test_windows_of_the_test_recordings_are_the_test_split(root):
    add_motionsense(root)
    task = tasks.load("hhar", root)
    again = task.windows(task.recordings["test"])
    assert torch.equal(again.inputs, task.splits.test.inputs)
    assert torch.equal(again.labels, task.splits.test.labels)
    assert {r.user for r in task.recordings["test"]} == {"5", "11", "17", "23"}


def test_foreign_activities_of_unseen_people_are_there_for_free(root):
    add_dsads(root)
    task = tasks.load("opportunity", root)
    # 130 rows hold 9 windows; two activities of the two test users.
    assert {name: len(x) for name, x in task.foreign.items()} == {"stairs": 36, "cycling": 36}
    raw = dsads.DSADS_A.windows(dsads.DSADS_A.parts(dsads.foreign_a(root)["cycling"])["test"])
    expected = (raw.inputs - task.splits.input_mean) / task.splits.input_std
    torch.testing.assert_close(task.foreign["cycling"], expected)


def test_a_held_out_class_is_foreign_and_nowhere_else(root):
    add_motionsense(root)
    whole, task = tasks.load("hhar", root), tasks.load("hhar", root, held_out="jog")
    assert task.splits.name == "MotionSense (stand-in for HHAR), without jog"
    assert task.splits.class_names == ("stairs_down", "stairs_up", "walk", "sit", "stand")
    kept = whole.splits.test.labels != 3
    assert len(task.splits.test) == kept.sum()
    assert len(task.foreign["jog"]) == (~kept).sum()
    names = [task.splits.class_names[i] for i in task.splits.test.labels]
    assert names == [whole.splits.class_names[i] for i in whole.splits.test.labels[kept]]


def test_speech_keeps_the_sound_for_noise(root):
    add_speech(root)
    task = tasks.load("speech", root)
    assert task.splits.name == "Speech Commands"
    assert task.splits.class_names == speech.CLASS_NAMES
    assert len(task.test_audio) == len(task.splits.test)
    torch.testing.assert_close(task.inputs(task.test_audio), task.splits.test.inputs)
    torch.testing.assert_close(task.inputs(task.clips.unknown), task.foreign["unknown words"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hhaar",), "'hhaar': choose one of hhar, opportunity, speech"),
        (("hhar", None, "dsads-a"), "'dsads-a': choose one of hhar, motionsense, dsads-b"),
    ],
)
def test_unknown_names_list_the_known(arguments, message):
    task, *rest = arguments
    with pytest.raises(ValueError, match=message):
        tasks.load(task, *rest[:1], dataset=rest[1] if rest else None)


def test_an_unknown_class_lists_the_known(root):
    add_motionsense(root)
    with pytest.raises(ValueError, match="No class 'swim': choose of stairs_down"):
        tasks.load("hhar", root, held_out="swim")


@pytest.mark.parametrize("task", ["hhar", "opportunity", "speech"])
def test_without_data_it_says_where_to_get_them(task, root):
    with pytest.raises(DataError, match=r"ONESIGMA_DATA.* from https?://"):
        tasks.load(task, root)
    with pytest.raises(DataError, match="a data root"):
        tasks.load(task)


def test_a_named_root_that_is_absent_is_an_error(tmp_path, cache):
    add_hhar(cache / "hhar")
    with pytest.raises(DataError, match="No data folder"):
        tasks.load("hhar", tmp_path / "absent")


def test_both_readings_of_opportunity_are_offered():
    readings = [tasks.MOTION[name].dataset for name in tasks.DATASETS["opportunity"][:2]]
    assert readings == [opportunity.OPPORTUNITY, opportunity.OPPORTUNITY_BY_SIZE]


def test_the_real_stand_in_for_hhar(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    try:
        splits = tasks.load("hhar", data_root(), dataset="motionsense").splits
    except DataError as error:
        pytest.skip(str(error))
    parts = (splits.train, splits.validation, splits.test)
    assert [len(part) for part in parts] == [7185, 1896, 1684]
    for part in parts:
        assert part.inputs.isfinite().all()
        assert set(part.labels.tolist()) == set(range(6))
