"""PyTorch compiled for the very shapes it is given; needs a C++ compiler."""

from __future__ import annotations

from typing import Any

from onesigma.lab.bench.runtimes import Array, Run, eager

NAME, DISTRIBUTION, PACKAGES = "torch.compile", "torch", ("torch",)
translate = eager.translate


def start(opened: Any, inputs: tuple[Array, ...], threads: int) -> Run:
    import torch

    return eager.start(torch.compile(opened, dynamic=False), inputs, threads)
