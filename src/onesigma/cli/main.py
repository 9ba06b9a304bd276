"""The command line. Thin: each command has a file in ``commands/`` and calls the library."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr

from onesigma.cli import (
    audit,
    bench,
    completion,
    convert,
    demo,
    inspect,
    live,
    predict,
    report,
    reproduce,
)
from onesigma.cli.options import add_everywhere
from onesigma.errors import OnesigmaError
from onesigma.version import __version__

COMMANDS = (demo, convert, inspect, predict, live, audit, report, bench, reproduce, completion)
EXTRAS = ("bench", "demo", "predict", "reproduce")  # commands with packages of their own
_EXAMPLES = """examples:
  onesigma demo                 convert the shipped smartwatch network, compare, draw
  onesigma demo --train         train that network anew first (about a minute)
  onesigma demo --json          the figures for a script
  onesigma inspect model.onnx   its nodes, and where dropout may be named
  onesigma convert model.onnx -o out.onnx --dropout 'every Relu=0.5'
                                the same file, which also says how sure it is
  onesigma predict model.safetensors watch.csv --window 250 -o answers.csv
                                answers and their doubt for a file of data
  onesigma live --demo --open   watch a stream go through a model, in the browser
  onesigma audit model.safetensors inputs.npy --output out
                                hold a saved model against Monte Carlo, layer by layer
  onesigma report model.safetensors inputs.npy --labels-file labels.npy
                                one page about your model on your data
  onesigma bench --quick        what the doubt costs: time, memory, energy
  onesigma reproduce speech --quick --data-root DATA
                                the paper's tables and figures, as a quick look

exit codes:
  0  done        1  an error, explained on standard error
  2  wrong usage 130  interrupted (Ctrl-C); nothing half-written is left behind
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 1 after an error that was explained, 130 if interrupted.

    Wrong usage exits with 2, by argparse.
    """
    options = _parser().parse_args(arguments)
    try:
        with _silence() if options.quiet else nullcontext():
            options.run(options)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("onesigma: interrupted; nothing half-written was left behind.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # a reader such as `head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for Python flushes once more at its end
        return 1
    except Exception as error:
        if options.debug:
            raise
        print(f"onesigma: {_explained(error, options.command)}", file=sys.stderr)
        return 1
    return 0


def _explained(error: Exception, command: str) -> str:
    if isinstance(error, OnesigmaError | OSError):  # of these: a full disk, a folder not writable
        return str(error)
    if isinstance(error, ModuleNotFoundError) and not _is_own(error.name):
        what = f"'onesigma[{command}]'" if command in EXTRAS else error.name
        return f"this command needs {error.name}. Install it with: pip install {what}"
    return (
        f"{type(error).__name__}: {error}\nThis should not happen: please report it with what "
        "`onesigma --debug` prints for the same command."
    )


def _is_own(module: str | None) -> bool:
    return module is None or module.split(".")[0] == "onesigma"


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing on standard error, from processes that are started here neither."""
    with open(os.devnull, "w") as nothing, redirect_stderr(nothing):
        kept = os.dup(2)
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onesigma",
        description="A trained network in, its answer and its doubt out, from one forward pass.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"onesigma {__version__}")
    add_everywhere(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    for each in COMMANDS:
        each.add(commands)
    return parser
