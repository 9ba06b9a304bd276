import numpy as np
import pytest
import torch

from onesigma.errors import DataError
from onesigma.lab.datasets import motionsense
from onesigma.lab.datasets.prepared import ENVIRONMENT, data_root

SCALE = np.array([0.0005] * 3 + [0.001] * 3, dtype=np.float32)


@pytest.fixture
def root(tmp_path):
    """Two recordings of each user, 350 and 260 rows, in the layout of the prepared file."""
    generator = np.random.default_rng(0)
    users = np.repeat(np.arange(1, 25), 2)
    lengths = np.tile([350, 260], 24)
    arrays = {
        "x": generator.integers(-3000, 3000, size=(lengths.sum(), 6)).astype(np.int16),
        "scale": SCALE,
        "rec_len": lengths.astype(np.int32),
        "rec_activity": np.tile([2, 5], 24).astype(np.uint8),
        "rec_user": users.astype(np.uint8),
        "rec_trial": np.ones(48, dtype=np.uint8),
        "activities": np.array(motionsense.CLASS_NAMES),
        "channels": np.array(motionsense.CHANNELS),
        "rate_hz": np.float32(50),
    }
    write(tmp_path, arrays)
    return tmp_path


def write(root, arrays):
    path = root / motionsense.FILE
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)


def read(root):
    with np.load(root / motionsense.FILE, allow_pickle=False) as file:
        return dict(file)


@pytest.fixture
def data(root):
    return motionsense.load(root, motionsense.SAMPLES)


def test_every_user_is_in_one_split_only(data):
    users = motionsense.MOTIONSENSE.users
    splits = (data.train, data.validation, data.test)
    seen = [{users[subject] for subject in split.subjects} for split in splits]
    assert seen[1:] == [{"3", "9", "15", "21"}, {"5", "11", "17", "23"}]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 24


def test_a_window_is_the_recording_it_was_cut_from(root, data):
    # 350 rows at 50 Hz hold one window of 5 s, and so do 260.
    assert data.test.inputs.shape == (4 * 2, 6, 200)
    assert data.test.inputs.dtype == torch.float32
    assert data.test.labels[:2].tolist() == [2, 5]
    raw = (data.test.inputs[0] * data.input_std + data.input_mean).numpy()
    file = read(root)
    start = int(file["rec_len"][:8].sum())  # user 5 is the fifth, with two recordings each
    rows = file["x"][start : start + 350] * SCALE
    # 40 Hz advances 1.25 rows an instant.
    positions = np.arange(200) * 1.25
    before = np.floor(positions).astype(int)
    share = positions - before
    expected = rows[before] * (1 - share[:, None]) + rows[before + 1] * share[:, None]
    assert raw == pytest.approx(expected.T, abs=1e-4)


def test_reading_off_keeps_a_slow_wave():
    time = np.arange(250) / 50
    found = motionsense.samples(np.sin(2 * np.pi * time)[None, :, None])
    assert found.shape == (1, 1, 200)
    assert found[0, 0] == pytest.approx(np.sin(2 * np.pi * np.arange(200) / 40), abs=0.005)


def test_recordings_are_as_sensed_one_person_after_the_other(root):
    found = motionsense.recordings(root)
    assert [r.user for r in found] == [str(user) for user in range(1, 25) for _ in range(2)]
    file = read(root)
    second = found[1]
    assert second.signal == pytest.approx(file["x"][350:610] * SCALE, rel=1e-6)
    assert second.name == "user 1, stand, trial 1"
    assert set(second.labels.tolist()) == {5}
    assert (second.rate, second.triads) == (50.0, ((0, 1, 2), (3, 4, 5)))


def test_the_papers_task_takes_spectra_of_the_same_people(root):
    motion_set = motionsense.MOTIONSENSE
    splits = motion_set.splits(motion_set.parts(motionsense.recordings(root)))
    assert splits.name == "MotionSense (stand-in for HHAR)"
    assert splits.test.inputs.shape == (8, 6, 20, 20)
    assert {motion_set.users[s] for s in splits.test.subjects} == {"5", "11", "17", "23"}


def test_the_environment_names_the_root(root, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(root))
    assert len(motionsense.load().test) == len(motionsense.load(root).test)


def test_the_default_lies_beside_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(DataError, match="Pass root, or set ONESIGMA_DATA"):
        data_root()
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert data_root().resolve() == (tmp_path / "shared" / "data").resolve()


@pytest.mark.parametrize("origin", ["root", "ONESIGMA_DATA"])
def test_a_named_root_that_is_absent_is_not_replaced_by_another(origin, tmp_path, monkeypatch):
    absent = tmp_path / "absent"
    monkeypatch.setenv(ENVIRONMENT, str(absent if origin == ENVIRONMENT else tmp_path))
    with pytest.raises(DataError, match=origin):
        data_root(absent if origin == "root" else None)


def test_an_absent_file_says_what_to_pass(tmp_path):
    with pytest.raises(DataError, match=r"motionsense\.npz is not in .*ONESIGMA_DATA"):
        motionsense.load(tmp_path)


def test_a_truncated_file_is_refused(root):
    path = root / motionsense.FILE
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match="cannot be read"):
        motionsense.load(root)


def test_a_pickled_array_is_refused(root):
    write(root, {**read(root), "x": np.array([{}], dtype=object)})
    with pytest.raises(DataError, match="cannot be read"):
        motionsense.load(root)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("activities", np.array(["a", "b"]), "expected activities"),
        ("channels", np.array(["gx"]), "expected channels"),
        ("rec_len", np.full(48, 7), "do not add up"),
    ],
)
def test_another_file_is_refused(root, key, value, message):
    write(root, {**read(root), key: value})
    with pytest.raises(DataError, match=message):
        motionsense.load(root)


def test_a_missing_array_is_named(root):
    arrays = read(root)
    del arrays["scale"]
    write(root, arrays)
    with pytest.raises(DataError, match="lacks scale"):
        motionsense.load(root)


def test_the_real_recordings():
    try:
        data_root()
    except DataError as error:
        pytest.skip(str(error))
    data = motionsense.load(dataset=motionsense.SAMPLES)
    for split in (data.train, data.validation, data.test):
        assert split.inputs.isfinite().all()
        assert set(split.labels.tolist()) == set(range(6))
    # Gravity: at rest the accelerometer reads 1 g in whatever direction.
    still = data.test.inputs[data.test.labels == motionsense.CLASS_NAMES.index("stand")]
    gravity = (still * data.input_std + data.input_mean)[:, :3].mean(dim=2).norm(dim=1)
    assert gravity.median() == pytest.approx(1.0, abs=0.02)
