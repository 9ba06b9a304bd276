import numpy as np
import pytest

from onesigma.errors import DataError
from onesigma.lab.datasets import dsads
from onesigma.lab.datasets.prepared import data_root

SCALE = np.tile(np.repeat(np.array([0.004, 0.001], np.float32), 3), 5)


@pytest.fixture
def arrays():
    generator = np.random.default_rng(0)
    return {
        "x": generator.integers(-3000, 3000, size=(13, 8, 260, 30)).astype(np.int16),
        "scale": SCALE,
        "activity_ids": np.array(dsads.ACTIVITIES, np.uint8),
        "users": np.arange(1, 9, dtype=np.uint8),
        "channels": np.array(dsads.CHANNELS),
        "rate_hz": np.float32(25),
    }


@pytest.fixture
def root(tmp_path, arrays):
    write(tmp_path, arrays)
    return tmp_path


def write(root, arrays):
    path = root / dsads.FILE
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)


def test_stand_ins_say_what_they_are():
    assert dsads.DSADS_A.name == "DSADS-A (stand-in for Opportunity)"
    assert dsads.DSADS_B.name == "DSADS-B (stand-in for HHAR)"


def test_use_a_takes_torso_left_arm_and_right_leg(root, arrays):
    found = dsads.recordings_a(root)
    assert len(found) == 8 * 9
    assert found[0].signal.shape == (260, 18)
    # User 3, activity 9 (walking): the tenth of 13 rows of x has number 9's place, 8.
    (walk,) = (r for r in found if r.name == "user 3, activity 9, T+LA+RL")
    units = [arrays["x"][8, 2, :, first : first + 6] for first in (0, 12, 18)]
    assert walk.signal == pytest.approx(np.concatenate(units, axis=1) * SCALE[:18], rel=1e-6)
    assert set(walk.labels.tolist()) == {1}
    assert (walk.user, walk.rate, len(walk.triads)) == ("3", 25.0, 6)


def test_use_b_counts_each_sensor_as_a_device(root, arrays):
    found = dsads.recordings_b(root)
    assert len(found) == 8 * 9 * 5
    (up,) = (r for r in found if r.name == "user 8, activity 5, LL")
    assert up.signal == pytest.approx(arrays["x"][4, 7, :, 24:] * SCALE[24:], rel=1e-6)
    assert set(up.labels.tolist()) == {dsads.CLASSES_B.index("stairsup")}


@pytest.mark.parametrize(
    ("motion_set", "read", "test", "shape"),
    [
        (dsads.DSADS_A, dsads.recordings_a, {6, 7}, (6, 3, 25)),
        (dsads.DSADS_B, dsads.recordings_b, {0}, (6, 20, 20)),
    ],
)
def test_splits_hold_different_people(root, motion_set, read, test, shape):
    splits = motion_set.splits(motion_set.parts(read(root)))
    people = [set(s.subjects.tolist()) for s in (splits.train, splits.validation, splits.test)]
    assert people[2] == test
    assert sum(map(len, people)) == len(set.union(*people)) == 8
    assert splits.test.inputs.shape[1:] == shape
    assert set(splits.train.labels.tolist()) == set(range(len(motion_set.class_names)))


def test_foreign_activities_are_none_of_the_classes(root):
    for read, foreign in (
        (dsads.recordings_a, dsads.foreign_a(root)),
        (dsads.recordings_b, dsads.foreign_b(root)),
    ):
        known = {r.name for r in read(root)}
        strange = {r.name for recordings in foreign.values() for r in recordings}
        assert strange
        assert not strange & known
    assert set(dsads.foreign_a(root)) == {"stairs", "cycling"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("channels", np.array(["gx"]), "expected channels"),
        ("activity_ids", np.arange(13), "expected the activities"),
        ("x", np.zeros((13, 7, 9, 30), np.int16), "x must be"),
        ("x", np.zeros((13, 9), np.int16), "x must be"),
    ],
)
def test_another_file_is_refused(root, arrays, key, value, message):
    write(root, {**arrays, key: value})
    with pytest.raises(DataError, match=message):
        dsads.recordings_a(root)


def test_the_real_recordings_have_the_published_counts():
    try:
        found = dsads.recordings_a(data_root())
    except DataError as error:
        pytest.skip(str(error))
    split = dsads.DSADS_A.windows(found)
    assert split.labels.bincount().tolist() == [9968, 19936, 4984, 9968]
    assert (split.subjects >= 6).sum() == 11_214
    # Gravity: lying and sitting still, the accelerometer reads 9.8 m/s².
    still = split.inputs[split.labels >= 2][:, 0].mean(dim=2).norm(dim=1)
    assert still.median() == pytest.approx(9.8, abs=0.3)
