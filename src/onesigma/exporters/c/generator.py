"""``generate``: the order of the passes, in plain sight."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from onesigma.errors import ExportError, InputError
from onesigma.exporters.c import integer_layers, weighted_layers
from onesigma.exporters.c.emit import emit, size_table
from onesigma.exporters.c.onnx_reader import read
from onesigma.exporters.c.plan import Loop, Step, fuse, plan_memory
from onesigma.exporters.c.weights import share_squares
from onesigma.exporters.int8 import Fidelity
from onesigma.runtime.model import METADATA_KEY
from onesigma.storage.atomic import replacing

_SCRATCH = {**weighted_layers.SCRATCH, **integer_layers.SCRATCH}


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
        int8: what eight bits cost, where ``export`` made them.
    """

    source: Path
    header: Path
    flash: int
    arena: int
    prediction: int
    inputs: dict[str, int]
    outputs: dict[str, tuple[str, int]]
    steps: tuple[str, ...]
    int8: Fidelity | None = None

    def __str__(self) -> str:
        table = size_table(self.flash, self.arena, self.prediction)
        cost = "" if self.int8 is None else f"\n{self.int8}"
        return f"{self.source}, {self.header.name}\n{table}{cost}"


def generate(
    model: onnx.ModelProto,
    folder: str | Path,
    *,
    name: str = "model",
    input_shapes: Sequence[Sequence[int]] | None = None,
) -> Generated:
    """Write an ONNX model as ``name.c`` and ``name.h``, both or neither.

    Args:
        model: what ``onesigma.export`` writes, or any other model whose ops are known; a file is
            read with ``onnx.load``.
        folder: where to write; it is created if it does not exist.
        name: prefix of the files and of every public name in them.
        input_shapes: the shape of each input, with its batch of 1 or without it, where the model
            leaves it open.

    Raises:
        ExportError: the model holds an op that has no C. Nothing is written then.
    """
    folder = Path(folder)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise InputError(f"name={name!r}: use lower-case letters, digits and underscores.")
    _check(folder)
    graph = read(model, input_shapes)
    share_squares(graph.nodes)
    steps = fuse(graph)
    memory = plan_memory(graph, steps, _scratch)
    declarations, code, sizes = emit(graph, steps, memory, name, _class_names(model))
    folder.mkdir(exist_ok=True)
    source, header = folder / f"{name}.c", folder / f"{name}.h"
    with replacing(source) as new_source, replacing(header) as new_header:
        new_source.write_text(code, encoding="ascii")
        new_header.write_text(declarations, encoding="ascii")
    return Generated(
        *(source, header, *sizes),
        inputs={key: value.size for key, value in graph.inputs.items()},
        outputs={key: (graph.types[key], value.size) for key, value in graph.outputs.items()},
        steps=tuple(f"{step.kind}: {step.name}" for step in steps),
    )


def _check(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder.")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder: create it first.")


def _scratch(step: Step) -> int:
    """Floats that a step works in besides its results."""
    if isinstance(step, Loop) or step.kind not in _SCRATCH:
        return 0
    return _SCRATCH[step.kind](step)


def _class_names(model: onnx.ModelProto) -> list[str]:
    """Those that ``onesigma.export`` wrote into the model, if it did."""
    text = {entry.key: entry.value for entry in model.metadata_props}.get(METADATA_KEY)
    try:
        return [] if text is None else list(json.loads(text)["class_names"] or [])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ExportError(f"The model's onesigma metadata are damaged: {error}") from error
