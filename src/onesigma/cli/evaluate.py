"""``onesigma audit`` and ``onesigma report``: how good a model is on a user's data."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onesigma import command
from onesigma.command import Command
from onesigma.errors import InputError
from onesigma.storage.opening import SAVED, Opened
from onesigma.tables.labels import read_labels
from onesigma.tables.windows import thin

if TYPE_CHECKING:
    from torch import Tensor


def _add_audit_options(parser: argparse.ArgumentParser) -> None:
    command.add_model(parser, SAVED)
    command.add_samples(parser)
    command.add_sampling(parser, passes=200)
    command.add_json(parser)
    command.add_output(parser, "also draw a picture there")


def _run_audit(args: argparse.Namespace) -> None:
    from onesigma.calibration.comparison import audit

    # All at once, which is why there is a limit: every layer's moments of every sample are kept.
    _, converted, inputs, *_ = command.open_with_inputs(args)
    result = audit(converted, inputs, passes=args.passes, progress=command.show_progress)
    if args.json:
        command.print_json(result.to_dict())
    else:
        print(result)
    if args.output is not None:
        from onesigma.lab.figures import draw_audit

        args.output.mkdir(parents=True, exist_ok=True)
        picture = args.output / "audit.png"
        draw_audit(result.layers, picture, mean_noise=result.mean_noise)
        print(f"Picture: {picture}", file=sys.stderr)


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    command.add_model(parser, SAVED)
    command.add_samples(parser)
    what = "a .csv or .npy file of each sample's true class, by number or name, or its true value"
    command.add_file(parser, "--labels", what=what)
    what = "samples that the model should not know: another sensor, other movements, noise"
    command.add_file(parser, "--foreign", what=what)
    command.add_class_names(parser)
    command.add_sampling(parser, passes=100)
    what = (
        "with --labels: the share of wrong answers to accept, from which the threshold to abstain "
        "follows; default: the rule in the model, or else 0.05"
    )
    parser.add_argument("--risk", type=float, help=what)
    what = "the page to write; default: report.html"
    command.add_file(parser, "-o", "--output", what=what, default="report.html")
    command.add_json(parser, "print the figures as JSON, too")


def _run_report(args: argparse.Namespace) -> None:
    import torch

    from onesigma.lab.bench import report_cost
    from onesigma.pages.report.findings import gather
    from onesigma.pages.report.write import write

    if args.risk is not None and args.labels is None:
        raise InputError("--risk needs --labels: a threshold is found from true classes.")
    given = command.read_class_names(args)
    model, converted, inputs, step, count = command.open_with_inputs(args)
    class_names, labels = given or model.class_names, None
    if args.labels is not None:
        labels = torch.from_numpy(read_labels(args.labels, class_names or ()))
        if len(labels) != count:
            raise InputError(
                f"{args.labels}: {len(labels)} labels for {count} samples of {args.data}. Give one "
                "for each."
            )
    found = gather(
        Path(model.name).name,
        converted,
        inputs,
        None if labels is None else labels[::step],
        step=step,
        class_names=class_names,
        passes=args.passes,
        risk=args.risk,
        foreign=_read_foreign(args, model),
        progress=command.show_progress,
    )
    timing = partial(command.show_progress, label="timing")
    cost = report_cost.measure_cost(converted, found.inputs, timing)
    write(found, args.output, cost=cost, command=shlex.join(["onesigma", *sys.argv[1:]]))
    if args.json:
        told = cost if isinstance(cost, str) else asdict(cost)
        command.print_json(found.to_dict() | {"cost": told})
    print(f"Report: {args.output}", file=sys.stderr)


def _read_foreign(args: argparse.Namespace, model: Opened) -> Tensor | None:
    """The foreign samples, cut and scaled as the others are."""
    import torch

    if args.foreign is None:
        return None
    scaling = command.read_scaling(args)
    samples = command.read_cut(args, args.foreign, model.input_shape, scaling=scaling)
    return torch.from_numpy(thin(samples, args.limit)[0])


AUDIT = Command(
    "audit",
    "hold a converted model against Monte Carlo",
    _add_audit_options,
    _run_audit,
    description="How close one pass is to Monte-Carlo dropout on real inputs, layer by layer "
    "and overall. Labels are not needed.",
    example="onesigma audit model.safetensors inputs.npy --output out"
    "\n  onesigma audit my.nets:make_cnn --weights cnn.pt watch.csv --window 250 --limit 100",
)
REPORT = Command(
    "report",
    "one HTML page about your model on your data",
    _add_report_options,
    _run_report,
    description="A verdict in a sentence and what to do next; how good answers and uncertainty are "
    "(with labels), class by class; which inputs the model does not know; which are most and least "
    "certain; what it costs; how faithful it is to Monte Carlo: one HTML file that needs nothing "
    "else.",
    example="onesigma report model.safetensors inputs.npy --labels labels.npy --foreign other.npy"
    "\n  onesigma report my.nets:make_cnn --weights cnn.pt watch.csv --window 250",
)
