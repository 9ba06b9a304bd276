"""LiteRT (once TensorFlow Lite) with XNNPACK, for the very shapes it is given."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from onesigma.lab.bench.runtimes import Array, Run, suffix

NAME, DISTRIBUTION = "LiteRT", "ai-edge-litert"
PACKAGES = ("ai_edge_litert", "litert_torch", "torch")


def translate(program: Any, inputs: tuple[Array, ...]) -> Path:
    import torch

    litert_torch: Any = import_module("litert_torch")
    path: Path = program.folder / f"{program.name}{suffix(inputs)}.tflite"
    # It tells every step of its work.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        examples = tuple(torch.from_numpy(x) for x in inputs)
        litert_torch.convert(program.graph.eval(), examples).export(str(path))
    return path


def start(opened: Path, inputs: tuple[Array, ...], threads: int) -> Run:
    litert: Any = import_module("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(model_path=str(opened), num_threads=threads)
    interpreter.allocate_tensors()
    taken = [each["index"] for each in interpreter.get_input_details()]
    # Named output_0, output_1 …, and listed in any order.
    details = sorted(interpreter.get_output_details(), key=lambda each: each["name"])
    given = [each["index"] for each in details]

    def run(*inputs: Array) -> list[Array]:
        for index, x in zip(taken, inputs, strict=True):
            interpreter.set_tensor(index, x)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in given]

    return run
