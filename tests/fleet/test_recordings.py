"""Windows from files against a slow oracle: row by row, one list for each key."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from onesigma.errors import DataError
from onesigma.fleet import recordings
from onesigma.fleet.places import Part
from onesigma.fleet.recordings import Layout, Reader

SYSTEM = pyarrow.fs.LocalFileSystem()


def part(*files: Path, keys=()) -> Part:
    return Part("part", tuple(map(str, files)), (0,) * len(files), keys)


def read(layout: Layout, *files: Path, keys=()) -> tuple[dict, Reader]:
    """The windows of each key: (start, values) in their order."""
    reader, found = Reader(part(*files, keys=keys), layout, SYSTEM), {}
    for windows, places in reader.windows():
        own = found.setdefault(reader.recordings[places.key[0]].key, [])
        own += [(when, x.tolist()) for when, x in zip(places.start.tolist(), windows, strict=True)]
    return found, reader


def oracle(rows, layout: Layout, gap: float) -> dict:
    """``rows`` of (key, time, values), in the order of the files."""
    stretches, found = {}, {}
    for key, when, values in rows:
        own = stretches.setdefault(key, [[]])
        if own[-1] and not 0 < when - own[-1][-1][0] <= gap:
            own.append([])
        own[-1].append((when, values))
    for key, own in stretches.items():
        for stretch in own:
            for start in range(0, len(stretch) - layout.window + 1, layout.hop):
                cut = stretch[start : start + layout.window]
                x = np.array([values for _, values in cut], np.float32).T.tolist()
                found.setdefault(key, []).append((cut[0][0], x))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_windows_are_those_of_the_oracle(seed, tmp_path, monkeypatch):
    """Keys in blocks or mixed, gaps, times that go back, files that go on, pieces of any size."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(recordings, "ROWS_AT_ONCE", int(rng.integers(1, 60)))
    window, hop = int(rng.integers(2, 9)), int(rng.integers(1, 14))
    layout = Layout(("a", "b"), window, hop, ("who", "where"), "t", gap=1.5)
    count, clock, rows = int(rng.integers(20, 300)), {}, []
    mixed = rng.choice([0.02, 0.5])  # how often the next row is of another key
    key = ("x", "1")
    for _ in range(count):
        if rng.random() < mixed:
            key = (str(rng.choice(["x", "y"])), str(rng.choice(["1", "2"])))
        step = rng.choice([1, 5, 0, -3], p=[0.94, 0.03, 0.01, 0.02])
        clock[key] = clock.get(key, 0) + int(step)
        rows.append((key, clock[key], rng.normal(size=2).astype(np.float32).tolist()))
    cut = int(rng.integers(1, count))
    files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for path, some in zip(files, (rows[:cut], rows[cut:]), strict=True):
        columns = {
            "who": [key[0] for key, *_ in some],
            "where": pa.array([int(key[1]) for key, *_ in some]),
            "t": [when for _, when, _ in some],
            "a": pa.array([values[0] for *_, values in some], pa.float32()),
            "b": pa.array([values[1] for *_, values in some], pa.float32()),
        }
        pq.write_table(pa.table(columns), path, row_group_size=int(rng.integers(1, 100)))
    found, reader = read(layout, *files)
    assert found == oracle(rows, layout, 1.5)
    assert sum(each.rows for each in reader.recordings) == count


def write(path: Path, **columns) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_without_a_time_only_keys_divide(tmp_path):
    path = write(tmp_path / "a.parquet", k=["p"] * 5 + ["q"] * 3, a=np.arange(8.0))
    found, _ = read(Layout(("a",), 2, 2, ("k",)), path)
    assert {key: [when for when, _ in own] for key, own in found.items()} == {
        ("p",): [0, 2],
        ("q",): [0],
    }
    found, _ = read(Layout(("a",), None), path)
    assert found == {(): [(i, [float(i)]) for i in range(8)]}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_keep_their_type(unit, tmp_path):
    size = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    late = 1_772_323_200 * size  # of 2026, where a float has no nanoseconds
    ticks = late + np.array([0, 1, 2, 3, 9, 10]) * size
    for name, when in {"number": ticks, "date": pa.array(ticks, pa.timestamp(unit))}.items():
        path = write(tmp_path / f"{name}.parquet", t=when, a=np.arange(6.0))
        found, reader = read(Layout(("a",), 2, 1, (), "t", unit), path)
        scale = 1000 if (unit, name) == ("s", "date") else 1  # Parquet has no dates in seconds
        assert [when for when, _ in found[()]] == (scale * ticks[[0, 1, 2, 4]]).tolist()
        assert reader.recordings[0].gaps == 1
        assert reader.recordings[0].interval == pytest.approx(1)


def test_the_rate_of_each_window(tmp_path):
    path = write(tmp_path / "a.parquet", t=[0, 0.5, 1, 2, 3], a=np.zeros(5))
    reader = Reader(part(path), Layout(("a",), 3, 2, (), "t", gap=9), SYSTEM)
    rates = np.concatenate([places.rate for _, places in reader.windows()])
    np.testing.assert_allclose(rates, [2, 1])


def test_numbers_of_every_kind_and_rows_without_one(tmp_path):
    path = write(
        tmp_path / "a.parquet",
        a=pa.array([1, None, 3], pa.int16()),
        b=pa.array([True, False, None]),
        k=["p", None, "p"],
    )
    found, _ = read(Layout(("a", "b"), None, 1, ("k",)), path)
    assert str(found) == "{('p',): [(0, [1.0, 1.0]), (1, [3.0, nan])], ('',): [(0, [nan, 0.0])]}"


def test_keys_from_folders(tmp_path):
    path = write(tmp_path / "a.parquet", session=[7, 8], a=[0.0, 1.0])
    layout = Layout(("a",), None, 1, ("session", "device"))
    found, reader = read(layout, path, keys=(("device", "d 1"),))
    assert [*found] == [("7", "d 1"), ("8", "d 1")]
    assert reader.key_types == {"session": pa.int64()}


@pytest.mark.parametrize("key", ["watch", 17, True, 1.5, None, b"raw"], ids=str)
def test_a_key_that_all_rows_share(key, tmp_path, monkeypatch):
    """It is the same whether the file's statistics tell it or every row does."""
    layout, read_columns = Layout(("a",), None, 1, ("k",)), []
    usual = pq.ParquetFile.iter_batches

    def noted(file, *args, columns, **options):
        read_columns.append(columns)
        return usual(file, *args, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    table, found = pa.table({"k": [key] * 5, "a": np.arange(5.0)}), []
    for told in (True, False):
        path = tmp_path / f"{told}.parquet"
        pq.write_table(table, path, row_group_size=2, write_statistics=told)
        found.append(read(layout, path)[0])
    assert found[0] == found[1]
    assert [len(own) for own in found[0].values()] == [5]
    tells = isinstance(key, str) or type(key) is int
    assert read_columns == [["a"] if tells else ["a", "k"], ["a", "k"]]


def test_a_key_that_is_a_channel_too(tmp_path):
    path = write(tmp_path / "a.parquet", a=[3, 3, 3])
    assert read(Layout(("a",), None, 1, ("a",)), path)[0] == {
        ("3",): [(i, [3.0]) for i in range(3)]
    }


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"t": [0.0], "k": ["p"]}, "a.parquet has no column 'a'; it has t, k"),
        ({"a": ["x"], "t": [0.0], "k": ["p"]}, "column 'a' holds string, no numbers"),
        ({"a": [1.0], "t": ["x"], "k": ["p"]}, "column 't' holds string, no time"),
        ({"a": [1.0], "t": pa.array([None], pa.int64()), "k": ["p"]}, "time of 1 rows is missing"),
    ],
)
def test_files_that_cannot_be_used(columns, says, tmp_path):
    path = write(tmp_path / "a.parquet", **columns)
    with pytest.raises(DataError, match=says):
        read(Layout(("a",), 2, 1, ("k",), "t"), path)


def test_damaged_and_mixed_files(tmp_path):
    good = write(tmp_path / "1.parquet", t=[0.0, 1.0], a=[0.0, 1.0])
    other = write(tmp_path / "2.parquet", t=pa.array([0, 1], pa.timestamp("s")), a=[0.0, 1.0])
    with pytest.raises(DataError, match="before they were double"):
        read(Layout(("a",), 2, 1, (), "t"), good, other)
    content = good.read_bytes()
    for damage in (b"", content[:-9], b"PAR1" + content[9:]):
        good.write_bytes(damage)
        with pytest.raises(DataError, match=r"1\.parquet cannot be read as Parquet"):
            read(Layout(("a",), 2, 1, (), "t"), good)
