"""Rows from files: the same numbers whatever the file, faults named, damage refused."""

import gzip
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from data_files import TABLE, WRITERS, write_wav

from onesigma.errors import DataError, PackageError
from onesigma.lab.datasets.prepared import read_npz
from onesigma.tables import files
from onesigma.tables.arrow import import_pyarrow
from onesigma.tables.files import column_names, read_array, read_rows


def read(path: Path, *arguments, **options) -> np.ndarray:
    return np.concatenate(list(read_rows(path, *arguments, **options)))


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_rows_from_every_kind(name, tmp_path):
    path = WRITERS[name](tmp_path / name)
    assert read(path).dtype == np.float32
    np.testing.assert_array_equal(read(path), TABLE)


@pytest.mark.parametrize("name", WRITERS)
def test_pieces_are_small(name, tmp_path, monkeypatch):
    path = WRITERS[name](tmp_path / name)
    monkeypatch.setattr(files, "BYTES_AT_ONCE", 70)
    assert max(len(piece) for piece in read_rows(path)) <= 5
    np.testing.assert_array_equal(read(path), TABLE)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_columns_by_name(name, tmp_path):
    path = WRITERS[name](tmp_path / name)
    np.testing.assert_array_equal(read(path, ["z", "x"]), TABLE[:, [2, 0]])


@pytest.mark.parametrize("name", WRITERS)
def test_columns_by_number(name, tmp_path):
    path = WRITERS[name](tmp_path / name)
    np.testing.assert_array_equal(read(path, ["2", 0]), TABLE[:, [2, 0]])
    np.testing.assert_array_equal(read(path, ["1-2"]), TABLE[:, 1:])
    for absent in ("3", "1-3", "2-1", "-1", "w"):
        with pytest.raises(DataError, match=f"no column '{absent}'"):
            read(path, [absent])
    with pytest.raises(DataError, match="at least one column"):
        read(path, [])


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
        "a;b\n1,0;2,5\n-3;4e1\n",
        "1,0;2,5\n-3,0;4,0e1\n",
        "1,0\t2,5\n\n-3\t4e1\n",
    ],
    ids=[
        "plain",
        "header",
        "semicolons",
        "tabs",
        "quotes",
        "empty lines",
        "blank lines",
        "decimal commas",
        "decimal commas alone",
        "and tabs",
    ],
)
def test_dialects_of_csv(text, tmp_path):
    (tmp_path / "t.csv").write_text(text, newline="", encoding="utf-8")
    assert read(tmp_path / "t.csv").tolist() == [[1, 2.5], [-3, 40]]


def test_a_packed_csv(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2.5\n-3,4e1\n"))
    assert read(path).tolist() == [[1, 2.5], [-3, 40]]
    assert column_names(path) == ["a", "b"]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"t\.csv\.gz cannot be read as CSV"):
        read(path)


def test_an_archive_of_one_array(tmp_path):
    np.savez(tmp_path / "t.npz", TABLE)
    np.testing.assert_array_equal(read(tmp_path / "t.npz"), TABLE)
    np.savez(tmp_path / "t.npz", x=TABLE, y=TABLE)
    with pytest.raises(DataError, match=r"t\.npz holds 2 arrays \(x, y\)"):
        read(tmp_path / "t.npz")


def test_nobody_is_advised_to_unpickle(tmp_path):
    np.save(tmp_path / "t.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "t.csv").write_text("walk\n")
    for name, says in (("t.npy", "holds Python objects"), ("t.csv", "read from .npy")):
        with pytest.raises(DataError, match=says) as said:
            read_array(tmp_path / name)
        assert "allow_pickle" not in str(said.value)


def test_the_header_can_be_stated(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3,4\n")
    assert len(read(path)) == 2
    assert read(path, header=True).tolist() == [[3, 4]]
    assert read(path, ["2"], header=True).tolist() == [[4]]
    path.write_text("0,1,2\n3,4,5\n")  # the names that pandas gives to columns without one
    assert read(path).tolist() == [[3, 4, 5]]
    assert read(path, header=False).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x,y\n1,2\n3,walk\n", r"t.csv, line 3, column 'y': 'walk' is no finite number"),
        ("x,y\n1,2\n\n3,nan\n", r"line 4, column 'y': 'nan'"),
        ("1,2\n3,\n", r"line 2, column 1 \(counted from 0\): empty"),
        ("x,y\n1,2\n3,inf\n", r"line 3, column 'y': 'inf'"),
        ("x,y\n1,2\n3,1e39\n", r"line 3, column 'y': '1e39'"),
        ("x,y\n1,2\n3\n", r"line 3: 1 fields, where line 1 has 2"),
        ("x,y\n1,2\n3,4,5\n", r"line 3: 3 fields, where line 1 has 2"),
        ("", "is empty"),
    ],
)
def test_a_fault_in_csv_is_named(text, says, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=says):
        read(tmp_path / "t.csv")


def test_text_in_a_column_that_is_not_read(tmp_path):
    (tmp_path / "t.csv").write_text("x,what,y\n1,walk,2\n3,run,4\n")
    assert read(tmp_path / "t.csv", ["x", "y"]).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("name", ["none.csv", "t.xlsx"])
def test_what_is_no_file_of_data(name, tmp_path):
    (tmp_path / "t.xlsx").write_text("1,2\n")
    with pytest.raises(DataError, match="no such file" if "none" in name else "read from .csv"):
        read(tmp_path / name)


def test_arrays_of_any_dimension(tmp_path):
    array = np.arange(5 * 2 * 4, dtype=np.int16).reshape(5, 2, 4)
    np.save(tmp_path / "t.npy", array)
    np.testing.assert_array_equal(read(tmp_path / "t.npy"), array)
    with pytest.raises(DataError, match="only a table has columns"):
        read(tmp_path / "t.npy", ["1"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (np.array([[1, 2], [3, np.nan]]), r"t.npy, row 1, column 1 \(counted from 0\): nan"),
        (np.array([[1, 2], [3, 1e39]]), "row 1, column 1 .counted from 0.: 1e.39 is no finite"),
        (np.full((2, 2, 3), np.inf), r"row 0, element \[0, 0\] \(counted from 0\): inf"),
        (np.array([["a", "b"]]), "one array of numbers"),
        (np.array([{}], dtype=object), "cannot be read as a .npy"),
    ],
    ids=["nan", "too large", "inf", "text", "pickled"],
)
def test_faults_in_npy(content, says, tmp_path):
    np.save(tmp_path / "t.npy", content, allow_pickle=True)
    with pytest.raises(DataError, match=says):
        read(tmp_path / "t.npy")


@pytest.mark.parametrize("name", ["t.csv", "t.npy", "t.parquet", "t.wav"])
def test_garbage(name, tmp_path):
    if name == "t.parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(b"\xff\xfe\x00 garbage, and enough of it to look like something")
    with pytest.raises(DataError, match="cannot be read as"):
        read(tmp_path / name)


def test_faults_in_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"x": [1, None, 3], "what": ["a", "b", "c"]}), tmp_path / "t.parquet"
    )
    with pytest.raises(DataError, match="column 'what' holds string, no numbers"):
        read(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"row 1, column 'x' \(counted from 0\): nan"):
        read(tmp_path / "t.parquet", ["x"])


def test_parquet_without_its_package(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    import_pyarrow.cache_clear()
    with pytest.raises(PackageError, match=r"pip install '.\[predict\]'"):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sound(width, tmp_path):
    top = 2 ** (8 * width - 1)
    values = np.random.default_rng(width).integers(-top, top, size=(40, 2))
    path = write_wav(tmp_path / "t.wav", values + (top if width == 1 else 0), width=width)
    np.testing.assert_allclose(read(path), values / top, atol=1e-7)
    np.testing.assert_array_equal(read(path, [1]), read(path)[:, 1:])


def test_a_sound_that_ends_too_soon(tmp_path):
    path = write_wav(tmp_path / "t.wav", np.zeros((100, 1)))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"ends after 75 of 100|it ends too soon"):
        read(path)


def refusals(path: Path, read_it, count: int = 100) -> int:
    """How often the file is refused, cut short or with a few bytes changed."""
    content, refused = path.read_bytes(), 0
    for seed in range(count):
        chance, changed = random.Random(seed), bytearray(content)
        for _ in range(chance.choice((1, 3, 20))):
            changed[chance.randrange(len(content))] = chance.randrange(256)
        whole = seed % 4 != 0
        path.write_bytes(changed if whole else content[: chance.randrange(len(content))])
        try:
            read_it()
        except DataError:
            refused += 1
    return refused


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_a_damaged_npz_is_refused_or_harmless(write, tmp_path):
    path = tmp_path / "set" / "file.npz"
    path.parent.mkdir()
    write(path, x=np.arange(600, dtype=np.int16) % 97, names=np.array(["a", "bb"]))
    assert refusals(path, lambda: read_npz(tmp_path, "set/file.npz", ("x", "names"))) > 85


def test_a_damaged_npy_is_refused_or_harmless(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(12.0).reshape(4, 3))
    assert refusals(path, lambda: read_array(path)) > 50


def test_a_header_that_states_more_than_all_memory_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((4, 3)))
    shape, larger = b"(4, 3), }" + 13 * b" ", b"(4" + 13 * b"0" + b", 3), }"
    assert shape in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(shape, larger))
    with pytest.raises(DataError, match=r"x\.npy"):
        read_array(path)


@pytest.mark.parametrize("array", [np.array(1.0), np.array(["a"]), np.zeros(2, dtype=complex)])
def test_what_is_no_batch_of_numbers_is_refused(array, tmp_path):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataError, match="numbers"):
        read_array(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("given", "read"), [("f8", "f4"), (">f4", "f4"), (">i8", "i8"), ("u1", "u1")]
)
def test_a_batch_of_numbers_is_read(given, read, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6).reshape(2, 3).astype(given))
    batch = read_array(tmp_path / "x.npy")
    assert batch.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert batch.dtype == np.dtype(read)
