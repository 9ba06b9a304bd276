"""``onesigma bench``: what the doubt costs in time, memory and energy."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from onesigma.cli.options import (
    Commands,
    add_json,
    add_output,
    bar,
    command,
    positive,
    print_json,
)
from onesigma.errors import InputError

if TYPE_CHECKING:
    from onesigma.lab.bench.measurement import Plan
    from onesigma.lab.bench.result import Result


def add(commands: Commands) -> None:
    from onesigma.lab.bench.runtimes import RUNTIMES

    parser = command(
        commands,
        "bench",
        "what the doubt costs: time, memory, energy",
        description="Time the plain network, one pass in every mode, Monte Carlo, ensembles and "
        "ApDeepSense in turn, in every runtime that is installed; then file sizes, memory, and "
        "energy where the machine has a meter. Only ratios of one run are to be trusted.",
        example="onesigma bench --quick\n  onesigma bench model.safetensors --batch 1 --threads 1"
        "\n  onesigma bench plain.onnx converted.onnx --runtimes onnxruntime",
    )
    parser.add_argument(
        "model",
        nargs="*",
        type=Path,
        help="a .safetensors file of onesigma.save, or .onnx files, the reference first; "
        "without, the paper's CNN",
    )
    parser.add_argument("--threads", type=positive, nargs="+", metavar="N", help="default 1 2")
    parser.add_argument("--batch", type=positive, nargs="+", metavar="N", help="default 1 8 64")
    parser.add_argument(
        "--runtimes", nargs="+", choices=RUNTIMES, metavar="NAME", help=", ".join(RUNTIMES)
    )
    parser.add_argument(
        "--quick", action="store_true", help="a minute: batch 1, one thread, few contenders"
    )
    add_json(parser)
    add_output(parser, "keep the figures (bench.json, bench.txt) there")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from onesigma.lab.bench.contenders import PASSES, SIZES, make_subject
    from onesigma.lab.bench.measurement import Bench
    from onesigma.lab.bench.result import show_result

    few = {"passes": (30,), "sizes": (5,)} if options.quick else {"passes": PASSES, "sizes": SIZES}
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
    print("preparing the contenders", file=sys.stderr)
    with TemporaryDirectory() as folder:
        measured = make_subject(options.model, Path(folder), **few)
        bench = Bench(
            *(measured.name, measured.contenders, measured.inputs, _plan(options)),
            say=lambda words: print(words, file=sys.stderr),
            progress=lambda rounds: bar(rounds, "rounds"),
        )
        result = bench.run(lambda result: _keep(result, options.output))
    if options.json:
        print_json(result.to_dict())
    else:
        print(show_result(result))


def _plan(options: argparse.Namespace) -> Plan:
    from onesigma.lab.bench.measurement import Plan
    from onesigma.lab.bench.runtimes import FROM_ONNX, RUNTIMES

    quick = options.quick
    runtimes: tuple[str, ...] = ("eager", "onnxruntime") if quick else RUNTIMES
    if options.model and options.model[0].suffix == ".onnx":
        runtimes = tuple(name for name in runtimes if name in FROM_ONNX)
        if strange := set(options.runtimes or ()) - set(FROM_ONNX):
            known, unknown = ", ".join(FROM_ONNX), ", ".join(sorted(strange))
            raise InputError(f"An .onnx file runs in {known}, not in {unknown}.")
    return Plan(
        runtimes=tuple(options.runtimes or runtimes),
        threads=tuple(options.threads or ((1,) if quick else (1, 2))),
        batches=tuple(options.batch or ((1,) if quick else (1, 8, 64))),
        repeats=50 if quick else 200,
        seconds=1.0 if quick else 3.0,
        processes=1 if quick else 3,
    )


def _keep(result: Result, folder: Path | None) -> None:
    """After every part, so that an interrupted run leaves what it had found."""
    if folder is None:
        return
    from onesigma.lab.bench.result import show_result
    from onesigma.storage.atomic import replacing

    figures = json.dumps(result.to_dict(), indent=2)
    texts = {"bench.json": figures, "bench.txt": f"{show_result(result)}\n"}
    for name, text in texts.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
