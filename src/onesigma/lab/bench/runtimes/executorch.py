"""ExecuTorch with XNNPACK, for the very shapes it is given."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from onesigma.lab.bench.runtimes import Array, Run, suffix

NAME, DISTRIBUTION, PACKAGES = "ExecuTorch", "executorch", ("executorch", "torch")


def translate(program: Any, inputs: tuple[Array, ...]) -> Path:
    import torch

    from onesigma.graph.capture import shared_copy
    from onesigma.graph.fold import fold

    exir: Any = import_module("executorch.exir")
    xnnpack: Any = import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    graph = shared_copy(program.graph)
    fold(graph, "")  # squared weights must be constants for XNNPACK to take their convolutions
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        examples = tuple(torch.from_numpy(x) for x in inputs)
        exported = torch.export.export(graph, examples, strict=False)
        partitioner = [xnnpack.XnnpackPartitioner()]
        lowered = exir.to_edge_transform_and_lower(exported, partitioner=partitioner)
        content = lowered.to_executorch().buffer
    path: Path = program.folder / f"{program.name}{suffix(inputs)}.pte"
    path.write_bytes(content)
    return path


def start(opened: Path, inputs: tuple[Array, ...], threads: int) -> Run:
    import torch

    library: Any = import_module("executorch.extension.pybindings.portable_lib")
    library._unsafe_reset_threadpool(threads)
    runtime: Any = import_module("executorch.runtime")
    method = runtime.Runtime.get().load_program(opened).load_method("forward")

    def run(*inputs: Array) -> list[Array]:
        return [out.numpy() for out in method.execute([torch.from_numpy(x) for x in inputs])]

    return run
