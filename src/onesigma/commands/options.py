"""Options and helpers that several commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def command(
    commands: Commands, name: str, summary: str, *, description: str = "", example: str = ""
) -> argparse.ArgumentParser:
    """A parser of its own for the command, whose help ends with an example."""
    return commands.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}" if example else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def add_output(parser: argparse.ArgumentParser, what: str, default: Path | None = None) -> None:
    tail = "" if default is None else f"; default: {default}"
    parser.add_argument(
        "--output", type=Path, default=default, metavar="FOLDER", help=f"{what}{tail}"
    )


def add_dropout(parser: argparse.ArgumentParser) -> None:
    repeatable: Any = {"type": _rate, "action": "append", "default": [], "metavar": "NODE=RATE"}
    parser.add_argument(
        "--dropout",
        **repeatable,
        help="where the network had dropout in training: after the node of that name, after those "
        "that fit a pattern ('block*/relu=0.2'), or after all of an op ('every Relu=0.5'); "
        "repeatable",
    )
    parser.add_argument(
        "--channel-dropout", **repeatable, help="the same for dropout of whole channels"
    )


def _rate(text: str) -> tuple[str, float]:
    node, _, rate = text.rpartition("=")
    try:
        if node:
            return node, float(rate)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not NODE=RATE, as in relu_1=0.5")


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2))


def bar(steps: Iterable[int], label: str = "Monte Carlo") -> Iterable[int]:
    """A progress bar on a terminal, if tqdm is there."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return steps
    shown: Iterable[int] = tqdm(steps, desc=label, disable=not sys.stderr.isatty())
    return shown
