"""What one pass costs over the plain network, as ratios, beside the bars that were set: JSON.

The paper's CNN, one thread, batch 1, all in one interleaved run: ONNX Runtime and PyTorch, what
`convert` and what `fit` give, Monte Carlo with 30 passes as one batch; memory and file sizes; and
how close each is to Monte Carlo, on two TRAINED networks of the same kind: on digits (test inputs,
noisy ones and random ones), and on MotionSense's spectra if the data is there. Where a bar is
missed, the profile of that graph shows where the time goes.

    python -m onesigma.lab.bench.overhead --data-root ../shared/data --output out/overhead.json
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

import onesigma
from onesigma.errors import DataError
from onesigma.lab.bench.contenders import CONVERTED, FITTED, PLAIN, Subject, make_subject
from onesigma.lab.bench.fidelity import add_noise, add_options, compare, reference
from onesigma.lab.bench.measurement import Bench, Plan
from onesigma.lab.bench.meters import profile
from onesigma.lab.bench.result import Result
from onesigma.lab.bench.trained import load_trained
from onesigma.storage.atomic import write_text

MC = "MC-30, one batch"
OURS = (CONVERTED, FITTED)
# (runtime, form) → what it must not exceed, relative to the plain network.
BARS = {("onnxruntime", CONVERTED): 2.4}
FEWEST_TIMES_FASTER = 20


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def ratios(result: Result) -> list[dict[str, Any]]:
    """Each form in each runtime over the plain network, and Monte Carlo over that form."""
    found = []
    for row in result.rows:
        if row.contender not in OURS:
            continue
        bar = BARS.get((row.runtime, row.contender))
        sampled = result.row(MC, row.runtime)
        faster = None if sampled is None else sampled.timing.cpu_ratio / row.timing.cpu_ratio
        found.append(
            {
                "runtime": row.runtime,
                "form": row.contender,
                "ratio": row.timing.ratio,
                "noise": row.timing.noise,
                "cpu_ratio": row.timing.cpu_ratio,
                "bar": bar,
                "met": None if bar is None else row.timing.ratio <= bar,
                "mc30_over_this": faster,
                "at_least_20": None if faster is None else faster >= FEWEST_TIMES_FASTER,
            }
        )
    return found


def footprints(result: Result) -> list[dict[str, Any]]:
    return [asdict(each) for each in result.footprints if each.runtime == "onnxruntime"]


def profiles(found: list[dict[str, Any]], measured: Subject) -> dict[str, Any]:
    """Of the graphs that missed a bar in ONNX Runtime, and of the plain one beside them."""
    missed = {
        row["form"]
        for row in found
        if row["runtime"] == "onnxruntime" and False in (row["met"], row["at_least_20"])
    }
    names = {PLAIN, *missed} if missed else set()
    return {
        entry.name: [asdict(op) for op in profile(entry.programs[0].path, measured.inputs(1))]
        for entry in measured.contenders
        if entry.name in names
    }


def fidelity(options: argparse.Namespace) -> list[dict[str, Any]]:
    """KL to Monte Carlo, as converted, calibrated and fitted."""
    found = []
    for name in ("digits_cnn", "paper_cnn"):
        try:
            network, data = load_trained(name, options.data_root, options.cache)
        except DataError as error:
            say(f"{error}\nNo fidelity of {name}.")
            continue
        generator = torch.Generator().manual_seed(0)
        x = data.test.some(options.inputs, generator)
        if name == "digits_cnn":
            strange = torch.randn(x[::4].shape, generator=generator)
            x = torch.cat([x, add_noise(x[::4], 1.0), strange])
        fit = data.train.some(options.fit, generator)
        found.append(_judge(name, network, x, fit, options))
    return found


def _judge(
    name: str, network: nn.Module, x: Tensor, fit: Tensor, options: argparse.Namespace
) -> dict[str, Any]:
    say(f"fidelity on the trained {name}")
    converted = onesigma.convert(network, fit[:2])
    models = {
        CONVERTED: converted,
        f"{CONVERTED}, calibrated": onesigma.calibrate(converted, fit, passes=options.fit_passes),
        FITTED: onesigma.fit(network, fit),
    }
    ref = reference(network, x, options.passes)
    rows = compare(network, models, x, ref)
    return {
        "network": name,
        "inputs": len(x),
        "noise": ref.noise,
        "rows": [asdict(row) for row in rows],
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = Plan(
        *(("onnxruntime", "compiled", "eager"), (1,), (1,)),
        repeats=options.repeats,
        seconds=options.seconds,
    )
    with TemporaryDirectory() as folder:
        measured = make_subject([], Path(folder), passes=(30,), sizes=())
        entries = [entry for entry in measured.contenders if entry.name in (PLAIN, MC, *OURS)]
        result = Bench(measured.name, entries, measured.inputs, plan, say=say).run()
        found = ratios(result)
        return {
            "machine": result.machine,
            "ratios": found,
            "footprints": footprints(result),
            "profiles": profiles(found, measured),
            "skipped": result.skipped,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser, inputs=200)
    parser.add_argument("--repeats", type=int, default=1000, help="rounds of timing")
    parser.add_argument("--seconds", type=float, default=10.0, help="at most, for one contender")
    parser.add_argument("--no-fidelity", action="store_true", help="times, memory and files only")
    options = parser.parse_args()
    figures = measure(options)
    if not options.no_fidelity:
        figures["fidelity"] = fidelity(options)
    text = json.dumps(figures, indent=2)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_text(options.output, text)
    print(text)


if __name__ == "__main__":
    main()
