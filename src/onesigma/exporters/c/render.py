"""What renderers of nodes share: the table of them, and the file that they write into.

To add a structured op: a function that takes the node and the file and returns lines of C,
registered under the node's kind; what it needs outside of the lines it asks the file for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onesigma.exporters.c.elementwise import literal
from onesigma.exporters.c.values import Array, Node, Storage, Value

Renderer = Callable[[Node, "File"], list[str]]

RENDERERS: dict[str, Renderer] = {}
# How many floats a kind of node needs while it runs, with weights in eight bits or not.
SCRATCH: dict[str, Callable[[Node, bool], int]] = {}
_TYPES = {"float": "float", "i8": "int8_t", "u16": "uint16_t"}


def renders(
    kind: str, scratch: Callable[[Node, bool], int] | None = None
) -> Callable[[Renderer], Renderer]:
    """Make a function the renderer of a kind of node."""

    def register(renderer: Renderer) -> Renderer:
        assert kind not in RENDERERS, f"{kind} has a renderer already"
        RENDERERS[kind] = renderer
        if scratch is not None:
            SCRATCH[kind] = scratch
        return renderer

    return register


@dataclass
class File:
    """The C file as it grows: constant tables, functions, and where each storage lies."""

    places: Mapping[Storage, str]
    int8: bool = False
    functions: dict[str, str] = field(default_factory=dict)
    tables: dict[tuple[str, bytes], tuple[str, Array]] = field(default_factory=dict)
    scratch: str = "arena"  # of the node that is being rendered

    def base(self, storage: Storage) -> str:
        """The C name of the storage's first float."""
        if storage.data is not None:
            return self.table(storage.data)
        return self.places[storage]

    def pointer(self, value: Value) -> str:
        base = self.base(value.storage)
        return f"{base} + {value.offset}" if value.offset else base

    def table(self, array: Array, kind: str = "float") -> str:
        """The name of a constant table; equal ones are stored once."""
        flat = np.ravel(array).astype({"float": np.float32, "i8": np.int8, "u16": np.uint16}[kind])
        key = (kind, flat.tobytes())
        if key not in self.tables:
            self.tables[key] = (f"k{len(self.tables)}", flat)
        return self.tables[key][0]

    def function(self, name: str, text: str) -> str:
        """Make sure that a static function is in the file; returns its name."""
        self.functions.setdefault(name, text)
        return name

    @property
    def table_bytes(self) -> int:
        return sum(flat.nbytes for _, flat in self.tables.values())

    def table_lines(self) -> list[str]:
        lines: list[str] = []
        for (kind, _), (name, flat) in self.tables.items():
            numbers = [literal(float(x)) if kind == "float" else str(int(x)) for x in flat]
            lines.append(f"static const {_TYPES[kind]} {name}[{len(flat)}] = {{")
            lines += [f"    {', '.join(numbers[i : i + 8])}," for i in range(0, len(numbers), 8)]
            lines.append("};")
        return lines


def filled(template: str, **parts: Any) -> str:
    """A template with its @names@ replaced (C is full of braces), a line that is left empty out."""
    for name, part in parts.items():
        if part == "":
            template = template.replace(f"@{name}@\n", "")
        template = template.replace(f"@{name}@", str(part))
    return template
