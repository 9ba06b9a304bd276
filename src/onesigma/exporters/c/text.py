"""C that is written as C: the files in ``pieces``, with @names@ to fill in."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = Path(__file__).with_name("pieces")


def read_text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="ascii")


def pieces(name: str) -> dict[str, str]:
    """The pieces of a file, by name, in order: each follows a line ``//: name``."""
    _, *parts = re.split(r"^//: (\w+)\n", read_text(name), flags=re.MULTILINE)
    return {key: f"{part.strip()}\n" for key, part in zip(parts[::2], parts[1::2], strict=True)}


# Functions that expressions call; only those that are called are written.
SUPPORT = pieces("functions.c")
_PIECES = {**pieces("layers.c"), **pieces("integers.c"), **pieces("recurrent.c")}


def fill(template: str, **parts: object) -> str:
    """A template with its @names@ replaced (C is full of braces).

    A name alone on its line takes a list of lines, which are indented as it is.
    """
    lines = []
    for line in template.split("\n"):
        mark = re.fullmatch(r"( *)@(\w+)@", line)
        part = parts[mark[2]] if mark else None
        if mark and isinstance(part, list):
            lines += [f"{mark[1]}{each}".rstrip() for each in part]
        else:
            lines.append(re.sub(r"@(\w+)@", lambda match: str(parts[match[1]]), line))
    return "\n".join(lines)


def fill_piece(name: str, /, **parts: object) -> str:
    return fill(_PIECES[name], **parts)


def piece_lines(name: str, /, **parts: object) -> list[str]:
    return fill_piece(name, **parts).splitlines()
