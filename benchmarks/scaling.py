"""How the cost of one pass grows with width, depth, input size and classes: a table and a picture.

From the paper's CNN one thing is changed at a time. ONNX Runtime, one thread, batch 1; each network
with all its contenders in one interleaved run, so a point is a ratio of that run.

    python benchmarks/scaling.py --output docs/scaling.png
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from onesigma.conversion import convert
from onesigma.lab.bench.bench import Bench, Plan, machine
from onesigma.lab.bench.contenders import CALIBRATED, MODES, PLAIN
from onesigma.lab.bench.network import INPUT_SHAPE, seeded_cnn
from onesigma.lab.bench.subject import of_model
from onesigma.lab.plots.scaling import growth
from onesigma.storage.atomic import replacing
from onesigma.text_table import text_table

FULL, LOWRANK, *_ = MODES
MC = "MC-10, one batch"
SHOWN = (FULL, LOWRANK, CALIBRATED, MC)
GRIDS = {
    "width": (8, 16, 32, 64, 128),
    "depth": (1, 2, 4, 8),
    "size": (8, 14, 20, 28, 40),
    "classes": (2, 6, 20, 100),
}
LABELS = {
    "width": "filters per layer",
    "depth": "convolutions",
    "size": "input size (6 × n × n)",
    "classes": "classes",
}


def measure(change: dict[str, int], runtime: str, repeats: int) -> dict[str, Any]:
    """Milliseconds of the plain network, and the ratios of the others to it."""
    size = change.get("size", INPUT_SHAPE[-1])
    converted = convert(seeded_cnn(**change), torch.zeros(2, INPUT_SHAPE[0], size, size))
    plan = Plan((runtime,), threads=(1,), batches=(1,), repeats=repeats, seconds=3, processes=0)
    with TemporaryDirectory() as folder:
        measured = of_model("", converted, Path(folder), passes=(10,), sizes=())
        entries = [entry for entry in measured.contenders if entry.name in (PLAIN, *SHOWN)]
        result = Bench("", entries, measured.inputs, plan).run()
    for what, why in result.skipped.items():
        print(f"left out: {what}: {why}", file=sys.stderr)
    found = {row.contender: row.timing for row in result.rows}
    return {
        "plain_ms": 1e3 * found[PLAIN].minimum,
        **{name: found[name].cpu_ratio for name in SHOWN if name in found},
    }


def _cell(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--repeats", type=int, default=300, help="rounds of timing per network")
    parser.add_argument("--output", type=Path, default=Path("out") / "scaling.png")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"machine": machine()}
    for name, values in GRIDS.items():
        points = {}
        for value in values:
            print(f"{name} {value}", file=sys.stderr, flush=True)
            points[value] = measure({name: value}, options.runtime, options.repeats)
        figures[name] = points
        rows = [
            (str(value), f"{point['plain_ms']:.2f}", *(_cell(point.get(name)) for name in SHOWN))
            for value, point in points.items()
        ]
        print(text_table((name, "plain ms", *SHOWN), rows, numbers=True), end="\n\n", flush=True)
    curves = {
        LABELS[name]: {
            line.removeprefix("one pass, "): [
                (value, point[line]) for value, point in figures[name].items() if line in point
            ]
            for line in SHOWN
        }
        for name in GRIDS
    }
    growth(curves, options.output, title="Time of one pass over the plain network", note=NOTE)
    with replacing(options.output.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(figures, indent=2))
    print(f"Picture: {options.output}")


NOTE = (
    "ONNX Runtime, one thread, batch 1, processor's time. One thing changed at a time from the "
    "paper's CNN: 4 convolutions of 64 filters, input 6 × 20 × 20, 6 classes."
)


if __name__ == "__main__":
    main()
