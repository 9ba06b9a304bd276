"""``onesigma audit``: a saved model against Monte Carlo, layer by layer."""

from __future__ import annotations

import argparse
import sys

from onesigma.cli.options import (
    Commands,
    add_json,
    add_limit,
    add_model,
    add_output,
    add_samples,
    bar,
    command,
    converted_with,
    positive,
    print_json,
)


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "audit",
        "hold a converted model against Monte Carlo",
        description="How close one pass is to Monte-Carlo dropout on real inputs, layer by layer "
        "and overall. Labels are not needed.",
        example="onesigma audit model.safetensors inputs.npy --output out"
        "\n  onesigma audit my.nets:make_cnn --weights cnn.pt watch.csv --window 250 --limit 100",
    )
    add_model(parser)
    add_samples(parser)
    add_limit(parser)
    parser.add_argument(
        "--passes", type=positive, default=200, metavar="N", help="of Monte Carlo; default 200"
    )
    add_json(parser)
    add_output(parser, "also draw a picture there")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from onesigma.calibration.comparison import audit

    # All at once, which is why there is a limit: every layer's moments of every sample are kept.
    _, converted, inputs, _ = converted_with(options)
    result = audit(converted, inputs, passes=options.passes, progress=bar)
    if options.json:
        print_json(result.to_dict())
    else:
        print(result)
    if options.output is not None:
        from onesigma.pages.figures import draw_audit

        options.output.mkdir(parents=True, exist_ok=True)
        picture = options.output / "audit.png"
        draw_audit(result.layers, picture, mean_noise=result.mean_noise)
        print(f"Picture: {picture}", file=sys.stderr)
