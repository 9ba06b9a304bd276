"""Samples from files: rows or windows, scaled and shaped for a model, at constant memory."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from data_files import TABLE, WRITERS, write_csv, write_wav

from onesigma.errors import DataError, FileError, InputError
from onesigma.tables import files
from onesigma.tables.windows import (
    Scaling,
    find_window,
    fit_to_model,
    read_samples,
    rebatch,
    thin,
)


def read(path: Path, **options) -> np.ndarray:
    return np.concatenate(list(read_samples(path, **options)))


@pytest.mark.parametrize("many", [1, 3])
def test_batches_keep_every_entry_in_order(many):
    parts = [np.arange(n) + 100 * i for i, n in enumerate((5, 0, 13, 1, 1, 30, 4))]
    found = [*rebatch(parts, 4, many)]
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(parts))
    sizes = [len(batch) for batch in found]
    assert all(size % 4 == 0 and size <= 4 * many for size in sizes[:-1])
    assert (max(sizes) > 4) == (many > 1)


@pytest.mark.parametrize("name", WRITERS)
def test_a_row_is_a_sample(name, tmp_path):
    path = WRITERS[name](tmp_path / name)
    batches = list(read_samples(path, batch=10))
    assert [len(each) for each in batches] == [10, 10, 3]
    assert all(each.dtype == np.float32 for each in batches)
    np.testing.assert_array_equal(np.concatenate(batches), TABLE)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(("window", "hop"), [(5, None), (5, 2), (4, 7), (23, 1), (1, 1)])
def test_windows(name, window, hop, tmp_path):
    path = WRITERS[name](tmp_path / name)
    step = hop or window
    expected = [TABLE[i : i + window].T for i in range(0, 23 - window + 1, step)]
    cut = read(path, window=window, hop=hop, batch=3)
    np.testing.assert_array_equal(cut, np.stack(expected))
    last = read(path, window=window, hop=hop, channels_last=True)
    np.testing.assert_array_equal(last, np.stack(expected).transpose(0, 2, 1))


@pytest.mark.parametrize(("window", "hop"), [(5, 2), (4, 7), (9, 1), (2, 20)])
@pytest.mark.parametrize("lines", [1, 2, 7])
def test_windows_over_the_borders_of_pieces(window, hop, lines, tmp_path, monkeypatch):
    """However few rows are read at a time, the windows are the same."""
    path = write_csv(tmp_path / "t.csv")
    monkeypatch.setattr(files, "BYTES_AT_ONCE", 60 * (lines - 1) + 1)
    assert len(next(files.read_rows(path))) <= lines
    expected = [TABLE[i : i + window].T for i in range(0, 23 - window + 1, hop)]
    np.testing.assert_array_equal(read(path, window=window, hop=hop), np.stack(expected))


def test_arrays_of_samples(tmp_path):
    array = np.arange(5 * 2 * 4, dtype=np.int16).reshape(5, 2, 4)
    np.save(tmp_path / "t.npy", array)
    np.testing.assert_array_equal(read(tmp_path / "t.npy", batch=2), array)
    with pytest.raises(DataError, match=r"samples of shape \(2, 4\) already"):
        read(tmp_path / "t.npy", window=2)
    np.save(tmp_path / "t.npy", np.arange(6.0))
    assert read(tmp_path / "t.npy", window=3).tolist() == [[[0, 1, 2]], [[3, 4, 5]]]
    with pytest.raises(DataError, match="single numbers"):
        read(tmp_path / "t.npy")


def test_a_sound_is_one_sample_or_windows(tmp_path):
    values = np.random.default_rng(0).integers(-100, 100, size=(40, 2))
    path = write_wav(tmp_path / "t.wav", values)
    whole = read(path)
    np.testing.assert_allclose(whole, values.T[None] / 2**15)
    np.testing.assert_array_equal(read(path, window=20), whole.reshape(2, 2, 20).swapaxes(0, 1))
    np.testing.assert_array_equal(read(path, window=40, columns=[1]), whole[:, 1:])


def test_shape(tmp_path):
    path = write_csv(tmp_path / "t.csv", TABLE.reshape(-1)[:66].reshape(11, 6), "")
    np.testing.assert_array_equal(read(path, shape=(2, 3)), read(path).reshape(11, 2, 3))
    with pytest.raises(DataError, match=r"cannot take shape \(2, 4\)"):
        read(path, shape=(2, 4))


def test_scaling(tmp_path):
    path, scale = write_csv(tmp_path / "t.csv"), tmp_path / "scale.json"
    mean, std = [1.0, 2.0, 3.0], [0.5, 1.0, 2.0]
    scale.write_text(json.dumps({"mean": mean, "std": std}))
    expected = (TABLE - mean) / std
    np.testing.assert_allclose(read(path, scaling=Scaling.read(scale)), expected, rtol=1e-5)
    windows = read(path, window=4, scaling=Scaling.read(scale))
    np.testing.assert_allclose(windows[1], expected[4:8].T, rtol=1e-5)
    scale.write_text('{"mean": 1, "std": 2}')
    np.testing.assert_allclose(read(path, scaling=Scaling.read(scale)), (TABLE - 1) / 2, rtol=1e-5)
    scale.write_text('{"mean": [1, 2], "std": [1, 1]}')
    with pytest.raises(DataError, match="one per channel"):
        read(path, scaling=Scaling.read(scale))


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"mean": 1}', '{"mean": "a", "std": 1}', '{"mean": 1, "std": 0}',
             '{"mean": NaN, "std": 1}', '{"mean": [1], "std": [1, 2]}',
             '{"mean": 0, "std": 1e39}']
)  # fmt: skip
def test_no_scaling(text, tmp_path):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(DataError, match=r"s\.json"):
        Scaling.read(tmp_path / "s.json")
    with pytest.raises(FileError, match=r"other\.json: there is no such file"):
        Scaling.read(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("name", "options", "error", "says"),
    [
        ("t.csv", {"window": 0}, InputError, "window=0"),
        ("t.csv", {"window": 2, "hop": -1}, InputError, "hop=-1"),
        ("t.csv", {"batch": 0}, InputError, "batch=0"),
        ("t.csv", {"hop": 2}, InputError, "give window, too"),
        ("t.csv", {"channels_last": True}, InputError, "give window, too"),
        ("t.csv", {"window": 24}, DataError, "fewer rows than one window of 24"),
        ("header.csv", {}, DataError, "has no rows"),
        ("empty.npy", {}, DataError, "has no rows"),
        ("silent.wav", {}, DataError, "has no rows"),
    ],
)
def test_what_cannot_be_cut(name, options, error, says, tmp_path):
    write_csv(tmp_path / "t.csv")
    write_csv(tmp_path / "header.csv", TABLE[:0])
    np.save(tmp_path / "empty.npy", TABLE[:0])
    write_wav(tmp_path / "silent.wav", np.zeros((0, 1)))
    with pytest.raises(error, match=says):
        read(tmp_path / name, **options)


@pytest.mark.parametrize(
    ("given", "model", "expected"),
    [
        ((6, 50), (None, 6, 50), (6, 50)),
        ((300,), (None, 6, 50), (6, 50)),
        ((6, 50), (None, 2, 3, 50), (2, 3, 50)),
        ((28, 28), (None, 1, 28, 28), (1, 28, 28)),
        ((6, 70), (None, 6, None), (6, 70)),
        ((5, 4), None, (5, 4)),
        ((50, 6), (None, 6, 50), None),
        ((5, 50), (None, 6, 50), None),
        ((299,), (None, 6, 50), None),
        ((300,), (None, 6, None), None),
    ],
)
def test_samples_fit_the_model_or_are_refused(given, model, expected):
    x = np.arange(2 * np.prod(given), dtype=np.float32).reshape(2, *given)
    if expected is None:
        with pytest.raises(DataError, match=r"t.csv gives samples of shape .* the model takes"):
            fit_to_model(x, model, "t.csv")
    else:
        np.testing.assert_array_equal(fit_to_model(x, model, "t.csv"), x.reshape(2, *expected))


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize(("count", "step"), [(5, 1), (10, 1), (11, 2), (20, 2), (21, 4), (100, 16)])
def test_thin_keeps_every_kth(batch: int, count: int, step: int) -> None:
    numbers = np.arange(count)
    batches = (numbers[i : i + batch] for i in range(0, count, batch))
    kept, found, seen = thin(batches, most=10)
    assert (found, seen) == (step, count)
    assert kept.tolist() == numbers[::step].tolist()
    assert len(kept) <= 10


@pytest.mark.parametrize("name", WRITERS)
def test_memory_does_not_grow_with_the_file(name, tmp_path, monkeypatch):
    """The peak over a file eight times as long is the same, apart from noise."""
    monkeypatch.setattr(files, "BYTES_AT_ONCE", 4_000)

    def peak(count: int) -> int:
        path = WRITERS[name](tmp_path / f"{count}{name[1:]}", np.resize(TABLE, (count, 3)))
        tracemalloc.start()
        total = sum(len(x) for x in read_samples(path, window=50, hop=25, batch=8))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert total == (count - 50) // 25 + 1
        return most

    peak(100)  # what is imported and kept for good
    short, long = peak(2_500), peak(20_000)
    assert long < short + 50_000 < 20_000 * 3 * 4  # garbage not yet collected; all numbers


@pytest.mark.parametrize(
    ("width", "shape", "found"),
    [
        (3, (None, 3, 40), (40, False)),
        (6, (None, 2, 3, 40), (40, False)),
        (3, (None, 40, 3), (40, True)),
        (3, (None, 1, 40, 3), (40, True)),
        (24, (None, 1, 24, 98), (98, False)),
        (120, (None, 3, 40), None),  # a row is an input
        (5, (None, 3, 40), None),
        (6, (None, 6), None),
        (3, (None, 3, None), None),
        (3, None, None),
    ],
)
def test_the_shape_of_an_input_says_how_rows_are_cut(width, shape, found):
    assert find_window(width, shape) == found


def test_a_square_window_is_cut_as_asked():
    assert find_window(5, (None, 5, 5)) == (5, False)
    assert find_window(5, (None, 5, 5), channels_last=True) == (5, True)
