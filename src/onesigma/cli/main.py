"""The command line: reads the words, calls a command, explains what went wrong."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import cache

from onesigma.cli.convert import CONVERT, INSPECT
from onesigma.cli.evaluate import AUDIT, REPORT
from onesigma.cli.fit import EXPORT, FIT
from onesigma.cli.live import LIVE
from onesigma.cli.predict import PREDICT
from onesigma.command import Command, add_everywhere
from onesigma.errors import OnesigmaError, install
from onesigma.text_table import printable
from onesigma.version import __version__

EXTRAS = ("bench", "demo", "predict", "reproduce")  # commands with packages of their own
_EXIT_CODES = """exit codes:
  0  done        1  an error, explained on standard error
  2  wrong usage 130  interrupted (Ctrl-C); nothing half-written is left behind
"""


@cache
def commands() -> dict[str, Command]:
    """All commands by name; the laboratory has some of its own."""
    from onesigma.lab.commands import BENCH, DEMO, REPRODUCE

    order = (FIT, PREDICT, REPORT, LIVE, EXPORT, AUDIT, INSPECT, CONVERT, BENCH, DEMO, REPRODUCE)
    return {command.name: command for command in order}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 1 after an error that was explained, 130 if interrupted.

    Wrong usage exits with 2, by argparse.
    """
    args = build_parser().parse_args(arguments)
    try:
        with _silence() if args.quiet else nullcontext():
            commands()[args.command].run(args)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("onesigma: interrupted; nothing half-written was left behind.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # a reader such as `head` has seen enough, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # because Python flushes once more at its end
    except Exception as error:
        if args.debug:
            raise
        print(printable(f"onesigma: {_explain(error, args.command)}"), file=sys.stderr)
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    examples = "\n  ".join(command.example.splitlines()[0] for command in commands().values())
    parser = argparse.ArgumentParser(
        prog="onesigma",
        description="A trained network in, its answer and its uncertainty out, from one pass.",
        epilog=f"examples:\n  {examples}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"onesigma {__version__}")
    add_everywhere(parser)
    parsers = parser.add_subparsers(dest="command", required=True)
    for command in commands().values():
        command.add_to(parsers)
    return parser


def _explain(error: Exception, command: str) -> str:
    if isinstance(error, OnesigmaError | OSError):  # OSError: a full disk, a read-only folder
        return str(error)
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and missing.split(".")[0] != "onesigma":
        way = install(command) if command in EXTRAS else f"pip install {missing}"
        return f"this command needs {missing}: {way}"
    return (
        f"{type(error).__name__}: {error}\nThis should not happen: please report it with what "
        "`onesigma --debug` prints for the same command."
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing on standard error, also not from processes that are started here."""
    with open(os.devnull, "w") as nothing, redirect_stderr(nothing):
        kept = os.dup(2)
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
