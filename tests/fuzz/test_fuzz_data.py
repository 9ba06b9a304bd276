"""Data files, damaged: what they held, or a DataError; and archives never write outside."""

from __future__ import annotations

import io
import tarfile
import wave
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from fuzz.harness import answered, damaged, examples
from hypothesis import given
from hypothesis import strategies as st

from onesigma.errors import DataError
from onesigma.lab.datasets import esc, hhar, opportunity
from onesigma.lab.datasets.motion import Recording, read_recordings, triads_of, write_recordings
from onesigma.lab.datasets.official import extract
from onesigma.lab.datasets.sound import read_wav
from onesigma.tables.files import read_array


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(12.0).reshape(3, 4))
    return file.getvalue()


def wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(bytes(range(200)))
    return file.getvalue()


def recordings(folder: Path) -> bytes:
    path = folder / "good.npz"
    signal, labels = np.zeros((9, 3), np.float32), np.zeros(9, np.int64)
    write_recordings(path, [Recording(signal, 50.0, labels, "a", triads_of(3), "one")] * 2)
    return path.read_bytes()


def hhar_rows() -> bytes:
    rows = (
        f"{i},{1424696633908 + i},{1424696631913248572 + i},0.5,{i},-1e-3,a,nexus4,nexus4_1,walk\n"
        for i in range(6)
    )
    return (
        "Index,Arrival_Time,Creation_Time,x,y,z,User,Model,Device,gt\n" + "".join(rows)
    ).encode()


def opportunity_rows() -> bytes:
    rows = [["NaN" if (c + i) % 9 == 0 else str(c + i) for c in range(250)] for i in range(3)]
    for row in rows:
        row[opportunity.LABEL_COLUMN - 1] = "1"
    return "".join(" ".join(row) + "\n" for row in rows).encode()


def read_run(path: Path) -> None:
    path.with_name("S1-ADL1.dat").write_bytes(path.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opportunity, "RUNS", ("S1-ADL1",))
        opportunity.recordings(path.parent)


ESC_TABLE = b"filename,category,esc10\n1-100-A-0.wav,dog,True\n1-300-A-1.wav,rooster,False\n"


def read_table(path: Path) -> None:
    (path.parent / "meta").mkdir(exist_ok=True)
    (path.parent / esc.TABLE).write_bytes(path.read_bytes())
    with pytest.raises(DataError):  # at the latest because its recordings are not there
        esc.read_official(path.parent)


READERS: dict[str, tuple[Callable[[Path], bytes], Callable[[Path], object]]] = {
    "npy": (lambda _: npy(), read_array),
    "wav": (lambda _: wav(), lambda path: read_wav(path, 16_000)),
    "recordings": (recordings, read_recordings),
    "hhar": (
        lambda _: hhar_rows(),
        lambda path: hhar.read_streams(path, "Creation_Time"),
    ),
    "opportunity": (lambda _: opportunity_rows(), read_run),
    "esc table": (lambda _: ESC_TABLE, read_table),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", READERS)
def test_the_files_themselves_are_good(name, folder):
    write, read = READERS[name]
    path = folder / f"good.{name}"
    path.write_bytes(write(folder))
    read(path)


@pytest.mark.parametrize("name", READERS)
@examples(60)
@given(data=st.data())
def test_bytes(name, folder, data):
    write, read = READERS[name]
    path = folder / f"damaged.{name}"
    path.write_bytes(data.draw(damaged(write(folder))))
    answered(lambda: read(path), DataError)


# Archives

MEMBERS = {"a.txt": b"alpha", "deep/er/b.bin": bytes(range(100)), "c": b""}


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def tarred(members: dict[str, bytes], mode: str = "w", kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(content), kind, "../../secret"
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


PACKED = {
    "zip": zipped(MEMBERS),
    "tar": tarred(MEMBERS),
    **{f"tar.{kind}": tarred(MEMBERS, f"w:{kind}") for kind in ("gz", "bz2", "xz")},
}


def unpack_inside(content: bytes) -> None:
    """All or nothing, plain files only, no more than allowed, and nothing outside."""
    with TemporaryDirectory() as name:
        outside = Path(name)
        archive, secret, target = outside / "archive", outside / "secret", outside / "in" / "target"
        archive.write_bytes(content)
        secret.write_bytes(b"kept")
        unpack = partial(extract, archive, target, most_bytes=10_000, most_files=20)
        assert (answered(unpack, DataError) is None) == (not target.exists())
        made = list(target.rglob("*"))
        assert set(outside.rglob("*")) - {target, *made} == {archive, secret, target.parent}
        assert secret.read_bytes() == b"kept"
        assert not any(path.is_symlink() for path in made)
        assert sum(path.stat().st_size for path in made if path.is_file()) <= 10_000


@pytest.mark.parametrize("name", PACKED)
@examples(40)
@given(data=st.data())
def test_damaged_archives(name, data):
    unpack_inside(data.draw(damaged(PACKED[name])))


HOSTILE = [
    "..",
    ".",
    "",
    "/",
    "~",
    "a",
    "b/c",
    "C:",
    "\\",
    "..\\x",
    "\0",
    "\n",
    "a" * 300,
    "é",
    "con",
]
names = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), min_size=1, max_size=4)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@examples(100)
@given(
    parts=st.lists(names, min_size=1, max_size=4),
    kind=st.sampled_from([b"zip", tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, b"3", b"6"]),
    size=st.sampled_from([0, 10, 20_000]),
)
def test_names_that_lead_elsewhere(parts, kind, size):
    members = {"/".join(part): b"x" * size for part in parts}
    try:
        content = zipped(members) if kind == b"zip" else tarred(members, kind=kind)
    except (ValueError, UnicodeError):  # not even an attacker can write such a name
        return
    unpack_inside(content)
