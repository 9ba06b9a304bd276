"""``onesigma audit``: a saved model against Monte Carlo, layer by layer."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onesigma.commands.options import Commands, add_json, add_output, bar, command, print_json


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "audit",
        "hold a converted model against Monte Carlo",
        example="onesigma audit model.safetensors inputs.npy --output out",
    )
    parser.add_argument("model", type=Path, help="what onesigma.save wrote")
    parser.add_argument("inputs", type=Path, help="a batch of real inputs, .npy, no labels")
    parser.add_argument("--passes", type=int, default=200, help="Monte-Carlo passes; default 200")
    add_json(parser)
    add_output(parser, "also draw a picture there")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from onesigma.data.arrays import read_batch
    from onesigma.fidelity.audit import audit
    from onesigma.saving import load

    converted = load(options.model)
    result = audit(converted, read_batch(options.inputs), passes=options.passes, progress=bar)
    if options.json:
        print_json(result.to_dict())
    else:
        print(result)
    if options.output is not None:
        from onesigma.plots.audit import layer_spread

        options.output.mkdir(parents=True, exist_ok=True)
        picture = options.output / "audit.png"
        layer_spread(result.layers, picture, mean_noise=result.mean_noise)
        print(f"Picture: {picture}", file=sys.stderr)
