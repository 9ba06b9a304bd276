"""The runtimes, one file each. To add one: a file here that has the four names below, and a line.

    NAME                              as tables print it
    PACKAGES                          what must be installed
    translate(program, inputs)        what the runtime opens: a file, or a graph of PyTorch
    start(opened, inputs, threads)    → a function from numpy arrays to a list of them

Nothing is imported before it is asked for, and ``start`` of a runtime that opens files imports no
PyTorch: what it takes in memory is measured in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Run = Callable[..., Sequence[Array]]

RUNTIMES = ("eager", "compiled", "onnxruntime", "openvino", "executorch", "litert")
FROM_ONNX = ("onnxruntime", "openvino")  # the others start from a graph of PyTorch


def runtime(name: str) -> Any:
    """The module of a runtime; mypy has no protocol for modules that are imported by name."""
    return import_module(f"onesigma.lab.bench.runtimes.{name}")


def missing(name: str) -> list[str]:
    """The packages that the runtime needs and that are not installed."""
    return [package for package in runtime(name).PACKAGES if find_spec(package) is None]


def suffix(inputs: tuple[Array, ...]) -> str:
    """For the name of a file that is made for these shapes."""
    return "".join("-" + "x".join(map(str, x.shape)) for x in inputs)


def title(name: str) -> str:
    """The runtime's name with its version."""
    module = runtime(name)
    return f"{module.NAME} {version(module.DISTRIBUTION)}"
