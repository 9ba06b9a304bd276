"""``onesigma report``: one page about your model on your data."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from onesigma.cli.options import (
    Commands,
    add_json,
    add_labels,
    add_limit,
    add_model,
    add_samples,
    bar,
    command,
    converted_with,
    labels_of,
    positive,
    print_json,
)


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "report",
        "one HTML page about your model on your data",
        description="What was converted, how faithful it is to Monte Carlo, how good answers and "
        "uncertainty are (with labels), which inputs are most and least certain, what it costs: "
        "one HTML file that needs nothing else.",
        example="onesigma report model.safetensors inputs.npy --labels-file labels.npy"
        "\n  onesigma report my.nets:make_cnn --weights cnn.pt watch.csv --window 250",
    )
    add_model(parser)
    add_samples(parser)
    parser.add_argument(
        "--labels-file",
        type=Path,
        metavar="NPY",
        help="the number of the true class of each sample (regression: its true value)",
    )
    add_labels(parser)
    add_limit(parser)
    parser.add_argument(
        "--passes", type=positive, default=100, metavar="N", help="of Monte Carlo; default 100"
    )
    parser.add_argument(
        "--risk",
        type=float,
        help="share of wrong answers to accept, for the threshold at which to abstain; default: "
        "the rule in the model, or else 0.05",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page to write; default: report.html",
    )
    add_json(parser, "print the figures as JSON, too")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from onesigma.lab.bench import report_cost
    from onesigma.pages.report.findings import gather
    from onesigma.pages.report.write import write
    from onesigma.tables.arrays import read_batch

    labels = None if options.labels_file is None else read_batch(options.labels_file)
    names = labels_of(options)
    model, converted, inputs, step = converted_with(options)
    found = gather(
        Path(model.name).name,
        converted,
        inputs,
        None if labels is None else labels[::step],
        step=step,
        class_names=names or model.labels,
        passes=options.passes,
        risk=options.risk,
        progress=bar,
    )
    cost = report_cost.measure_cost(converted, found.inputs, partial(bar, label="timing"))
    write(found, options.output, cost=cost, command=shlex.join(["onesigma", *sys.argv[1:]]))
    if options.json:
        print_json(found.to_dict() | {"cost": cost if isinstance(cost, str) else asdict(cost)})
    print(f"Report: {options.output}", file=sys.stderr)
