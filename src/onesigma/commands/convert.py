"""``onesigma convert``: an ONNX file in, an ONNX file that also says how sure it is out."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesigma.commands.options import Commands, add_dropout, add_json, bar, command, print_json

if TYPE_CHECKING:
    from onesigma.converted import Converted
    from onesigma.frontends.onnx_module import OnnxModule


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "convert",
        "an ONNX file into one that also says how sure it is",
        description="Read an ONNX classifier, carry the doubt of its dropout through it, and write "
        "it with its own input and output names and the outputs probs, entropy, mean, var, "
        "aleatoric and epistemic. What is read is compared with ONNX Runtime, what is written with "
        "PyTorch; nothing is written if either differs.",
        example="onesigma inspect model.onnx\n"
        "  onesigma convert model.onnx -o out.onnx --dropout 'every Relu=0.5'",
    )
    parser.add_argument("model", type=Path, help="the .onnx file")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the .onnx file to write"
    )
    add_dropout(parser)
    parser.add_argument(
        "--input-std",
        type=float,
        nargs="+",
        metavar="STD",
        help="standard deviation of the input noise, one number or one per channel",
    )
    _add_method(parser)
    parser.add_argument("--opset", type=int, default=18, help="of the new file; default 18")
    parser.add_argument(
        "--keep-output",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the model's own output too, under its own name; that costs a second pass through "
        "the layers after the first dropout, and nothing with --mean frozen",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def _add_method(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", choices=("classification", "regression"))
    parser.add_argument("--draws", type=int, help="points the head averages over; default 64")
    parser.add_argument("--mean", choices=("matched", "frozen"), help="default matched")
    parser.add_argument("--variance", choices=("full", "lowrank"), help="default full")
    parser.add_argument(
        "--calibrate",
        type=Path,
        nargs="+",
        metavar="NPY",
        help="fit gains on a batch of real inputs without labels, one .npy per input",
    )


def run(options: argparse.Namespace) -> None:
    from onesigma.errors import InputError
    from onesigma.frontends.onnx import read_onnx
    from onesigma.targets.onnx import check_target, export

    if options.output.resolve() == options.model.resolve():
        raise InputError(f"{options.output} is the model itself: give the new file another name.")
    check_target(options.output, options.opset)
    model = read_onnx(
        options.model,
        dropout=dict(options.dropout) if options.dropout or options.input_std else None,
        channel_dropout=dict(options.channel_dropout),
    )
    converted = _converted(model, options)
    exported = export(
        converted,
        options.output,
        opset=options.opset,
        example_input=model.examples(model.input_shapes[0][0] or 3),
        input_names=model.input_names,
        plain=(model.output_name, model) if options.keep_output else None,
    )
    if options.json:
        content = asdict(exported) | {"path": str(exported.path)}
        print_json(content | {"report": converted.report.to_dict()})
    else:
        print(converted.report, end="\n\n")
        print(exported)


def _converted(model: OnnxModule, options: argparse.Namespace) -> Converted:
    import torch

    from onesigma.convert import convert
    from onesigma.data.arrays import read_batch
    from onesigma.fidelity.calibrate import calibrate

    named = {"task": options.task, "draws": options.draws, "mean": options.mean}
    given: dict[str, Any] = {**named, "variance": options.variance}
    if options.input_std:
        std = torch.tensor(options.input_std)
        given["input_std"] = std.squeeze() if len(std) == 1 else std
    examples = model.examples(model.input_shapes[0][0] or 2)
    converted = convert(model, examples, **{k: v for k, v in given.items() if v is not None})
    if options.calibrate is None:
        return converted
    return calibrate(converted, *map(read_batch, options.calibrate), progress=bar)
