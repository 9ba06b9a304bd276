"""``onesigma reproduce``: the paper's tables and figures, from data to report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onesigma.cli.options import Commands, add_json, add_output, command, print_json


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "reproduce",
        "the paper's tables and figures, from data to report",
        description="Train, compare ten methods on clean, noisy and foreign input, and write "
        "tables (CSV, JSON, text), figures and one HTML report. An interrupted run goes on where "
        "it stood when the same command is given again.",
        example="onesigma reproduce speech --quick --data-root DATA --output out",
    )
    parser.add_argument("task", choices=("hhar", "opportunity", "speech", "all"))
    parser.add_argument(
        "--quick", action="store_true", help="under three minutes, for a look, not for figures"
    )
    parser.add_argument(
        "--data-root",
        type=Path,
        metavar="FOLDER",
        help="the folder of the datasets; default: $ONESIGMA_DATA, else ../shared/data",
    )
    add_output(parser, "where networks, tables, figures and the report go", default=Path("out"))
    parser.add_argument("--trials", type=int, help="default 3; with --quick 1")
    parser.add_argument("--seed", type=int, default=0, help="of noise and masks; default 0")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from onesigma.lab.paper.reproduce import TASKS, reproduce
    from onesigma.lab.paper.tables import show_tables

    report, results = reproduce(
        TASKS if options.task == "all" else (options.task,),
        options.data_root,
        options.output,
        quick=options.quick,
        trials=options.trials,
        seed=options.seed,
    )
    if options.json:
        print_json({"report": str(report), "results": results})
        return
    print("\n\n".join(show_tables(result) for result in results))
    print(f"Report: {report}", file=sys.stderr)
