"""``onesigma fit`` and ``onesigma export``: from a trained network to what is shipped."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onesigma import command
from onesigma.command import Command
from onesigma.errors import DataError, InputError
from onesigma.storage.opening import SAVED
from onesigma.tables.files import column_names, read_array
from onesigma.tables.labels import read_groups, read_labels
from onesigma.tables.windows import Scaling, slide, thin

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.converted import Converted

_MOST = 5000  # unlabelled samples, from all over the files; fit learns from fewer
_OF_DATA = "data"


def _add_fit_options(parser: argparse.ArgumentParser) -> None:
    command.add_model(parser)
    what = "inputs like those it will see, some hundreds or more; several files may follow"
    command.add_file(parser, "--unlabelled", what=what, nargs="+", required=True)
    what = "inputs that training has not seen, and a .csv or .npy file of their classes or values"
    command.add_file(parser, "--labelled", what=what, nargs=2, metavar=("FILE", "LABELS"))
    what = "whose each labelled input is, as .csv or .npy: --risk then holds for new people"
    command.add_file(parser, "--groups", what=what)
    what = (
        "with --labelled: the share of wrong answers to accept, and the model says when to act; or "
        "of values outside of the interval, for a regression"
    )
    parser.add_argument("--risk", type=float, help=what)
    what = "the .safetensors file to write"
    command.add_file(parser, "-o", "--output", what=what, required=True)
    command.add_class_names(parser)
    command.add_json(parser, "print the report as JSON")
    what = "close enough is: as this many Monte-Carlo passes; default 30"
    parser.add_argument("--worth", **command.COUNT, default=30, help=what)
    what = "at most so many times the cost of the plain network"
    parser.add_argument("--budget", type=float, metavar="X", help=what)
    what = "keeps what is finished; after an interruption, the same command goes on from there"
    command.add_file(parser, "--resume", what=what, metavar="FOLDER")
    group = command.add_cutting(parser, "; or data, for those of the unlabelled inputs")
    what = "names of the channels; default: those of the columns"
    group.add_argument("--channels", **command.NAMES, help=what)
    group.add_argument("--units", **command.NAMES, help="of the channels")
    group.add_argument("--rate", type=float, metavar="HZ", help="instants per second")
    parser.set_defaults(batch=256)


def _run_fit(args: argparse.Namespace) -> None:
    import torch

    from onesigma.fitting import fit
    from onesigma.storage.model_file import save

    _check_fit(args)
    network = command.open_network_from(args)
    shape = None if network.examples is None else (None, *network.examples[0].shape[1:])
    command.complete(args, args.unlabelled[0], shape)
    read = partial(command.read_cut, args, input_shape=shape)
    inputs, *_ = thin(chain.from_iterable(map(read, args.unlabelled)), _MOST)
    class_names = command.read_class_names(args) or ()
    labelled, groups = _read_labelled(args, shape, class_names)
    made = fit(
        network.module,
        torch.from_numpy(inputs),
        task=args.task or "classification",
        worth=args.worth,
        budget=args.budget,
        labelled=labelled,
        groups=groups,
        risk=args.risk,
        class_names=class_names,
        channels=args.channels or _channels(args, inputs),
        units=args.units,
        rate=args.rate,
        scaling=find_scaling(args, inputs),
        resume=args.resume,
        progress=lambda steps: command.show_progress(steps, "fit"),
    )
    save(made, args.output)
    _tell(made, args)


def _check_fit(args: argparse.Namespace) -> None:
    """Refuse what cannot be done before the work."""
    if args.output.suffix != ".safetensors":
        raise InputError(
            f"{args.output}: fit writes a .safetensors file; onesigma export then makes ONNX or C "
            "of it."
        )
    if os.path.realpath(args.output) in map(os.path.realpath, (args.model, args.weights or "")):
        raise InputError(f"{args.output} is the model itself: give the new file another name.")
    if not args.output.parent.is_dir():
        raise InputError(f"{args.output.parent} is not a folder: create it first.")
    if args.labelled is None and (args.risk is not None or args.groups is not None):
        raise InputError("--risk and --groups need --labelled FILE LABELS.")


def _read_labelled(
    args: argparse.Namespace, shape: tuple[int | None, ...] | None, class_names: tuple[str, ...]
) -> tuple[tuple[Tensor, Tensor] | None, Tensor | None]:
    """The labelled inputs with their classes, and their groups, if there are any."""
    import torch

    if args.labelled is None:
        return None, None
    data, file = args.labelled
    x = np.concatenate([*command.read_cut(args, data, shape)])
    kept, labels = _for_each(read_labels(file, class_names), file, len(x), args)
    groups = None
    if args.groups is not None:
        same, numbers = _for_each(read_groups(args.groups), args.groups, len(x), args)
        kept &= same
        groups = torch.from_numpy(numbers[kept])
    return (torch.from_numpy(x[kept]), torch.from_numpy(labels[kept])), groups


def _for_each(
    values: npt.NDArray[Any], file: Path, count: int, args: argparse.Namespace
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """A value for each sample, and which samples have one; of rows, those that all say the same."""
    if len(values) == count:
        return np.ones(count, bool), values
    if args.window is not None and values.ndim == 1:
        rows = slide(values[None], args.window, args.hop or args.window)[:, 0]
        if len(rows) == count:
            return (rows == rows[:, :1]).all(1), rows[:, 0]
    each = "sample" if args.window is None else "window, or for each row of the recording"
    raise DataError(
        f"{file.name} has {len(values)} values for {count} samples of {args.labelled[0].name}: "
        f"give one for each {each}."
    )


def _channels(args: argparse.Namespace, inputs: npt.NDArray[Any]) -> list[str] | None:
    """The names of the columns, where a window has a channel for each."""
    if args.window is None:
        return None
    names = column_names(args.unlabelled[0], header=args.header)
    if args.columns is not None:
        names = args.columns if {*args.columns} <= {*names} else []
    of_one = inputs.shape[2:] if args.channels_last else inputs.shape[1:-1]
    return names if len(names) == int(np.prod(of_one)) else None


def find_scaling(
    args: argparse.Namespace, inputs: npt.NDArray[Any]
) -> tuple[Tensor, Tensor] | None:
    """What ``--standardise`` says, by a file or of these inputs, in the shape of the channels."""
    import torch

    if args.standardise is None:
        return None
    last = inputs.ndim - 1
    windows = {last} if args.channels_last else {*range(1, last)}
    own = windows if args.window is not None else {1}
    shape = [n if axis in own else 1 for axis, n in enumerate(inputs.shape)][1:]
    if str(args.standardise) == _OF_DATA:
        others = tuple({*range(inputs.ndim)} - own)
        mean, std = inputs.mean(others, dtype=float), inputs.std(others, dtype=float)
    else:
        scaling = Scaling.read(args.standardise)
        mean, std = scaling.mean, scaling.std
    if mean.size not in (1, int(np.prod(shape))):
        raise DataError(
            f"{args.standardise} has {mean.size} means, but an input has {int(np.prod(shape))} "
            "channels: one number is needed, or one for each."
        )
    both = [np.float32(part).reshape(shape if mean.size > 1 else ()) for part in (mean, std)]
    return torch.from_numpy(np.asarray(both[0])), torch.from_numpy(np.asarray(both[1]))


def _tell(made: Converted, args: argparse.Namespace) -> None:
    rule = made.abstain
    if args.json:
        told = None if rule is None else rule.to_dict()
        report = made.report.to_dict()
        command.print_json({"path": str(args.output), "abstain": told, "report": report})
    elif not args.quiet:
        print(f"{made.report}\n")
        print(f"{args.output}: {args.output.stat().st_size / 1e3:.0f} kB")
        for promise in (rule, made.settings.interval):
            if promise is not None:
                print(promise)
        next_steps = ("predict {} DATA", "report {} DATA", "export {} -o model.onnx")
        lines = (f"onesigma {step.format(args.output)}" for step in next_steps)
        print("\n  ".join(["\nNext:", *lines]), file=sys.stderr)


def _add_export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help=SAVED)
    what = "what to write: an .onnx file for any runtime, or a folder for C"
    command.add_file(parser, "-o", "--output", what=what, required=True)
    what = "layers in eight bits, with ranges measured on --example-input; says what that costs"
    command.add_switch(parser, "--int8", what)
    what = "some hundred real inputs as .npy, to compare with PyTorch and for --int8"
    command.add_file(parser, "--example-input", what=what)
    command.add_json(parser)


def _run_export(args: argparse.Namespace) -> None:
    import torch

    from onesigma.exporters.targets import export
    from onesigma.storage.model_file import load

    if args.model.suffix != ".safetensors":
        raise InputError(f"{args.model}: export takes {SAVED}.")
    made, given = load(args.model), args.example_input
    examples = None if given is None else torch.from_numpy(read_array(given))
    written = export(made, args.output, example_input=examples, int8=args.int8)
    if args.json:
        command.print_json(asdict(written) | {"path": str(args.output)})
    else:
        print(written)


FIT = Command(
    "fit",
    "a trained network into one that also says how sure it is",
    _add_fit_options,
    _run_fit,
    description="Ask Monte Carlo of the network about your inputs, and keep the cheapest form that "
    "is as close as --worth passes. It learns which inputs are familiar and, from labels, when to "
    "act. Class names, scaling, window, channels and rule go into the file, so that predict, "
    "report, live and export need nothing else.",
    example="onesigma fit my.nets:make_cnn --weights w.pt --unlabelled x.npy -o model.safetensors"
    "\n  onesigma fit my.nets:make_cnn --weights w.pt --unlabelled x.npy --labelled xv.npy yv.csv"
    "\n    --groups people.csv --class-names walk,run,rest --risk 0.05 -o model.safetensors"
    "\n  onesigma fit net.onnx --dropout 'every Relu=0.5' --unlabelled watch.csv --window 250"
    "\n    -o model.safetensors",
)
EXPORT = Command(
    "export",
    "a fitted model as ONNX, or as C for a microcontroller",
    _add_export_options,
    _run_export,
    description="The file is compared with PyTorch; nothing is written if they differ.",
    example="onesigma export model.safetensors -o model.onnx"
    "\n  onesigma export model.safetensors -o firmware/ --int8 --example-input x.npy",
)
