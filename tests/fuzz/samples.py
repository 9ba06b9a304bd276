"""Small files of datasets for the fuzz tests, and how they are read."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from fuzz.harness import answered

from onesigma.errors import DataError
from onesigma.lab.datasets import esc, opportunity
from onesigma.lab.datasets.motion import Recording, triads_of, write_recordings
from onesigma.lab.datasets.official import extract


def recordings(path: Path) -> None:
    signal, labels = np.zeros((9, 3), np.float32), np.zeros(9, np.int64)
    write_recordings(path, [Recording(signal, 50.0, labels, "a", triads_of(3), "one")] * 2)


def hhar_rows() -> str:
    rows = (
        f"{i},{1424696633908 + i},{1424696631913248572 + i},0.5,{i},-1e-3,a,nexus4,nexus4_1,walk\n"
        for i in range(6)
    )
    return "Index,Arrival_Time,Creation_Time,x,y,z,User,Model,Device,gt\n" + "".join(rows)


def opportunity_rows() -> str:
    rows = [["NaN" if (c + i) % 9 == 0 else str(c + i) for c in range(250)] for i in range(3)]
    for row in rows:
        row[opportunity.LABEL_COLUMN - 1] = "1"
    return "".join(" ".join(row) + "\n" for row in rows)


def read_opportunity(path: Path) -> list[np.ndarray]:
    path.with_name("S1-ADL1.dat").write_bytes(path.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opportunity, "RUNS", ("S1-ADL1",))
        return [each.signal for each in opportunity.recordings(path.parent)]


ESC_TABLE = "filename,category,esc10\n1-100-A-0.wav,dog,True\n1-300-A-1.wav,rooster,False\n"


def read_esc_table(path: Path) -> str:
    """Its recordings are not there: the error that says so is as far as it gets."""
    (path.parent / "meta").mkdir(exist_ok=True)
    (path.parent / esc.TABLE).write_bytes(path.read_bytes())
    with pytest.raises(DataError) as error:
        esc.read_official(path.parent)
    if "1-100-A-0.wav" not in str(error.value):
        raise error.value
    return str(error.value)


def zipped(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def tarred(members: Mapping[str, bytes], mode: str = "w", kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(content), kind, "../../secret"
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def read_archive(archive: Path) -> dict[str, bytes]:
    """What is unpacked: all or nothing, plain files only, no more than allowed, none outside.

    Raises:
        DataError: it is refused.
    """
    with TemporaryDirectory() as name:
        outside = Path(name)
        secret, target = outside / "secret", outside / "in" / "target"
        secret.write_bytes(b"kept")
        limits = {"most_bytes": 10_000, "most_files": 20}
        refused = answered(lambda: extract(archive, target, **limits), DataError) is None
        assert refused != target.exists()
        made = list(target.rglob("*"))
        assert set(outside.rglob("*")) - {target, *made} == {secret, target.parent}
        assert secret.read_bytes() == b"kept"
        assert not any(path.is_symlink() for path in made)
        files = {p.relative_to(target).as_posix(): p.read_bytes() for p in made if p.is_file()}
    assert sum(map(len, files.values())) <= 10_000
    if refused:
        raise DataError("refused")
    return files
