"""Files that appear whole or not at all."""

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir

from onesigma.errors import FileError

try:
    import fcntl
except ModuleNotFoundError:  # Windows: leftovers stay there
    fcntl = None  # type: ignore[assignment]


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
    if os.path.isdir(path):
        raise FileError(f"{path} is a folder: name a file in it.")
    target = Path(os.path.realpath(path))
    if os.path.islink(target):
        raise FileError(f"{path} leads in a circle of links.")
    device = os.path.exists(path) and not os.path.isfile(path)
    # In the same folder, since a rename is atomic only within one file system.
    place = Path(gettempdir(), path.name) if device else target
    _remove_leftovers(place)
    temporary = place.with_name(f".{place.stem}.onesigma-{secrets.token_hex(4)}{place.suffix}")
    try:
        with _locked(temporary):
            old = target if os.path.exists(target) else temporary
            mode = 0o600 if device else stat.S_IMODE(old.stat().st_mode)
            temporary.chmod(mode | stat.S_IWUSR)
            yield temporary
            _finish(temporary, path if device else target, mode, device)
    except OSError as error:
        if error.filename not in (None, str(temporary), str(path)):
            raise
        raise FileError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _finish(temporary: Path, target: Path, mode: int, device: bool) -> None:
    if device:
        with temporary.open("rb") as content, target.open("wb") as stream:
            shutil.copyfileobj(content, stream)
        return
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())  # else a power cut may leave the new name without its content
    temporary.chmod(mode)
    os.replace(temporary, target)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Create the file, and lock it: while its writer lives, nobody takes it for a leftover."""
    while True:
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        if fcntl is None:
            os.close(handle)
            yield
            return
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)  # removed by another run before it was locked
    try:
        yield
    finally:
        os.close(handle)


def _remove_leftovers(path: Path) -> None:
    """Remove what a writer of `path` left that was killed before it could clean up."""
    ours = re.compile(rf"\.{re.escape(path.stem)}\.onesigma-[0-9a-f]{{8}}{re.escape(path.suffix)}")
    names = os.listdir(path.parent) if fcntl is not None and path.parent.is_dir() else []
    for name in filter(ours.fullmatch, names):
        with suppress(OSError), (path.parent / name).open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer lives
            os.unlink(path.parent / name)
