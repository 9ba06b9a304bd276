"""Never NaN, never infinite, never a negative variance: random moments through every rule.

In the suite a few thousand moments per rule; ``make fuzz EFFORT=2000`` looks at 10⁷ per rule and
target, which takes about an hour on two cores. What breaks is told with the seed of its moments.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import wild
from fuzz.harness import EFFORT

from onesigma.errors import ExportError
from onesigma.exporters.onnx.ops import UnwritableError

COUNT = 5000 * EFFORT
SEED = 0 if EFFORT == 1 else random.randrange(2**31)
WIDE = 2**13
DTYPES = {"float32": (np.float32, torch.float32), "float64": (np.float64, torch.float64)}


def share(dtype: type, part: int, parts: int) -> wild.Moments:
    """The moments that are one case's, of so many of a rule."""
    step = COUNT // parts
    mean, var = (a[part * step :][:step].astype(dtype) for a in wild.moments(COUNT, SEED))
    return mean, var


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", wild.NAMES)
def test_in_torch(name, dtype):
    kind, precision = DTYPES[dtype]
    found = list(wild.networks(name, precision, min(WIDE, COUNT)))
    for i, network in enumerate(found):
        pool = share(kind, i, len(found))
        broken = wild.count_broken(network.size, wild.in_torch(network), pool)
        assert broken == wild.Broken(), f"{network.name}, seed {SEED}"


def runs(name: str, target: str, folder: Path) -> Iterator[tuple[wild.Network, wild.Run]]:
    """A rule's networks on a target; with more effort, also if only PyTorch's exporter knows it."""
    elements = 1 if target == "c" else min(WIDE, COUNT)
    for by_torch in (False, True)[: 1 + (EFFORT > 1)]:
        some = False
        for i, network in enumerate(wild.networks(name, torch.float32, elements)):
            try:
                model = wild.as_onnx(network, by_torch=by_torch)
                if target == "onnx":
                    run = wild.in_onnx(model)
                else:
                    run = wild.in_c(model, folder / str(i), "-O2")
            except (UnwritableError, ExportError):
                continue
            some = True
            yield network, run
        if some:
            return


@pytest.mark.parametrize("target", ["onnx", "c"])
@pytest.mark.parametrize("name", wild.NAMES)
def test_exported(name, target, tmp_path):
    pytest.importorskip("onnxruntime")
    if target == "c" and shutil.which("gcc") is None:
        pytest.skip("gcc not found")
    found = list(runs(name, target, tmp_path))
    if not found:
        pytest.skip(f"no case of {name} can be written for this target")
    for i, (network, run) in enumerate(found):
        broken = wild.count_broken(network.size, run, share(np.float32, i, len(found)))
        assert broken == wild.Broken(), f"{network.name}, seed {SEED}"
