"""Peak memory of one answer, in a fresh process that opens the files and does nothing else.

Measured is the peak of the resident memory (VmHWM of Linux, which counts what native code takes
too) after some answers, less what was resident before the runtime was imported. What the plain
network takes is measured in the same way; what a method costs is the difference.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onesigma.lab.bench.runtimes import Array, runtime

_ANSWERS = 5
STATUS = Path("/proc/self/status")


def can_measure() -> bool:
    return STATUS.is_file()


def peak(name: str, files: Sequence[Path], inputs: tuple[Array, ...], *, processes: int = 3) -> int:
    """Bytes at the peak: the median of several processes, for it varies by some 100 kB.

    Args:
        name: of the runtime.
        files: what it opens and runs for one answer, one after the other; some may be the same.
        inputs: one batch.
        processes: how many are asked.
    """
    job = {
        "runtime": name,
        "files": [str(file) for file in files],
        "inputs": [(x.shape, str(x.dtype)) for x in inputs],
    }
    command = [sys.executable, "-m", __name__, json.dumps(job)]
    found = []
    for _ in range(processes):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        found.append(int(done.stdout.splitlines()[-1]))
    return int(statistics.median(found))


def _answer(job: dict[str, Any]) -> int:
    """What the process is started for."""
    inputs = tuple(np.zeros(shape, dtype) for shape, dtype in job["inputs"])
    module = runtime(job["runtime"])
    before = _resident("VmRSS")
    started = {file: module.start(Path(file), inputs, 1) for file in job["files"]}
    for _ in range(_ANSWERS):
        for file in job["files"]:
            started[file](*inputs)
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), flags=re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{STATUS} has no {field}")
    return 1024 * int(found[1])


if __name__ == "__main__":
    print(_answer(json.loads(sys.argv[1])))
