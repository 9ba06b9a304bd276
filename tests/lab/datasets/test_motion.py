import numpy as np
import pytest
import torch
from onesigma.lab.datasets.recording import Recording

from onesigma.errors import DataError
from onesigma.lab.datasets.motion import (
    MotionSet,
    by_user,
    hold_out,
    only_class,
    sensors_by_axes,
    without_class,
)


def recording(labels, user="a", rate=10.0, channels=3):
    """Channel 0 counts the instants, so that a window tells where it was cut."""
    count = np.arange(len(labels), dtype=np.float32)[:, None]
    signal = count + 1000 * np.arange(channels, dtype=np.float32)
    return Recording(signal, rate, np.asarray(labels, np.int64), user, ((0, 1, 2),), f"of {user}")


def motion_set(**changes):
    settings = {
        "name": "a set",
        "class_names": ("x", "y"),
        "users": ("a", "b", "c"),
        "part": by_user(test=("c",), validation=("b",)),
        "seconds": 1.0,
        "hop_seconds": 0.5,
        "transform": sensors_by_axes,
    }
    return MotionSet(**(settings | changes))


def test_windows_are_whole_and_half_overlap():
    split = motion_set().windows([recording([1] * 27, "b"), recording([0] * 10, "c")])
    assert split.inputs.shape == (5, 1, 3, 10)
    assert split.inputs.dtype == torch.float32
    assert split.inputs[:, 0, 0, 0].tolist() == [0, 5, 10, 15, 0]
    assert split.inputs[1, 0, 2].tolist() == [2005 + i for i in range(10)]
    assert split.labels.tolist() == [1, 1, 1, 1, 0]
    assert split.subjects.tolist() == [1, 1, 1, 1, 2]


def test_each_recording_is_cut_at_its_own_rate():
    windows = motion_set(transform=lambda w: w[:, :1]).windows(
        [recording([0] * 20, rate=10.0), recording([0] * 20, rate=20.0)]
    )
    assert windows.inputs[:, 0, 0].tolist() == [0, 5, 10, 0]


def test_with_full_agreement_a_window_has_one_activity():
    labels = [0] * 12 + [1] * 13
    split = motion_set(hop_seconds=0.1).windows([recording(labels)])
    assert split.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 12, 13, 14, 15]


@pytest.mark.parametrize(("ones", "kept"), [(4, [0]), (5, []), (6, [1])])
def test_else_most_instants_decide_and_a_tie_decides_nothing(ones, kept):
    recordings = [recording([0] * (10 - ones) + [1] * ones), recording([1] * 10, "b")]
    split = motion_set(agreement=0.5).windows(recordings)
    assert split.labels.tolist() == [*kept, 1]


def test_instants_without_a_class_do_not_vote():
    recordings = [recording([-1] * 6 + [0] * 4), recording([-1] * 4 + [0] * 6, "b")]
    assert motion_set(agreement=0.5).windows(recordings).subjects.tolist() == [1]


def test_no_window_at_all_is_an_error():
    with pytest.raises(DataError, match=r"a set: no window of 1 s"):
        motion_set().windows([recording([0] * 9), recording([-1] * 40)])


def test_parts_hold_different_people_and_training_sets_the_standard():
    dataset = motion_set()
    parts = dataset.parts([recording([0, 1] * 20, user, channels=3) for user in "cab"])
    users = {part: [r.user for r in found] for part, found in parts.items()}
    assert users == {"train": ["a"], "validation": ["b"], "test": ["c"]}
    labelled = [recording([i % 2] * 30, user) for user in "abc" for i in range(2)]
    splits = dataset.splits(dataset.parts(labelled))
    assert splits.name == "a set"
    assert splits.class_names == ("x", "y")
    raw = dataset.windows(dataset.parts(labelled)["train"]).inputs.double()
    mean, std = raw.mean(dim=(0, 3)), raw.std(dim=(0, 3), correction=0)
    torch.testing.assert_close(splits.input_mean, mean[..., None].float())
    torch.testing.assert_close(splits.input_std, std[..., None].float())
    again = splits.train.inputs * splits.input_std + splits.input_mean
    torch.testing.assert_close(again, raw.float())
    # The prior: of each place in a window, over the training windows.
    torch.testing.assert_close(
        splits.prior_std[0, 0, 4], (raw[:, 0, 0, 4].std(correction=0) / std[0, 0]).float()
    )
    assert splits.prior_std.shape == splits.train.inputs.shape[1:]


def test_what_never_varies_is_not_divided_by_nothing():
    still = [
        Recording(np.full((20, 3), 7, np.float32), 10.0, np.zeros(20, np.int64), user, ())
        for user in "abc"
    ]
    dataset = motion_set()
    splits = dataset.splits(dataset.parts(still))
    assert torch.equal(splits.test.inputs, torch.zeros(3, 1, 3, 10))
    assert torch.equal(splits.input_std, torch.ones(1, 3, 1))


def test_a_share_of_the_minutes_is_held_out_and_no_instant_is_in_both():
    recordings = [recording([0] * 10_000, "a"), recording([0] * 8_300, "b")]
    train, held = hold_out(recordings, 0.05)
    counts = [sum(len(r.signal) for r in part) for part in (train, held)]
    assert sum(counts) == 18_300
    # 31 minutes, the last of each person's a part: of 20, the 11th, and again the 31st.
    assert [len(r.signal) for r in held] == [600, 500]
    for user in "ab":
        seen = [r.signal[:, 0] for part in (train, held) for r in part if r.user == user]
        assert len(np.unique(np.concatenate(seen))) == sum(map(len, seen))


def test_a_class_can_be_left_out():
    source = [recording([0, 1, 2, -1, 2])]
    (left,) = without_class(source, 1)
    assert left.labels.tolist() == [0, -1, 1, -1, 1]
    (alone,) = only_class(source, 2)
    assert alone.labels.tolist() == [-1, -1, 0, -1, 0]
    assert source[0].labels.tolist() == [0, 1, 2, -1, 2]
