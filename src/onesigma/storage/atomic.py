"""Files that appear whole or not at all."""

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from onesigma.errors import FileError

_LOCKS: Any = import_module("fcntl") if os.name == "posix" else None  # without, leftovers stay


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary neighbour of `path` to write to, renamed onto it when the block succeeds.

    A reader, or a crash, sees the old file or the new one and never half of either; if the block
    raises, the old file stays and the temporary one is removed. What a killed run left is removed
    by the next one. An old file keeps its permissions and a link its place. A device or a pipe is
    written to when the block succeeds.

    Raises:
        FileError: there cannot be such a file, or the disk is full.
    """
    target = Path(os.path.realpath(path))
    if os.path.isdir(path) or os.path.islink(target):
        raise FileError(f"{path} is a folder, or leads in a circle of links: name a file.")
    if not target.parent.is_dir():
        raise FileError(f"{path} cannot be written: {path.parent} is no folder. Create it first.")
    device = os.path.exists(path) and not os.path.isfile(path)
    # In the same folder, since a rename is atomic only within one file system.
    place = Path(gettempdir(), path.name) if device else target
    _remove_leftovers(place)
    temporary = place.with_name(f".{place.stem}.onesigma-{secrets.token_hex(4)}{place.suffix}")
    try:
        with _locked(temporary):
            old = temporary if device or not os.path.exists(target) else target
            mode = 0o600 if device else stat.S_IMODE(old.stat().st_mode)
            temporary.chmod(mode | stat.S_IWUSR)
            yield temporary
            if device:
                with temporary.open("rb") as content, path.open("wb") as stream:
                    shutil.copyfileobj(content, stream)
                return
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())  # else a power cut may leave the name without the content
            temporary.chmod(mode)
            os.replace(temporary, target)
    except OSError as error:
        if error.filename not in (None, str(temporary), str(path)):
            raise
        raise FileError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Create the file, and lock it: while its writer lives, nobody takes it for a leftover."""
    with file.open("xb") as created:
        if _LOCKS is None:
            created.close()  # Windows renames no open file
        else:
            with suppress(OSError):  # a file system without locks
                _LOCKS.flock(created, _LOCKS.LOCK_EX)
        if created.closed or os.fstat(created.fileno()).st_nlink:
            yield
            return
    with _locked(file):  # another run removed it before it was locked
        yield


def _remove_leftovers(path: Path) -> None:
    """Remove what a writer of `path` left that was killed before it could clean up."""
    ours = re.compile(rf"\.{re.escape(path.stem)}\.onesigma-[0-9a-f]{{8}}{re.escape(path.suffix)}")
    names = os.listdir(path.parent) if _LOCKS is not None and path.parent.is_dir() else []
    for name in filter(ours.fullmatch, names):
        with suppress(OSError), (path.parent / name).open("rb+") as file:
            _LOCKS.flock(file, _LOCKS.LOCK_EX | _LOCKS.LOCK_NB)  # fails while its writer lives
            os.unlink(path.parent / name)
