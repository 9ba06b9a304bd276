"""Recordings, the windows cut from them, and the spectra of windows."""

import cmath

import numpy as np
import pytest
import torch

from onesigma.errors import DataError
from onesigma.lab.datasets.motion import (
    MotionSet,
    Recording,
    by_user,
    only_class,
    read_recordings,
    sensors_by_axes,
    spectra,
    triads_of,
    without_class,
    write_recordings,
)


def random_recording(n, user="a", name=""):
    generator = np.random.default_rng(n)
    signal = generator.normal(size=(n, 6)).astype(np.float32)
    return Recording(signal, 40.0, generator.integers(-1, 6, size=n), user, triads_of(6), name)


def test_triads_are_one_after_the_other():
    assert triads_of(9) == ((0, 1, 2), (3, 4, 5), (6, 7, 8))


def test_it_lasts_as_long_as_it_has_instants():
    assert random_recording(100).seconds == 2.5


@pytest.mark.parametrize("labels", [np.zeros(3, np.int64), np.zeros((4, 1), np.int64)])
def test_labels_must_fit(labels):
    with pytest.raises(ValueError, match="labels"):
        Recording(np.zeros((4, 3), np.float32), 1.0, labels, "a", ())


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new" / "kept.npz"
    written = [random_recording(7, "a", "first"), random_recording(30, "b", "second")]
    write_recordings(path, written)
    assert list(path.parent.iterdir()) == [path]
    for one, other in zip(read_recordings(path), written, strict=True):
        assert np.array_equal(one.signal, other.signal)
        assert one.signal.dtype == np.float32
        assert np.array_equal(one.labels, other.labels)
        kept = [(r.rate, r.user, r.triads, r.name) for r in (one, other)]
        assert kept[0] == kept[1]


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "kept.npz"
    write_recordings(path, [random_recording(100)])
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="Delete it"):
        read_recordings(path)


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


def test_what_never_varies_is_not_divided_by_nothing():
    still = [
        Recording(np.full((20, 3), 7, np.float32), 10.0, np.zeros(20, np.int64), user, ())
        for user in "abc"
    ]
    dataset = motion_set()
    splits = dataset.splits(dataset.parts(still))
    assert torch.equal(splits.test.inputs, torch.zeros(3, 1, 3, 10))
    assert torch.equal(splits.input_std, torch.ones(1, 3, 1))


def test_a_class_can_be_left_out():
    source = [recording([0, 1, 2, -1, 2])]
    (left,) = without_class(source, 1)
    assert left.labels.tolist() == [0, -1, 1, -1, 1]
    (alone,) = only_class(source, 2)
    assert alone.labels.tolist() == [-1, -1, 0, -1, 0]
    assert source[0].labels.tolist() == [0, 1, 2, -1, 2]


def transform(points):
    """Real and imaginary parts in turn, straight from the sum that defines them."""
    sums = [
        sum(x * cmath.exp(-2j * cmath.pi * f * t / 10) for t, x in enumerate(points))
        for f in range(10)
    ]
    return [value for s in sums for value in (s.real, s.imag)]


def test_each_interval_is_the_sum_that_defines_it():
    windows = np.random.default_rng(0).normal(size=(2, 200, 3))
    found = spectra(windows)
    assert found.shape == (2, 3, 20, 20)
    assert found.dtype == np.float32
    for n, channel, interval in ((0, 0, 0), (1, 2, 7), (1, 1, 19)):
        points = windows[n, 10 * interval : 10 * interval + 10, channel]
        assert found[n, channel, :, interval] == pytest.approx(transform(points), abs=1e-5)


@pytest.mark.parametrize(("rate", "tolerance"), [(25, 1.5), (40, 1e-4), (50, 0.5), (200, 1e-4)])
def test_a_wave_looks_alike_at_any_rate(rate, tolerance):
    # 4 Hz: a whole period in each interval, hence only the values of f = 1 and its mirror, f = 9.
    time = np.arange(5 * rate) / rate
    window = (2 * np.sin(2 * np.pi * 4 * time) + 3)[None, :, None]
    expected = np.zeros((20, 20))
    expected[0] = 30
    expected[3], expected[19] = -10, 10
    # The last interval lacks the instant after the last.
    assert spectra(window)[0, 0, :, :19] == pytest.approx(expected[:, :19], abs=tolerance)


def test_lines_between_instants_are_read_off():
    ramp = np.arange(250.0)[None, :, None]
    constant = spectra(ramp)[0, 0, 0] / 10
    # 10 points, 1.25 rows apart: their mean is the first plus 4.5 steps; the very end is held.
    assert constant[:19] == pytest.approx(12.5 * np.arange(19) + 4.5 * 1.25)


def test_no_window_gives_no_spectrum():
    assert spectra(np.zeros((0, 125, 6))).shape == (0, 6, 20, 20)
