"""The command line. Thin: each command has a file in ``commands/`` and calls the library."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from onesigma.commands import audit, bench, convert, demo, inspect, reproduce
from onesigma.errors import OnesigmaError
from onesigma.version import __version__

COMMANDS = (demo, convert, inspect, audit, bench, reproduce)
_EXAMPLES = """examples:
  onesigma demo                 convert the shipped smartwatch network, compare, draw
  onesigma demo --train         train that network anew first (about a minute)
  onesigma demo --json          the figures for a script
  onesigma inspect model.onnx   its nodes, and where dropout may be named
  onesigma convert model.onnx -o out.onnx --dropout 'every Relu=0.5'
                                the same file, which also says how sure it is
  onesigma audit model.safetensors inputs.npy --output out
                                hold a saved model against Monte Carlo, layer by layer
  onesigma bench --quick        what the doubt costs: time, memory, energy
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
    for each in COMMANDS:
        each.add(commands)
    return parser
