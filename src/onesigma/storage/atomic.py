"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary neighbour of `path` to write to, renamed onto it when the block succeeds.

    A reader, or a crash, sees the old file or the new one and never half of either; if the block
    raises, the old file stays and the temporary one is removed.
    """
    # The same folder, since a rename is atomic only within one file system.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp keeps the file private to its owner, which what we write need not be.
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # of a full disk the system does not say where
        raise


def remove_leftovers(path: Path) -> None:
    """Remove what a writer of `path` left that was killed before it could clean up."""
    # Eight signs, as mkstemp adds, so that no file of a similar name is hit.
    for leftover in path.parent.glob(f".{escape(path.stem)}-????????{path.suffix}"):
        leftover.unlink(missing_ok=True)
