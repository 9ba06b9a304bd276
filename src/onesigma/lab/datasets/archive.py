"""Unpacking zip and tar files nobody vouches for: only plain files, only inside, all or nothing."""

import gzip
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from onesigma.errors import DataError
from onesigma.lab.datasets.download import DISK_FULL

MOST_BYTES = 16 << 30
MOST_FILES = 200_000
_BLOCK = 1 << 20

_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    # An end too soon; a password; a way of packing unknown here; a name that is none.
    *(EOFError, RuntimeError, NotImplementedError, UnicodeDecodeError, IndexError),
)


def everything(name: str) -> bool:
    return True


def extract(
    archive: Path,
    folder: Path,
    *,
    wanted: Callable[[str], bool] = everything,
    inner: str | None = None,
    most_bytes: int = MOST_BYTES,
    most_files: int = MOST_FILES,
) -> Path:
    """Unpack `archive` to `folder`, which appears complete or not at all; one there is kept.

    Args:
        archive: a zip or tar file, compressed or not.
        folder: to be made.
        wanted: which members to unpack, by name without a leading ``./``.
        inner: an archive inside the archive, unpacked in its place if it is there.
        most_bytes: refuse to write more; counted while writing, whatever the archive claims.
        most_files: refuse to make more.

    Raises:
        DataError: damaged, incomplete, or too large; a member that is a link, a device or
            leads out of the folder; a full disk. Nothing is left behind.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, since a rename is atomic only within one file system.
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        allowance = _Allowance(most_bytes, most_files)
        _unpack(archive, temporary, wanted, allowance)
        if inner is not None and (temporary / inner).is_file():
            _unpack(temporary / inner, (temporary / inner).parent, everything, allowance)
            (temporary / inner).unlink()
        # mkdtemp keeps the folder private to its owner, which published data need not be.
        temporary.chmod(0o755)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


@dataclass
class _Allowance:
    """What may still be written, over all archives of one call."""

    bytes_left: int
    files_left: int

    def spend(self, archive: Path, count: int, files: int = 0) -> None:
        self.bytes_left -= count
        self.files_left -= files
        if self.bytes_left < 0 or self.files_left < 0:
            raise DataError(f"{archive.name} unpacks to more than it should: refused.")


def _unpack(
    archive: Path, folder: Path, wanted: Callable[[str], bool], allowance: _Allowance
) -> None:
    try:
        for name, stream in _members(archive):
            inside = _inside(archive, name)
            if wanted(str(inside)):
                allowance.spend(archive, 0, files=1)
                _write(archive, stream, folder / inside, allowance)
    except _DAMAGE as error:
        raise DataError(
            f"{archive.name} is damaged or incomplete ({error}). Delete it and fetch it again."
        ) from error
    except OSError as error:
        if error.errno in DISK_FULL:
            raise DataError(f"The disk is full: {archive.name} is not unpacked.") from error
        raise DataError(f"{archive.name} cannot be unpacked: {error}.") from error


def _write(archive: Path, stream: IO[bytes], path: Path, allowance: _Allowance) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # "x": a name that comes twice is refused.
    with path.open("xb") as file:
        while block := stream.read(_BLOCK):
            allowance.spend(archive, len(block))
            file.write(block)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        return _zip_members(archive)
    if tarfile.is_tarfile(archive):
        return _tar_members(archive)
    raise DataError(f"{archive.name} is no zip or tar file, or incomplete. Fetch it again.")


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            if stat.S_ISLNK(member.external_attr >> 16):
                raise DataError(f"{archive.name} holds a link, {member.filename}: refused.")
            if not member.is_dir():
                with file.open(member) as stream:
                    yield member.filename, stream


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as file:
        for member in file:
            stream = file.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, stream
            elif not member.isdir():
                raise DataError(f"{archive.name} holds a link or device, {member.name}: refused.")


def _inside(archive: Path, name: str) -> PurePosixPath:
    """The member's path, without ``./``; a colon would name a drive or a stream on Windows."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or not path.parts or ".." in path.parts or ":" in name or "\0" in name:
        raise DataError(f"{archive.name} holds {name!r}, which leads out of its folder: refused.")
    return path
