"""Files from the network: resumed where they broke off, verified, whole or not there at all.

What has arrived is kept beside the destination as ``<name>.part``; only a complete and verified
file gets its name.
"""

import errno
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from onesigma.errors import DataError

ATTEMPTS = 3
TIMEOUT_SECONDS = 60
_BLOCK = 1 << 20
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def download(
    url: str,
    destination: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    progress: bool = True,
) -> Path:
    """Fetch `url` to `destination`, going on where an earlier call broke off.

    A file already at `destination` is not fetched again, but checked.

    Args:
        url: http or https.
        destination: the file to make, its folder too.
        size: in bytes, where it is known.
        sha256: in hexadecimal, where it is known.
        progress: show a bar, if tqdm is installed.

    Raises:
        DataError: no network, no such file, a broken connection, a full disk, or other bytes than
            expected. What arrived stays for the next call, unless it is wrong.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"Expected an http or https address, got {url}.")
    if destination.is_file():
        _verify(destination, size, sha256)
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = destination.with_name(destination.name + ".part")
    by_hand = f"Or fetch {url} in another way and put it at {destination}."
    try:
        total = _receive(url, part, size, progress, by_hand)
    except HTTPError as error:
        raise DataError(f"{url} answered {error.code} {error.reason}. {by_hand}") from error
    try:
        _verify(part, total, sha256)
    except DataError:
        part.unlink()
        raise
    part.replace(destination)
    return destination


def _receive(url: str, part: Path, size: int | None, progress: bool, by_hand: str) -> int | None:
    """Fill `part`, trying again while more arrives; the length of the whole, where known."""
    trouble: object = None
    for _ in range(ATTEMPTS):
        before = _length(part)
        if size is not None and before == size:
            return size
        try:
            total = _append(url, part, size, progress)
        except HTTPError:
            raise
        except (OSError, HTTPException) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise DataError(
                    f"The disk is full: {_length(part):,} bytes of {url} are in {part}. "
                    "Free some space and try again to go on from there, or delete that file."
                ) from error
            trouble = getattr(error, "reason", None) or error or type(error).__name__
        else:
            if total is None or _length(part) >= total:
                return total
            trouble = f"{_length(part):,} of {total:,} bytes arrived"
        if _length(part) <= before:
            break
    arrived = _length(part)
    advice = f"Try again to go on after {arrived:,} bytes." if arrived else "Is there a network?"
    raise DataError(f"Cannot fetch from {urlsplit(url).hostname}: {trouble}. {advice} {by_hand}")


def _append(url: str, part: Path, size: int | None, progress: bool) -> int | None:
    """One request for what `part` lacks; the length of the whole, as far as known."""
    have = _length(part)
    headers = {"User-Agent": "onesigma", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        error.close()
        if error.code != _RANGE_NOT_SATISFIABLE:
            raise
        # Nothing lies beyond: complete, if the server says the same; else of another file.
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return have
        part.unlink()
        return _append(url, part, size, progress)
    with response:
        partial = response.status == _PARTIAL_CONTENT
        if partial and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise HTTPException("the server sent another part of the file than asked for")
        start = have if partial else 0
        length = response.headers.get("Content-Length")
        total = size if length is None else start + int(length)
        if size not in (None, total):
            raise DataError(f"{url} now holds {total:,} bytes instead of {size:,}: another file.")
        with (
            part.open("ab" if partial else "wb") as file,
            _bar(part.stem, start, total, progress) as advance,
        ):
            while block := response.read(_BLOCK):
                file.write(block)
                advance(len(block))
    return total


def _verify(path: Path, size: int | None, sha256: str | None) -> None:
    if size is not None and _length(path) != size:
        raise DataError(
            f"{path.name} has {_length(path):,} bytes instead of {size:,}. "
            f"Delete {path} if it is there, and fetch it again."
        )
    if sha256 is None:
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise DataError(
            f"{path.name} is not the published file: sha256 is {digest}, expected {sha256}. "
            f"Delete {path} if it is there, and fetch it again."
        )


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _bar(name: str, start: int, total: int | None, show: bool) -> Iterator[Callable[[int], object]]:
    """What to call with the number of bytes that came; without tqdm it does nothing."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda count: None
        return
    scale = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
    with tqdm(desc=name, initial=start, total=total, disable=not show, **scale) as bar:
        yield bar.update
