"""The command line. Thin: each command parses its options and calls the library."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from onesigma.errors import OnesigmaError
from onesigma.version import __version__

_EXAMPLES = """examples:
  onesigma demo                 convert the shipped smartwatch network, compare, draw
  onesigma demo --train         train that network anew first (about a minute)
  onesigma demo --json          the figures for a script
  onesigma audit model.safetensors inputs.npy --output out
                                hold a saved model against Monte Carlo, layer by layer
  onesigma reproduce speech --quick --data-root DATA
                                the paper's tables and figures, as a quick look
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, or 1 after an error that was explained; 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except OnesigmaError as error:
        if options.debug:
            raise
        print(f"onesigma: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if options.debug or error.name is None or error.name.startswith("onesigma"):
            raise
        print(
            f"onesigma: this command needs {error.name}. "
            f"Install it with: pip install 'onesigma[{options.command}]'",
            file=sys.stderr,
        )
        return 1
    except OSError as error:  # a full disk, a folder that may not be written to
        if options.debug:
            raise
        print(f"onesigma: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("onesigma: interrupted; nothing half-written was left behind.", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onesigma",
        description="A trained network in, its answer and its doubt out, from one forward pass.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"onesigma {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="a real smartwatch network against Monte Carlo")
    demo.add_argument("--train", action="store_true", help="train the network anew first")
    demo.add_argument("--quick", action="store_true", help="fewer timing repeats")
    demo.add_argument("--json", action="store_true", help="print the figures as JSON")
    demo.add_argument(
        "--output",
        type=Path,
        default=Path("out"),
        metavar="FOLDER",
        help="where the picture (and, with --train, the weights) go; default: out",
    )
    demo.set_defaults(run=_demo)
    audit = commands.add_parser("audit", help="hold a converted model against Monte Carlo")
    audit.add_argument("model", type=Path, help="what onesigma.save wrote")
    audit.add_argument("inputs", type=Path, help="a batch of real inputs, .npy, no labels")
    audit.add_argument("--passes", type=int, default=200, help="Monte-Carlo passes; default 200")
    audit.add_argument("--json", action="store_true", help="print the figures as JSON")
    audit.add_argument("--output", type=Path, metavar="FOLDER", help="also draw a picture there")
    audit.set_defaults(run=_audit)
    _add_reproduce(commands)
    return parser


def _add_reproduce(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="the paper's tables and figures, from data to report",
        description="Train, compare ten methods on clean, noisy and foreign input, and write "
        "tables (CSV, JSON, text), figures and one HTML report. An interrupted run goes on where "
        "it stood when the same command is given again.",
        epilog="example:\n  onesigma reproduce speech --quick --data-root DATA --output out",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reproduce.add_argument("task", choices=("hhar", "opportunity", "speech", "all"))
    reproduce.add_argument(
        "--quick", action="store_true", help="under three minutes, for a look, not for figures"
    )
    reproduce.add_argument(
        "--data-root",
        type=Path,
        metavar="FOLDER",
        help="the folder of the datasets; default: $ONESIGMA_DATA, else ../shared/data",
    )
    reproduce.add_argument(
        "--output",
        type=Path,
        default=Path("out"),
        metavar="FOLDER",
        help="where networks, tables, figures and the report go; default: out",
    )
    reproduce.add_argument("--trials", type=int, help="default 3; with --quick 1")
    reproduce.add_argument("--seed", type=int, default=0, help="of noise and masks; default 0")
    reproduce.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> None:
    from onesigma.experiments.reproduce import TASKS, reproduce
    from onesigma.experiments.tables import text

    report, results = reproduce(
        TASKS if options.task == "all" else (options.task,),
        options.data_root,
        options.output,
        quick=options.quick,
        trials=options.trials,
        seed=options.seed,
    )
    print("\n\n".join(text(result) for result in results))
    print(f"Report: {report}")


def _audit(options: argparse.Namespace) -> None:
    from onesigma.data.arrays import read_batch
    from onesigma.fidelity.audit import audit
    from onesigma.saving import load

    converted = load(options.model)
    result = audit(converted, read_batch(options.inputs), passes=options.passes, progress=_bar)
    print(json.dumps(result.to_dict(), indent=2) if options.json else result)
    if options.output is not None:
        from onesigma.plots.audit import layer_spread

        options.output.mkdir(parents=True, exist_ok=True)
        picture = options.output / "audit.png"
        layer_spread(result.layers, picture, mean_noise=result.mean_noise)
        print(f"Picture: {picture}", file=sys.stderr)


def _bar(steps: Iterable[int]) -> Iterable[int]:
    """A progress bar on a terminal, if tqdm is there."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return steps
    bar: Iterable[int] = tqdm(steps, desc="Monte Carlo", disable=not sys.stderr.isatty())
    return bar


def _demo(options: argparse.Namespace) -> None:
    # Imported here: the demo's extras (matplotlib, tqdm) are not needed by the other commands.
    from onesigma.demo import checkpoint, run, train

    if options.train:
        options.output.mkdir(parents=True, exist_ok=True)
        trained = train.train(path=options.output / "watch.safetensors")
    else:
        trained = checkpoint.load()
    result, converted = run.run(trained, repeats=10 if options.quick else 50)
    picture = run.draw(result, options.output)
    if options.json:
        print(json.dumps(result.to_dict(), indent=2))
        return
    print(converted.report, end="\n\n")
    print(run.show(result), end="\n\n")
    print(f"Picture: {picture}")
