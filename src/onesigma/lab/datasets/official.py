"""The official archives: where they are on the network, fetched, verified, unpacked, found again.

Nobody vouches for what comes over the network. A file appears whole and verified or not at all, of
no more bytes than it should have. An archive is unpacked as a whole or not at all: plain files
only, only inside the folder, within limits that count while it is written.
"""

import errno
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

import pooch

from onesigma.errors import DataError

ENVIRONMENT = "ONESIGMA_CACHE"
TIMEOUT_SECONDS = 60
MOST_BYTES = 16 << 30
MOST_FILES = 200_000
_BLOCK = 1 << 20
_ZIP_END = 22 + 0xFFFF  # bytes, with the longest comment
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    # Cut short; a password; an unknown compression; a name that is no text.
    *(EOFError, RuntimeError, NotImplementedError, UnicodeDecodeError, IndexError),
)


def everything(name: str) -> bool:
    return True


@dataclass(frozen=True)
class Official:
    """One archive, and the file or folder that tells where its content lies."""

    title: str
    url: str
    file: str
    folder: str  # to unpack to, in the cache
    marker: str  # below that folder or deeper; its parent is what a loader reads
    size: int | None = None
    sha256: str | None = None
    inner: str | None = None
    wanted: Callable[[str], bool] = everything


def _is_needed_of_esc(name: str) -> bool:
    return "/meta/" in name or "/audio/" in name or "LICENSE" in name


OFFICIAL = {
    "hhar": Official(
        "Heterogeneity Activity Recognition (UCI 344, CC BY 4.0)",
        "https://archive.ics.uci.edu/static/public/344/heterogeneity+activity+recognition.zip",
        "heterogeneity+activity+recognition.zip",
        folder="hhar",
        marker="Activity recognition exp/Phones_accelerometer.csv",
        inner="Activity recognition exp.zip",
        wanted=lambda name: name.startswith("Activity recognition exp"),
    ),
    "opportunity": Official(
        "OPPORTUNITY Activity Recognition (UCI 226, CC BY 4.0)",
        "https://archive.ics.uci.edu/static/public/226/opportunity+activity+recognition.zip",
        "opportunity+activity+recognition.zip",
        folder="opportunity",
        marker="OpportunityUCIDataset/dataset/S1-ADL1.dat",
        inner="OpportunityUCIDataset.zip",
    ),
    "speech": Official(
        "Speech Commands v0.02, test set (CC BY 4.0)",
        "http://download.tensorflow.org/data/speech_commands_test_set_v0.02.tar.gz",
        "speech_commands_test_set_v0.02.tar.gz",
        folder="speech_commands_test_set_v0.02",
        marker="speech_commands_test_set_v0.02/yes",
        size=112_563_277,
        sha256="cc2a00c1147c2254e9be3fa0f779d8c17421dc349b86366567a8edfa9acd51df",
    ),
    "esc": Official(
        "ESC-50 (CC BY-NC 3.0; the ESC-10 part CC BY 3.0)",
        "https://github.com/karolpiczak/ESC-50/archive/master.zip",
        "ESC-50-master.zip",
        folder="esc",
        marker="ESC-50-master/meta",
        wanted=_is_needed_of_esc,
    ),
}


def cache_folder() -> Path:
    """The folder named by ONESIGMA_CACHE, else `onesigma` in the user's cache; it may not exist."""
    return Path(os.environ.get(ENVIRONMENT) or pooch.os_cache("onesigma"))


def find(name: str, root: Path | None = None) -> Path | None:
    """The folder a loader reads, in `root` or the cache or up to two folders down, if any."""
    for base in (*([] if root is None else [root]), cache_folder()):
        # HHAR lies a folder deeper where an unpacker named one after the archive.
        for above in ("", "*/", "*/*/"):
            for found in sorted(base.glob(above + OFFICIAL[name].marker)):
                return found.parent
    return None


def fetch(name: str, root: Path | None = None, progress: bool = True) -> Path:
    """The folder a loader reads, downloaded and unpacked to the cache if need be.

    Args:
        name: a key of OFFICIAL.
        root: where else the folder, or the archive as downloaded by hand, may lie.
        progress: show a bar, if tqdm is installed.

    Raises:
        DataError: no network, a broken or unexpected archive, a full disk; nothing half-done is
            left behind.
    """
    found = find(name, root)
    if found is not None:
        return found
    archive, cache = OFFICIAL[name], cache_folder()
    by_hand = None if root is None else root / archive.file
    if by_hand is None or not by_hand.is_file():
        by_hand = cache / "archives" / archive.file
    path = download(
        archive.url, by_hand, size=archive.size, sha256=archive.sha256, progress=progress
    )
    folder = extract(path, cache / archive.folder, wanted=archive.wanted, inner=archive.inner)
    found = find(name)
    if found is None:
        shutil.rmtree(folder)
        raise DataError(
            f"{path} does not hold {archive.marker}: it is another archive than {archive.title}, "
            "or its layout has changed."
        )
    return found


def download(
    url: str,
    destination: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    progress: bool = True,
) -> Path:
    """Fetch `url` to `destination`, which appears whole and verified or not at all.

    A file that is there already is not fetched again, but checked.

    Args:
        url: http or https.
        destination: the file to make, its folder too.
        size: in bytes, where it is known.
        sha256: in hexadecimal, where it is known.
        progress: show a bar on standard error.

    Raises:
        DataError: no network, no such file, a broken connection, a full disk, or other bytes than
            expected.
    """
    if destination.is_file():
        if sha256 and pooch.file_hash(str(destination)) != sha256:
            raise DataError(_is_another(destination))
        return destination
    pooch.get_logger().setLevel("WARNING")
    by_hand = f"Or fetch {url} in another way and put it at {destination}."
    try:
        pooch.retrieve(
            url,
            sha256,
            *(destination.name, destination.parent),
            downloader=partial(_receive, size=size, progress=progress),
        )
    except OSError as error:  # those of the network among them
        if error.errno in _DISK_FULL:
            raise DataError(f"The disk is full: {url} cannot be written.") from error
        response = getattr(error, "response", None)
        if response is not None:
            words = f"{url} answered {response.status_code} {response.reason}."
        else:
            host = urlsplit(url).hostname
            words = f"Cannot fetch from {host}: {error}. Is there a network? Try again."
        raise DataError(f"{words} {by_hand}") from error
    except ValueError as error:  # how pooch reports another digest
        raise DataError(_is_another(destination)) from error
    return destination


def _is_another(path: Path) -> str:
    return (
        f"{path.name} is not the published file: its sha256 differs. "
        f"Delete {path} if it is there, and fetch it again."
    )


def _receive(url: str, path: str, _: object, *, size: int | None, progress: bool) -> None:
    """Fetch with a limit, because pooch checks the digest but not how much a server sends."""

    def check_length(response: Any, *_: object, **__: object) -> None:
        length = response.headers.get("Content-Length")
        if response.status_code == 200 and size is not None and length not in (None, str(size)):
            raise DataError(f"{url} now holds {length} bytes instead of {size}: another file.")

    fetch = pooch.HTTPDownloader(
        progressbar=progress,
        chunk_size=_BLOCK,
        timeout=TIMEOUT_SECONDS,
        hooks={"response": check_length},
    )
    with open(path, "wb") as file:
        fetch(url, _LimitedFile(file, size or MOST_BYTES, url), None)


class _LimitedFile:
    """A file that takes so many bytes and no more."""

    def __init__(self, file: IO[bytes], most: int, url: str) -> None:
        self.file, self.left, self.url = file, most, url

    def write(self, block: bytes) -> None:
        self.left -= len(block)
        if self.left < 0:
            raise DataError(f"{self.url} sends more bytes than it should: refused.")
        self.file.write(block)

    def flush(self) -> None:
        self.file.flush()


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
        wanted: whether to unpack a member, by its name without a leading ``./``.
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
        limit = _Limit(most_bytes, most_files)
        _unpack(archive, temporary, wanted, limit)
        if inner is not None and (temporary / inner).is_file():
            _unpack(temporary / inner, (temporary / inner).parent, everything, limit)
            (temporary / inner).unlink()
        # mkdtemp keeps the folder private to its owner, which published data need not be.
        temporary.chmod(0o755)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


@dataclass
class _Limit:
    """What may still be written, over all archives of one call."""

    bytes_left: int
    files_left: int

    def spend(self, archive: Path, count: int, files: int = 0) -> None:
        self.bytes_left -= count
        self.files_left -= files
        if self.bytes_left < 0 or self.files_left < 0:
            raise DataError(f"{archive.name} unpacks to more than it should: refused.")


def _unpack(archive: Path, folder: Path, wanted: Callable[[str], bool], limit: _Limit) -> None:
    try:
        for name, stream in _members(archive):
            inside = _inside(archive, name)
            if wanted(str(inside)):
                limit.spend(archive, 0, files=1)
                _write(archive, stream, folder / inside, limit)
    except _DAMAGE as error:
        raise DataError(
            f"{archive.name} is damaged or incomplete ({error}). Delete it and fetch it again."
        ) from error
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise DataError(f"The disk is full: {archive.name} is not unpacked.") from error
        raise DataError(f"{archive.name} cannot be unpacked: {error}.") from error


def _write(archive: Path, stream: IO[bytes], path: Path, limit: _Limit) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # "x": a name that comes twice is refused.
    with path.open("xb") as file:
        while block := stream.read(_BLOCK):
            limit.spend(archive, len(block))
            file.write(block)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        return _zip_members(archive)
    if tarfile.is_tarfile(archive):
        return _tar_members(archive)
    raise DataError(f"{archive.name} is no zip or tar file, or incomplete. Fetch it again.")


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as file:
        _require_all_members(archive, len(file.infolist()))
        for member in file.infolist():
            if stat.S_ISLNK(member.external_attr >> 16):
                raise DataError(f"{archive.name} holds a link, {member.filename}: refused.")
            if not member.is_dir():
                with file.open(member) as stream:
                    yield member.filename, stream


def _require_all_members(archive: Path, found: int) -> None:
    """As many as the end of a zip file says; zipfile reads as many as it finds."""
    with archive.open("rb") as file:
        file.seek(max(0, archive.stat().st_size - _ZIP_END), os.SEEK_SET)
        end = file.read()
    place = end.rfind(b"PK\x05\x06") + 10
    stated = int.from_bytes(end[place : place + 2], "little")
    # 0xFFFF: so many that they are counted elsewhere.
    if not found or stated not in (found, 0xFFFF):
        raise DataError(
            f"{archive.name} is damaged: it holds {found} of {stated} files. Fetch it again."
        )


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as file:
        for member in file:
            stream = file.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, stream
            elif not member.isdir():
                raise DataError(f"{archive.name} holds a link or device, {member.name}: refused.")
        # The checksums of gzip, bzip2 and xz stand at the end, behind what tarfile reads.
        assert file.fileobj is not None
        file.fileobj.read(_BLOCK)
        if file.fileobj.read(1):
            raise DataError(f"{archive.name} holds more than a tar file. Fetch it again.")


def _inside(archive: Path, name: str) -> PurePosixPath:
    """The member's path, without ``./``; a colon would name a drive or a stream on Windows."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or not path.parts or ".." in path.parts or ":" in name or "\0" in name:
        raise DataError(f"{archive.name} holds {name!r}, which leads out of its folder: refused.")
    return path
