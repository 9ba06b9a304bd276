"""``generate``: the order of the passes, in plain sight."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from onesigma.errors import ExportError, InputError
from onesigma.exporters.c import (
    arithmetic,
    conv,
    dense,
    layers,
    shapes,
    small_ops,
    windows,
)
from onesigma.exporters.c.emit import Names, emit, has_label
from onesigma.exporters.c.fuse import Loop, Step, fuse
from onesigma.exporters.c.graph import load, read
from onesigma.exporters.c.int8 import Int8Cost, rounded
from onesigma.exporters.c.plan import plan
from onesigma.exporters.c.render import SCRATCH
from onesigma.exporters.c.values import Graph
from onesigma.exporters.c.weights import share_squares
from onesigma.runtime.model import METADATA_KEY
from onesigma.storage.atomic import replacing
from onesigma.text_table import text_table

# Importing these fills the tables of readers and renderers.
_TABLES = (arithmetic, conv, dense, layers, shapes, small_ops, windows)


@dataclass(frozen=True)
class Generated:
    """What was written, and what it takes on the device.

    Attributes:
        source, header: the two files.
        flash: bytes of weights and tables; the code comes on top, typically 5 to 15 kB.
        arena: bytes of memory that one call works in.
        prediction: bytes of the struct that is filled.
        inputs: the sizes of the inputs, by name.
        outputs: C type and size of the struct's fields, by name.
        steps: what the code does one after another, by the names of the ONNX nodes.
        int8: what rounding the weights cost, if they were rounded.
    """

    source: Path
    header: Path
    flash: int
    arena: int
    prediction: int
    inputs: dict[str, int]
    outputs: dict[str, tuple[str, int]]
    steps: tuple[str, ...]
    int8: Int8Cost | None = None

    def __str__(self) -> str:
        table = _size_table(self.flash, self.arena, self.prediction)
        cost = "" if self.int8 is None else f"\n{self.int8}"
        return f"{self.source}, {self.header.name}\n{table}{cost}"


def _size_table(flash: int, arena: int, prediction: int) -> str:
    rows = [
        ("weights and tables", "flash", f"{flash:,}"),
        ("arena", "RAM", f"{arena:,}"),
        ("prediction", "RAM", f"{prediction:,}"),
    ]
    return text_table(("", "in", "bytes"), rows, numbers=True)


def generate(
    model: str | Path | onnx.ModelProto,
    folder: str | Path,
    *,
    name: str = "model",
    input_shapes: Sequence[Sequence[int]] | None = None,
    int8: bool = False,
    examples: Sequence[Any] | None = None,
) -> Generated:
    """Write an ONNX model as ``name.c`` and ``name.h``, both or neither.

    Args:
        model: the file, or the model itself; what ``onesigma.export`` writes, or any other whose
            ops are known.
        folder: where to write; created if it does not exist.
        name: prefix of the files and of every public name in them.
        input_shapes: the shape of each input with a batch of 1, where the file leaves it open.
        int8: store weights in eight bits with one scale per filter.
        examples: for ``int8``, real inputs on which to measure what that costs, one array with a
            batch per input; random ones by default.

    Raises:
        ExportError: the model holds an op that has no C. Nothing is written then.
    """
    folder = Path(folder)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise InputError(f"name={name!r}: lower-case letters, digits and underscores are needed.")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder.")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder: create it first.")
    proto = load(model)
    graph, cost = read(proto, input_shapes), None
    if int8:
        proto, cost = rounded(proto, examples, [x.shape for x in graph.inputs.values()])
        graph = read(proto, input_shapes)
    share_squares(graph.nodes)
    steps = fuse(graph)
    memory = plan(graph, steps, partial(_scratch, int8))
    names = Names(name, _class_names(proto))
    code = emit(graph, steps, memory, names, int8)
    sizes = (code.table_bytes, 4 * max(1, memory.size), _prediction_bytes(graph))
    folder.mkdir(exist_ok=True)
    source, header = folder / f"{name}.c", folder / f"{name}.h"
    with replacing(source) as new_source, replacing(header) as new_header:
        new_source.write_text(code.source, encoding="ascii")
        table = _size_table(*sizes).replace("─", "-")
        new_header.write_text(code.header.replace("@sizes table@", table), encoding="ascii")
    fields = {k: (graph.types[k], value.size) for k, value in graph.outputs.items()}
    inputs = {k: value.size for k, value in graph.inputs.items()}
    described = tuple(f"{_kind(step)}: {step.name}" for step in steps)
    return Generated(source, header, *sizes, inputs, fields, described, cost)


def _scratch(int8: bool, step: Step) -> int:
    if isinstance(step, Loop) or step.kind not in SCRATCH:
        return 0
    return SCRATCH[step.kind](step, int8)


def _kind(step: Step) -> str:
    return "loop" if isinstance(step, Loop) else step.kind


def _prediction_bytes(graph: Graph) -> int:
    """As compilers for microcontrollers lay the struct out."""
    total = sum(
        value.size * (1 if graph.types[k] == "bool" else 4) for k, value in graph.outputs.items()
    )
    return -(-total // 4) * 4 + (4 if has_label(graph) else 0)


def _class_names(model: onnx.ModelProto) -> list[str]:
    """Those that ``onesigma.export`` wrote into the file, if it did."""
    for entry in model.metadata_props:
        if entry.key == METADATA_KEY:
            try:
                return list(json.loads(entry.value)["class_names"] or [])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ExportError(f"The file's onesigma metadata are damaged: {error}") from error
    return []
