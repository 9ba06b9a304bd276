"""Where recordings lie and tables go: folders, patterns and URLs of object stores, by pyarrow."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from onesigma.errors import DataError, InputError
from onesigma.storage.atomic import replacing
from onesigma.tables.arrow import import_pyarrow

FILE, FOLDER = "file", "folder"
_PATTERN = re.compile(r"[*?\[]")
_KEY = re.compile(r"([^=/]+)=([^/]*)")


@dataclass(frozen=True)
class Place:
    """A path, in this machine's folders or in an object store such as ``s3://bucket/folder``."""

    address: str

    @property
    def is_remote(self) -> bool:
        return "://" in self.address

    def open(self) -> tuple[Any, str]:
        """pyarrow's file system, and the path in it."""
        pyarrow, _ = import_pyarrow()
        fs = import_module("pyarrow.fs")
        if not self.is_remote:
            return fs.LocalFileSystem(), os.path.abspath(self.address)
        try:
            found: tuple[Any, str] = fs.FileSystem.from_uri(self.address)
            return found
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{self.address} cannot be opened: {error}") from error

    def __truediv__(self, name: str) -> Place:
        address, mark, query = self.address.partition("?" if self.is_remote else "\0")
        return Place(f"{address.rstrip('/')}/{name}{mark}{query}")

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A path or a stream to write to; the file appears, whole, if the block succeeds."""
        if not self.is_remote:
            path = Path(self.address)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                yield temporary
            return
        pyarrow, _ = import_pyarrow()
        content = pyarrow.BufferOutputStream()
        yield content
        system, path_there = self.open()  # an object appears when its stream is closed
        with system.open_output_stream(path_there) as stream:
            stream.write(content.getvalue())

    def write_text(self, text: str) -> None:
        with self.writing() as sink:
            content = text.encode()
            sink.write_bytes(content) if isinstance(sink, Path) else sink.write(content)


@dataclass(frozen=True)
class Part:
    """What is scored as one: the windows of a recording go on from file to file.

    Attributes:
        name: of its table, below the output folder: the files' place below the folder given.
        files: their paths in the file system, in order.
        sizes: in bytes; a part whose files have other sizes is scored again.
        keys: what folders such as ``device=17`` say.
    """

    name: str
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    keys: tuple[tuple[str, str], ...]


def find_parts(source: Place, per: str = FILE) -> list[Part]:
    """The Parquet files of a folder, of a pattern such as ``data/*/2026-*.parquet``, or one file.

    Args:
        source: where; folders below are searched, too. Names that begin with . or _ are left out.
        per: "file" makes a part of every file, "folder" one of all files in a folder.

    Raises:
        DataError: there is no such file.
    """
    if per not in (FILE, FOLDER):
        raise InputError(f"per={per!r}: a part is a {FILE} or a {FOLDER}.")
    root, found = _list(source)
    parts: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, size in sorted(found):
        name = path[len(root) :].lstrip("/")
        folder = name.rpartition("/")[0]
        parts[name if per == FILE else f"{folder}/all.parquet".lstrip("/")].append((path, size))
    if not parts:
        raise DataError(f"{source.address}: there is no Parquet file here.")
    return [
        Part(name, tuple(p for p, _ in files), tuple(n for _, n in files), _keys(files[0][0]))
        for name, files in parts.items()
    ]


def _list(source: Place) -> tuple[str, list[tuple[str, int]]]:
    """The folder that all lie in, and every file with its size."""
    system, path = source.open()
    fs = import_module("pyarrow.fs")
    wanted = _PATTERN.search(path)
    root = path if wanted is None else path[: path.rfind("/", 0, wanted.start())]
    try:
        info = system.get_file_info(root)
        if info.type == fs.FileType.NotFound:
            raise DataError(f"{source.address}: there is no such file or folder.")
        if info.is_file:
            return root.rpartition("/")[0], [(root, info.size)]
        files = system.get_file_info(fs.FileSelector(root, recursive=True))
    except OSError as error:
        raise DataError(f"{source.address} cannot be listed: {error}") from error
    pattern = _translate(path) if wanted else re.compile(".*")
    return root, [
        (each.path, each.size)
        for each in files
        if each.is_file and pattern.fullmatch(each.path) and _is_data(each.path[len(root) :])
    ]


def _is_data(below: str) -> bool:
    hidden = any(name.startswith((".", "_")) for name in below.split("/"))
    return below.lower().endswith(".parquet") and not hidden


def _translate(pattern: str) -> re.Pattern[str]:
    """As in a shell: * and ? stay within a folder, ** does not."""
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]/]+\])", pattern)
    made = [signs.get(part, part if part.startswith("[") else re.escape(part)) for part in parts]
    return re.compile("".join(made))


def _keys(path: str) -> tuple[tuple[str, str], ...]:
    folders = path.split("/")[:-1]
    return tuple((m[1], unquote(m[2])) for m in map(_KEY.fullmatch, folders) if m)
