"""Which files are found, what they are called, and that nothing is written by half."""

import re
from pathlib import Path

import pyarrow.fs
import pytest

from onesigma.errors import DataError, InputError
from onesigma.fleet.places import Place, find_parts

FILES = (
    "device=a/1.parquet", "device=a/2.PARQUET", "device=b%20c/1.parquet", "x.parquet", "y.csv",
    ".hidden/1.parquet", "_new/1.parquet", "device=a/.1.parquet.tmp", "device=a/_old.parquet",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(FILES):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * i)
    return tmp_path / "data"


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["device=a/1.parquet", "device=a/2.PARQUET", "device=b%20c/1.parquet", "x.parquet"]),
        ("/", ["device=a/1.parquet", "device=a/2.PARQUET", "device=b%20c/1.parquet", "x.parquet"]),
        ("/device=a", ["1.parquet", "2.PARQUET"]),
        ("/x.parquet", ["x.parquet"]),
        ("/*/1.parquet", ["device=a/1.parquet", "device=b%20c/1.parquet"]),
        ("/*.parquet", ["x.parquet"]),
        ("/**/1.parquet", ["device=a/1.parquet", "device=b%20c/1.parquet"]),
    ],
)
def test_what_is_found(scheme, pattern, names, folder):
    assert [part.name for part in find_parts(Place(f"{scheme}{folder}{pattern}"))] == names


def test_signs_that_a_url_has_for_itself(folder):
    parts = find_parts(Place(f"{folder}/device=[ab]/?.*"))
    assert [part.name for part in parts] == ["device=a/1.parquet", "device=a/2.PARQUET"]


def test_parts_know_their_files_sizes_and_keys(folder):
    parts = {part.name: part for part in find_parts(Place(str(folder)))}
    assert parts["device=b%20c/1.parquet"].keys == (("device", "b c"),)
    assert parts["device=a/2.PARQUET"].sizes == (1,)
    joined = {part.name: part for part in find_parts(Place(str(folder)), "folder")}
    assert [*joined] == ["device=a/all.parquet", "device=b%20c/all.parquet", "all.parquet"]
    names = [Path(path).name for path in joined["device=a/all.parquet"].files]
    assert names == ["1.parquet", "2.PARQUET"]


def test_what_is_not_there(folder):
    for name, says in {"none": "no such file or folder", "*.npy": "no Parquet file"}.items():
        with pytest.raises(DataError, match=says):
            find_parts(Place(f"{folder}/{name}"))
    with pytest.raises(InputError, match="a part is a file or a folder"):
        find_parts(Place(str(folder)), "day")
    with pytest.raises(InputError, match="nowhere://x cannot be opened"):
        Place("nowhere://x").open()


def test_addresses_below_others():
    assert (Place("a/b/") / "c.parquet").address == "a/b/c.parquet"
    remote = Place("s3://bucket/out?region=eu") / "d=1/c.parquet"
    assert remote.address == "s3://bucket/out/d=1/c.parquet?region=eu"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_files_appear_whole_or_not_at_all(scheme, tmp_path):
    folder = Place(f"{scheme}{tmp_path}/out")
    if scheme:
        (tmp_path / "out").mkdir()  # an object store has no folders
    (folder / "a.txt").write_text("→")
    assert (tmp_path / "out" / "a.txt").read_text(encoding="utf-8") == "→"
    with pytest.raises(KeyboardInterrupt), (folder / "b.txt").writing():
        raise KeyboardInterrupt
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.txt"]
    assert isinstance(folder.open()[0], pyarrow.fs.LocalFileSystem)
    assert re.fullmatch(r".*/out", folder.open()[1])
