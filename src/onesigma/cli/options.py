"""Options and helpers that several commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from onesigma.errors import InputError, ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.converted import Converted
    from onesigma.storage.opening import Opened

Step = TypeVar("Step")
Options: TypeAlias = argparse.ArgumentParser | argparse._ArgumentGroup
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def command(
    commands: Commands, name: str, summary: str, *, description: str = "", example: str = ""
) -> argparse.ArgumentParser:
    """A parser of its own for the command, whose help ends with an example."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=_wrapped(description or f"{summary[0].upper()}{summary[1:]}."),
        epilog=f"example:\n  {example}" if example else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_everywhere(parser, argparse.SUPPRESS)
    return parser


def _wrapped(text: str) -> str:
    """Prose at the width of a terminal; a paragraph with line breaks of its own keeps them."""
    return "\n\n".join(each if "\n" in each else fill(each, 79) for each in text.split("\n\n"))


def add_everywhere(parser: argparse.ArgumentParser, default: Any = False) -> None:
    """What stands before the command as well as after; SUPPRESS keeps what stood before."""
    switch: Any = {"action": "store_true", "default": default}
    parser.add_argument("-q", "--quiet", **switch, help="no progress and no prose")
    parser.add_argument("--debug", **switch, help="show tracebacks of errors")


def add_json(parser: argparse.ArgumentParser, what: str = "print the figures as JSON") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def add_output(parser: argparse.ArgumentParser, what: str, default: Path | None = None) -> None:
    tail = "" if default is None else f"; default: {default}"
    parser.add_argument(
        "--output", type=Path, default=default, metavar="FOLDER", help=f"{what}{tail}"
    )


def add_dropout(parser: Options) -> None:
    repeatable: Any = {"type": _rate, "action": "append", "default": [], "metavar": "NODE=RATE"}
    parser.add_argument(
        "--dropout",
        **repeatable,
        help="where the network had dropout in training: after the node of that name, after those "
        "that fit a pattern ('block*/relu=0.2'), or after all of an op ('every Relu=0.5'); "
        "repeatable",
    )
    parser.add_argument(
        "--channel-dropout", **repeatable, help="the same for dropout of whole channels"
    )


def _rate(text: str) -> tuple[str, float]:
    node, _, rate = text.rpartition("=")
    try:
        if node:
            return node, float(rate)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not NODE=RATE, as in relu_1=0.5")


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2))


def bar(steps: Iterable[Step], label: str = "Monte Carlo") -> Iterable[Step]:
    """A progress bar on a terminal, if tqdm is there."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return steps
    shown: Iterable[Step] = tqdm(steps, desc=label, disable=not sys.stderr.isatty())
    return shown


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL and the options that say how it is opened; ``opened`` opens it."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a .safetensors file of onesigma.save, an .onnx file (of onesigma.export, or any "
        "other with --dropout), or package.module:factory with --weights; with --trust also a "
        "pickled .pt or an exported .pt2 file",
    )
    group = parser.add_argument_group("how the model is opened")
    group.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="weights of package.module:factory, .safetensors or .pt; default: the factory's own",
    )
    group.add_argument(
        "--trust",
        action="store_true",
        help="allow files to be unpickled, which runs whatever code is in them",
    )
    add_dropout(group)
    add_method(group)


def add_method(parser: Options) -> None:
    """How a network is converted; None stands for the default of ``convert``."""
    parser.add_argument(
        "--task",
        choices=("classification", "regression"),
        help="what the network does; default classification",
    )
    parser.add_argument(
        "--mean",
        choices=("matched", "frozen"),
        help="as in the paper, or the network's own answer bit for bit; default matched",
    )
    parser.add_argument(
        "--variance",
        choices=("full", "lowrank"),
        help="as in the paper, or at a fraction of the cost; default full",
    )


def opened(options: argparse.Namespace, example: Tensor | None = None) -> Opened:
    """The model of ``add_model``; ``example`` is a real batch, which a factory needs."""
    from onesigma.storage.opening import open_model

    method = {name: getattr(options, name) for name in ("task", "mean", "variance")}
    given = {name: value for name, value in method.items() if value is not None}
    model = open_model(
        options.model,
        weights=options.weights,
        example=example,
        trust=options.trust,
        dropout=dict(options.dropout) or None,
        channel_dropout=dict(options.channel_dropout) or None,
        **given,
    )
    if given and (model.converted is None or options.model.lower().endswith(".safetensors")):
        idle = ", ".join(f"--{name}" for name in given)
        raise InputError(f"{options.model} is converted already: {idle} would change nothing.")
    return model


def add_samples(parser: argparse.ArgumentParser) -> None:
    """DATA and the options that say how samples are cut from it; ``opened_with`` reads them."""
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="a .csv, .npy, .parquet or .wav file of any size: every row (entry, sound) is a "
        "sample or, with --window, an instant of a recording",
    )
    group = parser.add_argument_group("how samples are cut")
    add_channels(group)
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line of a CSV names the columns; default: if it holds no number",
    )
    whole: Any = {"type": positive, "metavar": "N"}
    group.add_argument("--window", **whole, help="cut windows of N rows")
    group.add_argument("--hop", **whole, help="rows from window to window; default: as --window")
    group.add_argument(
        "--shape",
        type=shape,
        metavar="C,L",
        help="of one sample; default: what the model takes, where rows or windows fit it",
    )
    group.add_argument("--batch", **whole, default=64, help="samples at a time; default 64")


def add_channels(parser: Options) -> None:
    """Which columns of a file or a stream are the channels, and what is done to them."""
    parser.add_argument(
        "--columns",
        type=lambda text: text.split(","),
        metavar="A,B,…",
        help="which columns, in which order: names, numbers from 0, 2-7 for several; default: all",
    )
    parser.add_argument(
        "--channels-last",
        action="store_true",
        help="windows (instants, channels), not (channels, instants)",
    )
    parser.add_argument(
        "--standardise",
        type=Path,
        metavar="FILE",
        help='(x − mean) / std by a JSON file {"mean": …, "std": …}, one number or one per channel',
    )


def shape(text: str) -> tuple[int, ...]:
    return tuple(map(positive, text.split(",")))


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def opened_with(options: argparse.Namespace) -> tuple[Opened, Iterator[Tensor]]:
    """The model of ``add_model``, and the samples of ``add_samples`` in the shape that it takes."""
    from onesigma.tables.samples import fitted, samples
    from onesigma.tables.scaling import Scaling

    read = samples(
        options.data,
        window=options.window,
        hop=options.hop,
        columns=options.columns,
        batch=options.batch,
        shape=options.shape,
        scaling=None if options.standardise is None else Scaling.read(options.standardise),
        channels_last=options.channels_last,
        header=options.header,
    )
    first = next(read)  # a factory says nothing of its inputs, the data does
    model = opened(options, first)
    return model, (fitted(x, model.input_shape, options.data.name) for x in chain([first], read))


def add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        type=positive,
        default=1000,
        metavar="N",
        help="samples to use at most, from all over the file; default 1000",
    )


def converted_with(options: argparse.Namespace) -> tuple[Opened, Converted, Tensor, int]:
    """The model, converted here or before, and every k-th sample, as ``add_limit`` says; and k."""
    from onesigma.tables.thinned import thinned

    model, samples = opened_with(options)
    if model.converted is None:
        raise ModelError(
            f"{model.name} holds the one-pass network alone, without the one to sample from. Give "
            "what it was exported from: a .safetensors file of onesigma.save, or the original "
            "model."
        )
    return model, model.converted, *thinned(samples, options.limit)


def add_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--labels", metavar="A,B,…", help="names of the classes, or a text file with one per line"
    )


def labels_of(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The names that ``add_labels`` was given, if any."""
    if options.labels is None:
        return None
    path, text = Path(options.labels), options.labels
    listed = path.read_text(encoding="utf-8").splitlines() if path.is_file() else text.split(",")
    return tuple(name.strip() for name in listed if name.strip())
