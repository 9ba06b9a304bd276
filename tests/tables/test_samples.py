"""Samples from files: the same numbers whatever the file, faults named, memory constant."""

import json
import sys
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from onesigma.tables.samples import Scaling, fitted, samples

from onesigma.errors import DataError, InputError, PackageError
from onesigma.tables import csv_rows, rows

TABLE = np.random.default_rng(0).normal(size=(23, 3)).astype(np.float32)
HEADER = "x,y,z\n"


def write_csv(path: Path, table: np.ndarray = TABLE, header: str = HEADER) -> Path:
    body = "\n".join(",".join(repr(float(v)) for v in row) for row in table)
    path.write_text(f"{header}{body}\n")
    return path


def write_npy(path: Path, table: np.ndarray = TABLE) -> Path:
    np.save(path, table)
    return path


def write_parquet(path: Path, table: np.ndarray = TABLE) -> Path:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(dict(zip("xyz", table.T, strict=True))), path)
    return path


def write_wav(path: Path, values: np.ndarray, width: int = 2) -> Path:
    """Whole numbers (instants, channels) of that many bytes, by int.to_bytes."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(values.shape[1])
        file.setsampwidth(width)
        file.setframerate(8000)
        signed = width > 1
        file.writeframes(
            b"".join(int(v).to_bytes(width, "little", signed=signed) for v in values.flat)
        )
    return path


WRITERS = {"t.csv": write_csv, "t.npy": write_npy, "t.parquet": write_parquet}


def all_of(path: Path, **options) -> torch.Tensor:
    return torch.cat(list(samples(path, **options)))


@pytest.mark.parametrize("name", WRITERS)
def test_a_row_is_a_sample(name, tmp_path):
    path = WRITERS[name](tmp_path / name)
    batches = list(samples(path, batch=10))
    assert [len(each) for each in batches] == [10, 10, 3]
    assert all(each.dtype == torch.float32 for each in batches)
    np.testing.assert_array_equal(torch.cat(batches).numpy(), TABLE)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(("window", "hop"), [(5, None), (5, 2), (4, 7), (23, 1), (1, 1)])
def test_windows(name, window, hop, tmp_path):
    path = WRITERS[name](tmp_path / name)
    step = hop or window
    expected = [TABLE[i : i + window].T for i in range(0, 23 - window + 1, step)]
    cut = all_of(path, window=window, hop=hop, batch=3)
    np.testing.assert_array_equal(cut.numpy(), np.stack(expected))
    last = all_of(path, window=window, hop=hop, channels_last=True)
    np.testing.assert_array_equal(last.numpy(), np.stack(expected).transpose(0, 2, 1))


@pytest.mark.parametrize(("window", "hop"), [(5, 2), (4, 7), (9, 1), (2, 20)])
@pytest.mark.parametrize("lines", [1, 2, 7])
def test_windows_over_the_borders_of_pieces(window, hop, lines, tmp_path, monkeypatch):
    """However few rows are read at a time, the windows are the same."""
    path = write_csv(tmp_path / "t.csv")
    monkeypatch.setattr(csv_rows, "_BYTES_AT_ONCE", 60 * (lines - 1) + 1)
    assert len(next(iter(rows.rows(path)))) <= lines
    expected = [TABLE[i : i + window].T for i in range(0, 23 - window + 1, hop)]
    np.testing.assert_array_equal(all_of(path, window=window, hop=hop).numpy(), np.stack(expected))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_columns_by_name(name, tmp_path):
    path = WRITERS[name](tmp_path / name)
    np.testing.assert_array_equal(all_of(path, columns=["z", "x"]).numpy(), TABLE[:, [2, 0]])


@pytest.mark.parametrize("name", WRITERS)
def test_columns_by_number(name, tmp_path):
    path = WRITERS[name](tmp_path / name)
    np.testing.assert_array_equal(all_of(path, columns=["2", 0]).numpy(), TABLE[:, [2, 0]])
    np.testing.assert_array_equal(all_of(path, columns=["1-2"]).numpy(), TABLE[:, 1:])
    for absent in ("3", "1-3", "2-1", "-1", "w"):
        with pytest.raises(DataError, match=f"no column '{absent}'"):
            all_of(path, columns=[absent])


@pytest.mark.parametrize(
    "text",
    [
        "1,2.5\n-3,4e1\n",
        "a,b\n1,2.5\n-3,4e1\n",
        "\ufeffa;b\r\n1;2.5\r\n-3;4e1\r\n",
        "a\tb\n 1\t2.5\n-3\t 4e1",
        'a,b\n"1",2.5\n"-3","4e1"\n',
        "1,2.5\n\n-3,4e1\n\n",
        "a,b\n1,2.5\n   \n-3,4e1\n",
    ],
    ids=["plain", "header", "semicolons", "tabs", "quotes", "empty lines", "blank lines"],
)
def test_dialects_of_csv(text, tmp_path):
    (tmp_path / "t.csv").write_text(text, newline="", encoding="utf-8")
    assert all_of(tmp_path / "t.csv").tolist() == [[1, 2.5], [-3, 40]]


def test_the_header_can_be_stated(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3,4\n")
    assert len(all_of(path)) == 2
    assert all_of(path, header=True).tolist() == [[3, 4]]
    assert all_of(path, header=True, columns=["2"]).tolist() == [[4]]
    path.write_text("0,1,2\n3,4,5\n")  # the names that pandas gives to columns without one
    assert all_of(path).tolist() == [[3, 4, 5]]
    assert all_of(path, header=False).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x,y\n1,2\n3,walk\n", r"t.csv, line 3, column 'y': 'walk' is no number"),
        ("x,y\n1,2\n\n3,nan\n", r"line 4, column 'y': 'nan'"),
        ("1,2\n3,\n", r"line 2, column 1 \(counted from 0\): empty"),
        ("x,y\n1,2\n3,inf\n", r"line 3, column 'y': 'inf'"),
        ("x,y\n1,2\n3,1e39\n", r"line 3, column 'y': '1e39'"),
        ("x,y\n1,2\n3\n", r"line 3: 1 fields, where line 1 has 2"),
        ("x,y\n1,2\n3,4,5\n", r"line 3: 3 fields, where line 1 has 2"),
        ("", "is empty"),
        ("x,y\n", "has no rows"),
    ],
)
def test_a_fault_in_csv_is_named(text, says, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=says):
        all_of(tmp_path / "t.csv")


def test_text_in_a_column_that_is_not_read(tmp_path):
    (tmp_path / "t.csv").write_text("x,what,y\n1,walk,2\n3,run,4\n")
    assert all_of(tmp_path / "t.csv", columns=["x", "y"]).tolist() == [[1, 2], [3, 4]]


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00 1,2\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        all_of(tmp_path / "t.csv")


def test_arrays_of_samples(tmp_path):
    array = np.arange(5 * 2 * 4, dtype=np.int16).reshape(5, 2, 4)
    np.save(tmp_path / "t.npy", array)
    assert torch.equal(all_of(tmp_path / "t.npy", batch=2), torch.from_numpy(array).float())
    with pytest.raises(DataError, match=r"samples of shape \(2, 4\) already"):
        all_of(tmp_path / "t.npy", window=2)
    with pytest.raises(DataError, match="only a table has columns"):
        all_of(tmp_path / "t.npy", columns=["1"])
    np.save(tmp_path / "t.npy", np.arange(6.0))
    assert all_of(tmp_path / "t.npy", window=3).tolist() == [[[0, 1, 2]], [[3, 4, 5]]]
    with pytest.raises(DataError, match="single numbers"):
        all_of(tmp_path / "t.npy")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (np.array([[1, 2], [3, np.nan]]), r"t.npy, row 1, column 1 \(counted from 0\): nan"),
        (np.array([[1, 2], [3, 1e39]]), "row 1, column 1 .counted from 0.: 1e.39 is no number"),
        (np.full((2, 2, 3), np.inf), r"row 0, element \[0, 0\] \(counted from 0\): inf"),
        (np.array([["a", "b"]]), "one array of numbers"),
        (np.array([{}], dtype=object), "cannot be read as a .npy"),
        (np.zeros((0, 3)), "has no rows"),
    ],
    ids=["nan", "too large", "inf", "text", "pickled", "empty"],
)
def test_faults_in_npy(content, says, tmp_path):
    np.save(tmp_path / "t.npy", content, allow_pickle=True)
    with pytest.raises(DataError, match=says):
        all_of(tmp_path / "t.npy")


@pytest.mark.parametrize("name", ["t.npy", "t.parquet", "t.wav"])
def test_garbage(name, tmp_path):
    if name == "t.parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(b"garbage, and enough of it to look like something")
    with pytest.raises(DataError, match="cannot be read as"):
        all_of(tmp_path / name)


def test_faults_in_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"x": [1, None, 3], "what": ["a", "b", "c"]}), tmp_path / "t.parquet"
    )
    with pytest.raises(DataError, match="column 'what' holds string, no numbers"):
        all_of(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"row 1, column 'x' \(counted from 0\): nan"):
        all_of(tmp_path / "t.parquet", columns=["x"])


def test_parquet_without_its_package(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PackageError, match=r"pip install 'onesigma\[predict\]'"):
        all_of(tmp_path / "t.parquet")


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sound(width, tmp_path):
    top = 2 ** (8 * width - 1)
    values = np.random.default_rng(width).integers(-top, top, size=(40, 2))
    path = write_wav(tmp_path / "t.wav", values + (top if width == 1 else 0), width)
    whole = all_of(path)
    assert whole.shape == (1, 2, 40)
    np.testing.assert_allclose(whole[0].numpy().T, values / top, atol=1e-7)
    np.testing.assert_array_equal(
        all_of(path, window=20).numpy(), whole.reshape(2, 2, 20).swapaxes(0, 1)
    )
    assert torch.equal(all_of(path, window=40, columns=[1]), whole[:, 1:])


def test_a_sound_that_ends_too_soon(tmp_path):
    path = write_wav(tmp_path / "t.wav", np.zeros((100, 1)))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"ends after 75 of 100|it ends too soon"):
        all_of(path)


def test_shape(tmp_path):
    path = write_csv(tmp_path / "t.csv", TABLE.reshape(-1)[:66].reshape(11, 6), "")
    assert all_of(path, shape=(2, 3)).shape == (11, 2, 3)
    assert torch.equal(all_of(path, shape=(2, 3)).flatten(1), all_of(path))
    with pytest.raises(DataError, match=r"cannot take shape \(2, 4\)"):
        all_of(path, shape=(2, 4))


def test_scaling(tmp_path):
    path, scale = write_csv(tmp_path / "t.csv"), tmp_path / "scale.json"
    mean, std = [1.0, 2.0, 3.0], [0.5, 1.0, 2.0]
    scale.write_text(json.dumps({"mean": mean, "std": std}))
    expected = (TABLE - mean) / std
    np.testing.assert_allclose(all_of(path, scaling=Scaling.read(scale)), expected, rtol=1e-5)
    windows = all_of(path, window=4, scaling=Scaling.read(scale))
    np.testing.assert_allclose(windows[1], expected[4:8].T, rtol=1e-5)
    scale.write_text('{"mean": 1, "std": 2}')
    np.testing.assert_allclose(
        all_of(path, scaling=Scaling.read(scale)), (TABLE - 1) / 2, rtol=1e-5
    )
    scale.write_text('{"mean": [1, 2], "std": [1, 1]}')
    with pytest.raises(DataError, match="one per channel"):
        all_of(path, scaling=Scaling.read(scale))


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"mean": 1}', '{"mean": "a", "std": 1}', '{"mean": 1, "std": 0}',
             '{"mean": NaN, "std": 1}', '{"mean": [1], "std": [1, 2]}',
             '{"mean": 0, "std": 1e39}']
)  # fmt: skip
def test_no_scaling(text, tmp_path):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(DataError, match=r"s\.json"):
        Scaling.read(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("name", "options", "error", "says"),
    [
        ("none.csv", {}, DataError, "no such file"),
        ("t.xlsx", {}, DataError, "data are read from .csv"),
        ("t.csv", {"window": 0}, InputError, "window=0"),
        ("t.csv", {"window": 2, "hop": -1}, InputError, "hop=-1"),
        ("t.csv", {"batch": 0}, InputError, "batch=0"),
        ("t.csv", {"hop": 2}, InputError, "give window, too"),
        ("t.csv", {"channels_last": True}, InputError, "give window, too"),
        ("t.csv", {"window": 24}, DataError, "fewer rows than one window of 24"),
    ],
)
def test_what_cannot_be_cut(name, options, error, says, tmp_path):
    write_csv(tmp_path / "t.csv")
    (tmp_path / "t.xlsx").write_text("1,2\n")
    with pytest.raises(error, match=says):
        all_of(tmp_path / name, **options)


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
    x = torch.arange(2.0 * np.prod(given)).reshape(2, *given)
    if expected is None:
        with pytest.raises(DataError, match=r"t.csv gives samples of shape .* the model takes"):
            fitted(x, model, "t.csv")
    else:
        assert fitted(x, model, "t.csv").shape[1:] == expected
        assert torch.equal(fitted(x, model, "t.csv").flatten(), x.flatten())


@pytest.mark.parametrize("name", WRITERS)
def test_memory_does_not_grow_with_the_file(name, tmp_path, monkeypatch):
    """The peak over a file eight times as long is the same, but for noise."""
    monkeypatch.setattr(csv_rows, "_BYTES_AT_ONCE", 4_000)
    monkeypatch.setattr(rows, "_NUMBERS_AT_ONCE", 1_000)

    def peak(count: int) -> int:
        path = WRITERS[name](tmp_path / f"{count}{name[1:]}", np.resize(TABLE, (count, 3)))
        tracemalloc.start()
        total = sum(len(x) for x in samples(path, window=50, hop=25, batch=8))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert total == (count - 50) // 25 + 1
        return most

    peak(100)  # what is imported and kept for good
    short, long = peak(5_000), peak(40_000)
    assert long < short + 100_000 < 40_000 * 3 * 4  # garbage not yet collected; all numbers
