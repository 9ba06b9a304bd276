"""Where the time goes in ONNX Runtime: its own profile, summed up by op."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onesigma.lab.bench.runtimes import Array
from onesigma.lab.bench.runtimes.onnxruntime import session


@dataclass(frozen=True)
class OpTime:
    """All nodes of one op, per run: how many, how long in microseconds, which share of all."""

    op: str
    nodes: int
    microseconds: float
    share: float


def profile(
    path: Path, inputs: tuple[Array, ...], *, threads: int = 1, runs: int = 50
) -> list[OpTime]:
    """The ops of an ONNX file, the slowest first; each node counts with its fastest run."""
    with TemporaryDirectory() as folder:
        loaded = session(path, threads, profile=Path(folder) / "profile")
        names = [each.name for each in loaded.get_inputs()]
        feed = dict(zip(names, inputs, strict=True))
        for _ in range(runs):
            loaded.run(None, feed)
        events: list[dict[str, Any]] = json.loads(Path(loaded.end_profiling()).read_text())
    return summed_up(events)


def summed_up(events: list[dict[str, Any]]) -> list[OpTime]:
    """From the events of ONNX Runtime's profile."""
    fastest: dict[tuple[str, str], float] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = (event["args"]["op_name"], event["name"])
            fastest[key] = min(event["dur"], fastest.get(key, float("inf")))
    by_op: dict[str, list[float]] = defaultdict(list)
    for (op, _), microseconds in fastest.items():
        by_op[op].append(microseconds)
    total = sum(fastest.values())
    found = [OpTime(op, len(each), sum(each), sum(each) / total) for op, each in by_op.items()]
    return sorted(found, key=lambda each: -each.microseconds)
