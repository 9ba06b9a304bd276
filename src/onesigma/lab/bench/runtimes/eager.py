"""PyTorch as it comes."""

from __future__ import annotations

from typing import Any

from onesigma.lab.bench.runtimes import Array, Run

NAME, DISTRIBUTION, PACKAGES = "PyTorch", "torch", ("torch",)


def translate(program: Any, inputs: tuple[Array, ...]) -> Any:
    return program.graph


def start(opened: Any, inputs: tuple[Array, ...], threads: int) -> Run:
    """Threads are those of the process: ``timing.torch_threads`` sets them."""
    import torch

    @torch.inference_mode()
    def run(*inputs: Array) -> list[Array]:
        return [out.numpy() for out in opened(*(torch.from_numpy(x) for x in inputs))]

    return run
