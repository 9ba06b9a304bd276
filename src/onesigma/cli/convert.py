"""``onesigma convert``: a network in, a file that also says how sure it is out."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesigma.cli.options import (
    Commands,
    add_json,
    add_model,
    bar,
    command,
    print_json,
    shape,
)
from onesigma.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.converted import Converted
    from onesigma.exporters.c import Generated
    from onesigma.exporters.onnx.file import Exported
    from onesigma.storage.opening import Network


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "convert",
        "a network into one that also says how sure it is",
        description="Read a classifier, carry the doubt of its dropout through it, and write it "
        "with the outputs probs, entropy, mean, var, aleatoric and epistemic; an ONNX file keeps "
        "its own input and output names. What is read from ONNX is compared with ONNX Runtime, "
        "what is written with PyTorch; nothing is written if either differs.",
        example="onesigma inspect model.onnx\n"
        "  onesigma convert model.onnx -o out.onnx --dropout 'every Relu=0.5'\n"
        "  onesigma convert my.nets:make_cnn --weights cnn.pt --input-shape 6,128 -o out.onnx",
    )
    add_model(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="what to write: .onnx for any runtime, .safetensors for onesigma.load",
    )
    parser.add_argument(
        "--input-shape",
        type=shape,
        metavar="C,L",
        help="of one sample, where the model does not say so: package.module:factory and .pt",
    )
    _add_method(parser)
    parser.add_argument("--opset", type=int, default=18, help="of the new file; default 18")
    parser.add_argument(
        "--keep-output",
        action=argparse.BooleanOptionalAction,
        help="the model's own output too, under its own name (of PyTorch: plain); that costs a "
        "second pass through the layers after the first dropout, and nothing with --mean frozen; "
        "default: for a model from ONNX",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def _add_method(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input-std",
        type=float,
        nargs="+",
        metavar="STD",
        help="standard deviation of the input noise, one number or one per channel",
    )
    parser.add_argument("--draws", type=int, help="points the head averages over; default 64")
    parser.add_argument(
        "--calibrate",
        type=Path,
        nargs="+",
        metavar="NPY",
        help="fit gains on a batch of real inputs without labels, one .npy per input",
    )


def run(options: argparse.Namespace) -> None:
    from onesigma.storage.model_file import save
    from onesigma.storage.opening import open_network

    _check_output(options)
    network = open_network(
        options.model,
        weights=options.weights,
        trust=options.trust,
        dropout=dict(options.dropout) if options.dropout or options.input_std else None,
        channel_dropout=dict(options.channel_dropout),
    )
    converted = _converted(network, options)
    if options.output.suffix == ".safetensors":
        save(converted, options.output)
        facts: dict[str, Any] = {"path": str(options.output)}
        words = f"{options.output}: {options.output.stat().st_size / 1e3:.0f} kB"
    else:
        exported = _exported(converted, network, options)
        facts, words = asdict(exported) | {"path": str(options.output)}, str(exported)
    if options.json:
        print_json(facts | {"report": converted.report.to_dict()})
    elif not options.quiet:
        print(f"{converted.report}\n\n{words}")


def _check_output(options: argparse.Namespace) -> None:
    """Refuse what could not be written, before the work of making it."""
    from onesigma.exporters.onnx.file import check_target

    if options.output.resolve() == Path(options.model).resolve():
        raise InputError(f"{options.output} is the model itself: give the new file another name.")
    if options.output.suffix != ".safetensors":
        check_target(options.output, options.opset)
    elif not options.output.parent.is_dir():
        raise InputError(f"{options.output.parent} is not a folder: create it first.")


def _converted(network: Network, options: argparse.Namespace) -> Converted:
    import torch

    from onesigma.calibration.choice import calibrate
    from onesigma.conversion import convert
    from onesigma.tables.arrays import read_batch

    named = {"task": options.task, "draws": options.draws, "mean": options.mean}
    given: dict[str, Any] = {**named, "variance": options.variance}
    if options.input_std:
        std = torch.tensor(options.input_std)
        given["input_std"] = std.squeeze() if len(std) == 1 else std
    real = tuple(map(read_batch, options.calibrate or ()))
    examples = _examples(network, options, real)
    converted = convert(
        network.module, examples, **{k: v for k, v in given.items() if v is not None}
    )
    return calibrate(converted, real, progress=bar) if real else converted


def _examples(
    network: Network, options: argparse.Namespace, real: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    import torch

    if network.examples is not None:
        if options.input_shape is not None:
            raise InputError(f"{options.model} says itself what it takes: no --input-shape.")
        return network.examples
    if real:
        return real
    if options.input_shape is None:
        raise InputError(f"{options.model} does not say what it takes: give --input-shape C,L.")
    return (torch.randn(2, *options.input_shape, generator=torch.Generator().manual_seed(0)),)


def _exported(
    converted: Converted, network: Network, options: argparse.Namespace
) -> Exported | Generated:
    from onesigma.exporters.targets import export
    from onesigma.importers.onnx.module import OnnxModule

    model, keep = network.module, options.keep_output
    if not isinstance(model, OnnxModule):
        return export(
            converted,
            options.output,
            opset=options.opset,
            plain=("plain", model) if keep else None,
        )
    return export(
        converted,
        options.output,
        opset=options.opset,
        example_input=model.examples(model.input_shapes[0][0] or 3),
        input_names=model.input_names,
        plain=None if keep is False else (model.output_name, model),
    )
