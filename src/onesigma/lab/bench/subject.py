"""What is benchmarked: the paper's network, a saved model, or ONNX files beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onesigma.conversion import convert
from onesigma.converted import Converted
from onesigma.errors import FileError, InputError, PackageError
from onesigma.lab.bench.contenders import PASSES, SIZES, Contender, contenders
from onesigma.lab.bench.network import INPUT_SHAPE, seeded_cnn
from onesigma.lab.bench.programs import stored
from onesigma.lab.bench.runtimes import Array
from onesigma.storage.model_file import load

# One input: its shape without the batch, and its dtype.
Input = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Subject:
    """The contenders, the reference first, and what they take."""

    name: str
    contenders: list[Contender]
    taken: tuple[Input, ...]

    def inputs(self, batch: int) -> tuple[Array, ...]:
        """Random inputs, the same each time."""
        return _random(self.taken, batch)


def subject(
    paths: Sequence[Path],
    folder: Path,
    *,
    passes: Sequence[int] = PASSES,
    sizes: Sequence[int] = SIZES,
) -> Subject:
    """What the command line names; ``folder`` is for files that runtimes need.

    Args:
        paths: nothing for the paper's network, one ``.safetensors`` file for a model that
            ``onesigma.save`` wrote, or ``.onnx`` files, which are compared with the first of them.
        folder: where files go.
        passes: of Monte Carlo.
        sizes: of ensembles.
    """
    if not paths:
        example = torch.zeros(2, *INPUT_SHAPE)
        return of_model("the paper's CNN", convert(seeded_cnn(), example), folder, passes, sizes)
    kinds = {path.suffix for path in paths}
    if kinds == {".onnx"}:
        return of_files(paths, folder)
    if kinds == {".safetensors"} and len(paths) == 1:
        return of_model(paths[0].name, load(paths[0]), folder, passes, sizes)
    raise InputError(
        "Pass one .safetensors file that onesigma.save wrote, or .onnx files, or nothing."
    )


def of_model(
    name: str, model: Converted, folder: Path, passes: Sequence[int], sizes: Sequence[int]
) -> Subject:
    settings = model.settings
    if settings.input_shapes[0][0] is not None:
        raise InputError("This model fixes its batch; Monte Carlo as one batch needs an open one.")
    shapes = [tuple(n or 1 for n in shape[1:]) for shape in settings.input_shapes]
    taken = tuple(zip(shapes, settings.input_dtypes, strict=True))
    examples = tuple(torch.from_numpy(x) for x in _random(taken, 2))
    entries = contenders(model, examples, folder, passes=passes, sizes=sizes)
    return Subject(name, entries, taken)


def of_files(paths: Sequence[Path], folder: Path) -> Subject:
    """ONNX files as they are; all must take what the first takes."""
    taken = [_taken(path) for path in paths]
    for path, each in zip(paths, taken, strict=True):
        if each != taken[0]:
            raise InputError(f"{path.name} takes other inputs than {paths[0].name}.")
    names = [path.stem for path in paths]
    labels = names if len(set(names)) == len(names) else [str(path) for path in paths]
    entries = [
        Contender(label, (stored(path, folder),)) for label, path in zip(labels, paths, strict=True)
    ]
    return Subject(labels[0], entries, taken[0])


def _taken(path: Path) -> tuple[Input, ...]:
    """The inputs of an ONNX file, which must have an open batch and be fixed otherwise."""
    try:
        onnx: Any = import_module("onnx")
    except ModuleNotFoundError as error:
        raise PackageError("An .onnx file needs onnx: pip install 'onesigma[onnx]'") from error
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # protobuf's own classes among them
        raise FileError(f"{path.name} cannot be read as an ONNX model: {error}") from error
    stored_values = {value.name for value in graph.initializer}
    found = []
    for value in graph.input:
        if value.name in stored_values:  # before IR 4 every weight is an input, too
            continue
        kind = value.type.tensor_type
        sizes = [dim.dim_value for dim in kind.shape.dim]
        if not sizes or sizes[0] or not all(sizes[1:]):
            raise InputError(
                f"{path.name}: input '{value.name}' needs an open batch and fixed sizes otherwise."
            )
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        found.append((tuple(sizes[1:]), str(dtype)))
    return tuple(found)


def _random(taken: Sequence[Input], batch: int) -> tuple[Array, ...]:
    generator = np.random.default_rng(0)
    draw = partial(_draw, generator)
    return tuple(draw((batch, *shape), dtype) for shape, dtype in taken)


def _draw(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype.startswith("float"):
        return generator.standard_normal(shape).astype(dtype)
    return np.zeros(shape, dtype)
