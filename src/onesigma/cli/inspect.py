"""``onesigma inspect``: the nodes of an ONNX file, their rules, where dropout is or may be."""

from __future__ import annotations

import argparse
from pathlib import Path

from onesigma.cli.options import Commands, add_dropout, add_json, command, print_json


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "inspect",
        "the nodes of an ONNX file, their rules and dropout",
        example="onesigma inspect model.onnx --dropout 'every Relu=0.5'",
    )
    parser.add_argument("model", type=Path, help="the .onnx file")
    add_dropout(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from onesigma.importers.onnx.inspection import inspect_onnx

    inspection = inspect_onnx(options.model, dict(options.dropout), dict(options.channel_dropout))
    if options.json:
        print_json(inspection.to_dict())
    else:
        print(inspection)
