"""``onesigma demo``, ``bench`` and ``reproduce``: what the laboratory does, for everybody."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from onesigma import command
from onesigma.command import Command
from onesigma.errors import InputError
from onesigma.storage.opening import SAVED

if TYPE_CHECKING:
    from onesigma.lab.bench.measurement import Plan
    from onesigma.lab.bench.result import Result


def _add_demo_options(parser: argparse.ArgumentParser) -> None:
    command.add_switch(parser, "--train", "train the network anew first")
    command.add_switch(parser, "--quick", "fewer timing repeats")
    command.add_json(parser)
    what = "where page, picture and the fitted model (with --train, the weights, too) go"
    command.add_output(parser, what, default="out")


def _run_demo(args: argparse.Namespace) -> None:
    from onesigma.lab import checkpoint
    from onesigma.lab.demo import figures
    from onesigma.lab.timing import torch_threads
    from onesigma.pages.report.write import write
    from onesigma.storage.model_file import save

    args.output.mkdir(parents=True, exist_ok=True)
    if args.train:
        trained = checkpoint.train(path=args.output / "watch.safetensors")
    else:
        trained = checkpoint.load()
    if not args.quiet:
        print("fit asks Monte Carlo of the network, and learns what it says", file=sys.stderr)
    # Two are no faster for a network this small; on a busy machine they wait for each other.
    with torch_threads(1):
        result, found, cost = figures.run(
            trained.network,
            quick=args.quick,
            progress=lambda steps: command.show_progress(steps, "fit"),
        )
    made = [args.output / f"demo.{kind}" for kind in ("html", "png", "safetensors")]
    write(found, made[0], cost=cost, command="onesigma demo")
    figures.draw(result, made[1])
    save(found.converted, made[2])
    if args.json:
        command.print_json(result.to_dict())
        return
    print(figures.show(result))
    names = ("Open in a browser", "Picture", "Fitted model")
    for name, path in zip(names, made, strict=True):
        print(f"{name}: {path}", file=sys.stderr)


def _add_bench_options(parser: argparse.ArgumentParser) -> None:
    from onesigma.lab.bench.runtimes import RUNTIMES

    parser.add_argument(
        "model",
        nargs="*",
        type=Path,
        help=f"{SAVED}, or .onnx files, the reference first; without, the paper's CNN",
    )
    count: Any = {"type": command.parse_count, "nargs": "+", "metavar": "N"}
    parser.add_argument("--threads", **count, help="default 1 2")
    parser.add_argument("--batch", **count, help="default 1 8 64")
    parser.add_argument(
        "--runtimes",
        nargs="+",
        choices=RUNTIMES,
        metavar="NAME",
        help=f"some of {', '.join(RUNTIMES)}; default: all that are installed and run the model",
    )
    command.add_switch(parser, "--quick", "a minute: batch 1, one thread, few contenders")
    command.add_json(parser)
    command.add_output(parser, "keep the figures (bench.json, bench.txt) there")


def _run_bench(args: argparse.Namespace) -> None:
    from onesigma.lab.bench.contenders import PASSES, SIZES, make_subject
    from onesigma.lab.bench.measurement import Bench
    from onesigma.lab.bench.result import show_result

    passes, sizes = ((30,), (5,)) if args.quick else (PASSES, SIZES)
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
    print("preparing the contenders", file=sys.stderr)
    with TemporaryDirectory() as folder:
        measured = make_subject(
            args.model, Path(folder), passes=passes, sizes=sizes, fitted=not args.quick
        )
        bench = Bench(
            *(measured.name, measured.contenders, measured.inputs, _plan_bench(args)),
            say=lambda words: print(words, file=sys.stderr),
            progress=lambda rounds: command.show_progress(rounds, "rounds"),
        )
        result = bench.run(lambda result: _keep(result, args.output))
    if args.json:
        command.print_json(result.to_dict())
    else:
        print(show_result(result))


def _plan_bench(args: argparse.Namespace) -> Plan:
    from onesigma.lab.bench.measurement import Plan
    from onesigma.lab.bench.runtimes import FROM_ONNX, RUNTIMES

    quick = args.quick
    runtimes: tuple[str, ...] = ("eager", "onnxruntime") if quick else RUNTIMES
    if args.model and args.model[0].suffix == ".onnx":
        runtimes = tuple(name for name in runtimes if name in FROM_ONNX)
        if strange := set(args.runtimes or ()) - set(FROM_ONNX):
            known, unknown = ", ".join(FROM_ONNX), ", ".join(sorted(strange))
            raise InputError(f"An .onnx file runs in {known}, not in {unknown}.")
    return Plan(
        runtimes=tuple(args.runtimes or runtimes),
        threads=tuple(args.threads or ((1,) if quick else (1, 2))),
        batches=tuple(args.batch or ((1,) if quick else (1, 8, 64))),
        repeats=50 if quick else 200,
        seconds=1.0 if quick else 3.0,
        processes=1 if quick else 3,
    )


def _keep(result: Result, folder: Path | None) -> None:
    """After every part, so that an interrupted run leaves what it found."""
    if folder is None:
        return
    from onesigma.lab.bench.result import show_result
    from onesigma.storage.atomic import replacing

    figures = json.dumps(result.to_dict(), indent=2)
    texts = {"bench.json": figures, "bench.txt": f"{show_result(result)}\n"}
    for name, text in texts.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _add_reproduce_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", choices=("hhar", "opportunity", "speech", "all"))
    command.add_switch(parser, "--quick", "under three minutes, for a look, not for figures")
    what = "the folder of the datasets; default: $ONESIGMA_DATA, else ../shared/data"
    command.add_file(parser, "--data-root", what=what, metavar="FOLDER")
    command.add_output(parser, "where networks, tables, figures and the report go", default="out")
    parser.add_argument("--trials", type=int, help="default 3; with --quick 1")
    parser.add_argument("--seed", type=int, default=0, help="of noise and masks; default 0")
    command.add_json(parser)


def _run_reproduce(args: argparse.Namespace) -> None:
    from onesigma.lab.paper.reproduce import TASKS, reproduce
    from onesigma.lab.paper.tables import show_tables

    report, results = reproduce(
        TASKS if args.task == "all" else (args.task,),
        args.data_root,
        args.output,
        quick=args.quick,
        trials=args.trials,
        seed=args.seed,
    )
    if args.json:
        command.print_json({"report": str(report), "results": results})
        return
    print("\n\n".join(show_tables(result) for result in results))
    print(f"Report: {report}", file=sys.stderr)


DEMO = Command(
    "demo",
    "a real smartwatch network against Monte Carlo",
    _add_demo_options,
    _run_demo,
    description="Fit the shipped network of a smartwatch. Show accuracy, uncertainty and time "
    "beside Monte Carlo, and what happens on foreign and on broken input.",
    example="onesigma demo --quick",
)
BENCH = Command(
    "bench",
    "what the uncertainty costs: time, memory, energy",
    _add_bench_options,
    _run_bench,
    description="Time the plain network, one pass in every form, Monte Carlo, ensembles and "
    "ApDeepSense in turn, in every runtime that is installed; then file sizes, memory, and "
    "energy where the machine has a meter. Compare only ratios within one run.",
    example="onesigma bench --quick\n  onesigma bench model.safetensors --batch 1 --threads 1"
    "\n  onesigma bench plain.onnx converted.onnx --runtimes onnxruntime",
)
REPRODUCE = Command(
    "reproduce",
    "the paper's tables and figures, from data to report",
    _add_reproduce_options,
    _run_reproduce,
    description="Train, compare ten methods on clean, noisy and foreign input, and write tables "
    "(CSV, JSON, text), figures and one HTML report. Give the same command again to continue an "
    "interrupted run.",
    example="onesigma reproduce speech --quick --data-root DATA --output out",
)
