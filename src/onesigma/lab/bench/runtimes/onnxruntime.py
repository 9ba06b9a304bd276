"""ONNX Runtime on the CPU."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from onesigma.lab.bench.runtimes import Array, Run

NAME, DISTRIBUTION, PACKAGES = "ONNX Runtime", "onnxruntime", ("onnxruntime", "onnx")


def translate(program: Any, inputs: tuple[Array, ...]) -> Any:
    return program.path


def start(opened: Path, inputs: tuple[Array, ...], threads: int) -> Run:
    loaded = session(opened, threads)
    names = [each.name for each in loaded.get_inputs()]

    def run(*inputs: Array) -> list[Array]:
        found: list[Array] = loaded.run(None, dict(zip(names, inputs, strict=True)))
        return found

    return run


def session(path: Path, threads: int, *, profile: Path | None = None) -> Any:
    """A session; with ``profile``, one that records every op in a file whose name so begins."""
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin while they wait would take the time of whoever is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    # By default it deletes Dropout, even in training mode: Monte Carlo without any noise.
    return onnxruntime.InferenceSession(
        str(path),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["EliminateDropout"],
    )
