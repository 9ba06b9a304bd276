"""``onesigma demo``: a real smartwatch network, converted and compared."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onesigma.cli.options import Commands, add_json, add_output, command, print_json


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "demo",
        "a real smartwatch network against Monte Carlo",
        example="onesigma demo --train",
    )
    parser.add_argument("--train", action="store_true", help="train the network anew first")
    parser.add_argument("--quick", action="store_true", help="fewer timing repeats")
    add_json(parser)
    add_output(parser, "where the picture (and, with --train, the weights) go", default=Path("out"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    # Imported here: the demo's extras (matplotlib, tqdm) are not needed by the other commands.
    from onesigma.lab.demo import checkpoint, figures

    if options.train:
        options.output.mkdir(parents=True, exist_ok=True)
        trained = checkpoint.train(path=options.output / "watch.safetensors")
    else:
        trained = checkpoint.load()
    result, converted = figures.run(trained, repeats=10 if options.quick else 50)
    picture = figures.draw(result, options.output)
    if options.json:
        print_json(result.to_dict())
        return
    if not options.quiet:
        print(converted.report, end="\n\n")
    print(figures.show(result))
    print(f"\nPicture: {picture}", file=sys.stderr)
