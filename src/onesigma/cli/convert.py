"""``onesigma inspect`` and ``onesigma convert``: a network in, one that also says how sure out."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesigma import command
from onesigma.command import Command
from onesigma.errors import InputError, NoRandomness

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.converted import Converted
    from onesigma.exporters.c import Generated
    from onesigma.exporters.onnx.file import Exported
    from onesigma.storage.opening import Network


def _add_inspect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the .onnx file")
    command.add_dropout(parser)
    command.add_json(parser)


def _run_inspect(args: argparse.Namespace) -> None:
    from onesigma.importers.foreign_files import refuse_foreign
    from onesigma.importers.onnx.inspection import inspect_onnx

    refuse_foreign(args.model)
    inspection = inspect_onnx(args.model, dict(args.dropout), dict(args.channel_dropout))
    if args.json:
        command.print_json(inspection.to_dict())
    else:
        print(inspection)


def _add_convert_options(parser: argparse.ArgumentParser) -> None:
    command.add_model(parser)
    what = "what to write: .onnx for any runtime, .safetensors for onesigma.load, a folder for C"
    command.add_file(parser, "-o", "--output", what=what, required=True)
    what = "of one sample, where the model does not say so: package.module:factory and .pt"
    parser.add_argument("--input-shape", type=command.parse_shape, metavar="C,L", help=what)
    what = "standard deviation of the input noise, one number or one per channel"
    parser.add_argument("--input-std", type=float, nargs="+", metavar="STD", help=what)
    parser.add_argument("--draws", type=int, help="points the head averages over; default 64")
    what = "fit gains on a batch of real inputs without labels, one .npy per input"
    command.add_file(parser, "--calibrate", what=what, nargs="+", metavar="NPY")
    parser.add_argument("--opset", type=int, help="of an .onnx file; default 18")
    what = (
        "of an .onnx file: the model's own output too, under its own name (of PyTorch: plain); "
        "this costs a second pass through the layers after the first dropout; default: for a model "
        "from ONNX"
    )
    parser.add_argument("--keep-output", action=argparse.BooleanOptionalAction, help=what)
    command.add_json(parser)


def _run_convert(args: argparse.Namespace) -> None:
    from onesigma.storage.model_file import save

    _check_output(args)
    network = command.open_network_from(args, no_dropout=bool(args.input_std))
    converted = _convert(network, args)
    if args.output.suffix == ".safetensors":
        save(converted, args.output)
        facts: dict[str, Any] = {"path": str(args.output)}
        words = f"{args.output}: {args.output.stat().st_size / 1e3:.0f} kB"
    else:
        exported = _export(converted, network, args)
        facts, words = asdict(exported) | {"path": str(args.output)}, str(exported)
    if args.json:
        command.print_json(facts | {"report": converted.report.to_dict()})
    elif not args.quiet:
        print(f"{converted.report}\n\n{words}")


def _check_output(args: argparse.Namespace) -> None:
    """Refuse what cannot be written before the work of making it."""
    from onesigma.exporters.onnx.file import OPSET, check_target

    if os.path.realpath(args.output) == os.path.realpath(args.model):
        raise InputError(f"{args.output} is the model itself: give the new file another name.")
    idle = args.opset is not None or args.keep_output is not None
    if idle and args.output.suffix != ".onnx":
        raise InputError(f"{args.output}: --opset and --keep-output are for .onnx files.")
    if args.output.suffix != ".safetensors":
        check_target(args.output, OPSET if args.opset is None else args.opset)
    elif not args.output.parent.is_dir():
        raise InputError(f"{args.output.parent} is not a folder: create it first.")


def _convert(network: Network, args: argparse.Namespace) -> Converted:
    import torch

    from onesigma.calibration.choice import calibrate
    from onesigma.conversion import convert
    from onesigma.report import SILENT
    from onesigma.tables.files import read_array

    options = {"task": args.task, "draws": args.draws}
    given = {name: value for name, value in options.items() if value is not None}
    if args.input_std:
        std = torch.tensor(args.input_std)
        given["input_std"] = std.squeeze() if len(std) == 1 else std
    real = tuple(torch.from_numpy(read_array(path)) for path in args.calibrate or ())
    converted = convert(network.module, _choose_examples(network, args, real), **given)
    if converted.report.is_silent and not args.input_std:
        raise NoRandomness(f"{args.model}: {SILENT.removeprefix('WARNING: ')}")
    return calibrate(converted, real, progress=command.show_progress) if real else converted


def _choose_examples(
    network: Network, args: argparse.Namespace, real: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    import torch

    if network.examples is not None:
        if args.input_shape is not None:
            raise InputError(f"{args.model} says itself what it takes: omit --input-shape.")
        return network.examples
    if real:
        return real
    if args.input_shape is None:
        raise InputError(f"{args.model} does not say what it takes: give --input-shape C,L.")
    return (torch.randn(2, *args.input_shape, generator=torch.Generator().manual_seed(0)),)


def _export(
    converted: Converted, network: Network, args: argparse.Namespace
) -> Exported | Generated:
    from onesigma.exporters.targets import export
    from onesigma.importers.onnx.module import OnnxModule

    model, keep = network.module, args.keep_output
    given: dict[str, Any] = {"opset": args.opset}
    if isinstance(model, OnnxModule):
        given["example_input"] = model.examples(model.input_shapes[0][0] or 3)
        if args.output.suffix:  # C has no names to keep
            given["input_names"] = model.input_names
            given["plain"] = None if keep is False else (model.output_name, model)
    elif keep:
        given["plain"] = ("plain", model)
    return export(converted, args.output, **given)


INSPECT = Command(
    "inspect",
    "the nodes of an ONNX file, their rules and dropout",
    _add_inspect_options,
    _run_inspect,
    example="onesigma inspect model.onnx --dropout 'every Relu=0.5'",
)
CONVERT = Command(
    "convert",
    "advanced: the paper's pass, without learning from inputs",
    _add_convert_options,
    _run_convert,
    description="Read a network, carry the uncertainty of its dropout through it, and write it "
    "with the outputs mean and var and, of a classifier, probs, entropy, aleatoric and epistemic; "
    "an ONNX file keeps its own input and output names. What is read from ONNX is compared with "
    "ONNX Runtime, what is written with PyTorch; nothing is written if either differs.",
    example="onesigma convert model.onnx -o out.onnx --dropout 'every Relu=0.5'"
    "\n  onesigma convert my.nets:make_cnn --weights cnn.pt --input-shape 6,128 -o out.onnx",
)
