"""What several commands share: their options, and what is made of them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from onesigma.errors import DataError, ModelError
from onesigma.runtime.contract import Contract
from onesigma.runtime.model import BATCH
from onesigma.storage.opening import (
    NETWORK,
    SAVED,
    Array,
    Network,
    Opened,
    is_converted,
    open_model,
    open_network,
)
from onesigma.tables.files import column_names, read_rows
from onesigma.tables.windows import SAMPLES, Scaling, find_window, fit_to_model, read_samples, thin

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.converted import Converted

Step = TypeVar("Step")
Parser: TypeAlias = argparse.ArgumentParser | argparse._ArgumentGroup


@dataclass(frozen=True)
class Command:
    """A command: what its help says, which options it takes, what it does."""

    name: str
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    example: str
    description: str = ""

    def add_to(self, commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        description = self.description or f"{self.summary[0].upper()}{self.summary[1:]}."
        parser = commands.add_parser(
            self.name,
            help=self.summary,
            description=_wrap(description),
            epilog=f"example:\n  {self.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_options(parser)
        add_everywhere(parser, argparse.SUPPRESS)


def _wrap(text: str) -> str:
    """Prose at the width of a terminal; a paragraph with line breaks of its own keeps them."""
    return "\n\n".join(each if "\n" in each else fill(each, 79) for each in text.split("\n\n"))


def add_everywhere(parser: argparse.ArgumentParser, default: Any = False) -> None:
    """Options that may stand before the command or after; SUPPRESS keeps what stood before."""
    switch: Any = {"action": "store_true", "default": default}
    parser.add_argument("-q", "--quiet", **switch, help="no progress and no prose")
    parser.add_argument("--debug", **switch, help="show tracebacks of errors")


def add_switch(parser: Parser, name: str, what: str) -> None:
    parser.add_argument(name, action="store_true", help=what)


def add_file(parser: Parser, *names: str, what: str, **settings: Any) -> None:
    """An option that names a file, unless ``settings`` say otherwise."""
    given: dict[str, Any] = {"metavar": "FILE", "type": Path} | settings
    parser.add_argument(*names, help=what, **given)


def add_json(parser: argparse.ArgumentParser, what: str = "print the figures as JSON") -> None:
    add_switch(parser, "--json", what)


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2))


def show_progress(
    steps: Iterable[Step], label: str = "Monte Carlo", total: int | None = None
) -> Iterable[Step]:
    """A progress bar on a terminal, if tqdm is installed."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return steps
    hidden = not sys.stderr.isatty()
    shown: Iterable[Step] = tqdm(steps, desc=label, total=total, disable=hidden)
    return shown


def add_output(parser: argparse.ArgumentParser, what: str, default: str | None = None) -> None:
    """The option --output: a folder to write to."""
    what = what if default is None else f"{what}; default: {default}"
    folder: Any = {"metavar": "FOLDER", "type": _parse_folder}
    add_file(parser, "-o", "--output", what=what, default=default, **folder)


def _parse_folder(text: str) -> Path:
    if os.path.exists(text) and not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no folder")
    return Path(text)


def add_dropout(parser: Parser) -> None:
    repeatable: Any = {"type": _parse_rate, "action": "append", "default": []}
    parser.add_argument(
        "--dropout",
        **repeatable,
        metavar="NODE=RATE",
        help="of an .onnx file, where the network had dropout in training: after the node of that "
        "name, after those that fit a pattern ('block*/relu=0.2'), or after all of an op ('every "
        "Relu=0.5'); repeatable",
    )
    what = "the same for dropout of whole channels"
    parser.add_argument("--channel-dropout", **repeatable, metavar="NODE=RATE", help=what)


def _parse_rate(text: str) -> tuple[str, float]:
    node, _, rate = text.rpartition("=")
    try:
        if node:
            return node, float(rate)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not NODE=RATE, as in relu_1=0.5")


def add_model(parser: argparse.ArgumentParser, *converted: str) -> None:
    """MODEL: one of these converted ones, or a network and how to open and convert it."""
    parser.add_argument("model", metavar="MODEL", help="; or ".join([*converted, NETWORK]))
    group = parser.add_argument_group("for a network that is not converted yet")
    what = "trained weights of package.module:factory, .safetensors or .pt"
    add_file(group, "--weights", what=what)
    add_switch(group, "--trust", "allow files to be unpickled, which runs whatever code is in them")
    add_dropout(group)
    what = "what the network does; default classification"
    group.add_argument("--task", choices=("classification", "regression"), help=what)


def open_model_from(args: argparse.Namespace, example: Array | None = None) -> Opened:
    """The model of ``add_model``; ``example`` is a real batch, which a factory needs."""
    return open_model(
        args.model,
        weights=args.weights,
        example=example,
        trust=args.trust,
        dropout=dict(args.dropout),
        channel_dropout=dict(args.channel_dropout),
        task=args.task,
        check=not getattr(args, "no_check", False),
    )


def open_network_from(args: argparse.Namespace, *, no_dropout: bool = False) -> Network:
    """The network of ``add_model``, not converted; ``no_dropout`` allows one without."""
    return open_network(
        args.model,
        weights=args.weights,
        trust=args.trust,
        dropout=dict(args.dropout) if args.dropout or no_dropout else None,
        channel_dropout=dict(args.channel_dropout),
    )


def add_samples(parser: argparse.ArgumentParser, more: str = "", **settings: Any) -> None:
    """DATA and how samples are cut from it; ``open_with_samples`` reads them."""
    what = (
        "a .csv, .npy, .parquet or .wav file of any size: every row (entry, sound) is a sample or "
        "an instant of a recording"
    )
    add_file(parser, "data", what=what + more, metavar="DATA", **settings)
    group = add_cutting(parser)
    what = f"samples at a time; default {SAMPLES}, of recordings {BATCH}"
    group.add_argument("--batch", **COUNT, help=what)


def add_cutting(parser: argparse.ArgumentParser, scaling: str = "") -> Parser:
    """How samples are cut from the rows of a file; ``read_cut`` does so."""
    group = parser.add_argument_group("how samples are cut")
    add_channels(group, scaling)
    what = "whether the first line of a CSV names the columns; default: if it holds no number"
    group.add_argument("--header", action=argparse.BooleanOptionalAction, help=what)
    what = "cut windows of N rows; default: what the model takes, where rows are its channels"
    group.add_argument("--window", **COUNT, help=what)
    group.add_argument("--hop", **COUNT, help="rows from window to window; default: as --window")
    what = "of one sample; default: what the model takes, where rows or windows fit it"
    group.add_argument("--shape", type=parse_shape, metavar="C,L", help=what)
    return group


def add_channels(parser: Parser, scaling: str = "") -> None:
    """Which columns of a file or a stream are the channels, and what is done to them."""
    what = "which columns, in which order: names, numbers from 0, 2-7 for several; default: all"
    parser.add_argument("--columns", **NAMES, help=what)
    what = "windows (instants, channels), not (channels, instants)"
    add_switch(parser, "--channels-last", what)
    what = '(x − mean) / std by a JSON file {"mean": …, "std": …}, one number or one per channel'
    add_file(parser, "--standardise", "--standardize", what=what + scaling)


def read_scaling(args: argparse.Namespace) -> Scaling | None:
    """What ``--standardise`` names, if anything."""
    return None if args.standardise is None else Scaling.read(args.standardise)


def parse_shape(text: str) -> tuple[int, ...]:
    return tuple(map(parse_count, text.split(",")))


def parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


# How options of one kind are read: a whole number, several names.
COUNT: Any = {"type": parse_count, "metavar": "N"}
NAMES: Any = {"type": lambda text: text.split(","), "metavar": "A,B,…"}


def open_with_samples(args: argparse.Namespace) -> tuple[Opened, Iterator[Array]]:
    """The model of ``add_model``, and the samples of ``add_samples`` in the shape it takes.

    What the model knows and the user does not say is added to ``args``: window and columns.
    """
    if is_converted(args.model):
        model = open_model_from(args)
        complete(args, args.data, model.input_shape, model.contract)
        return model, read_cut(args, args.data, model.input_shape, scaling=read_scaling(args))
    samples = read_cut(args, args.data, None, scaling=read_scaling(args))
    first = next(samples)  # a factory does not say what it takes, but the data does
    model, file = open_model_from(args, first), args.data.name
    return model, (fit_to_model(x, model.input_shape, file) for x in chain([first], samples))


def complete(
    args: argparse.Namespace,
    path: Path,
    input_shape: Sequence[int | None] | None,
    contract: Contract | None = None,
) -> None:
    """Columns by the names of the model's channels, and windows of the length that it takes."""
    if args.columns is None:
        args.columns = find_columns(path, contract, header=args.header)
    if args.window is not None or args.shape is not None or path.suffix.lower() == ".wav":
        return
    rows = next(read_rows(path, args.columns, header=args.header), np.empty(0))
    width = rows.shape[1] if rows.ndim == 2 else 0
    found = find_window(width, input_shape, channels_last=args.channels_last)
    if found is not None:
        args.window, args.channels_last = found


def find_columns(
    path: Path, contract: Contract | None, *, header: bool | None = None
) -> list[str] | None:
    """The columns that are called like the model's channels; None if some of these have none."""
    known = () if contract is None else contract.channels
    return [*known] if known and {*known} <= {*column_names(path, header=header)} else None


def read_cut(
    args: argparse.Namespace,
    path: Path,
    input_shape: Sequence[int | None] | None,
    *,
    scaling: Scaling | None = None,
) -> Iterator[Array]:
    """The samples of a file as ``add_cutting`` says, in the shape that the model takes."""
    samples = read_samples(
        path,
        window=args.window,
        hop=args.hop,
        columns=args.columns,
        batch=args.batch or SAMPLES,
        shape=args.shape,
        scaling=scaling,
        channels_last=args.channels_last,
        header=args.header,
    )
    return (fit_to_model(x, input_shape, path.name) for x in samples)


def add_sampling(parser: argparse.ArgumentParser, passes: int) -> None:
    """How much is compared with Monte Carlo; ``open_with_inputs`` reads so many samples."""
    what = "samples to use at most, from all over the file; default 1000"
    parser.add_argument("--limit", **COUNT, default=1000, help=what)
    what = f"passes of Monte Carlo; default {passes}"
    parser.add_argument("--passes", **COUNT, default=passes, help=what)


def open_with_inputs(args: argparse.Namespace) -> tuple[Opened, Converted, Tensor, int, int]:
    """The model, its converted network, every k-th sample, k, and how many there are in all."""
    import torch

    model, samples = open_with_samples(args)
    if model.converted is None:
        raise ModelError(
            f"{model.name} holds the one-pass network alone, without the one to sample from. Give "
            f"what it was exported from: {SAVED}, or the original model."
        )
    inputs, step, count = thin(samples, args.limit)
    return model, model.converted, torch.from_numpy(inputs), step, count


def add_class_names(parser: argparse.ArgumentParser) -> None:
    what = "names of the classes, or a text file with one per line"
    parser.add_argument("--class-names", metavar="A,B,…|FILE", help=what)


def read_class_names(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The names that ``--class-names`` gives, if any."""
    if args.class_names is None:
        return None
    path, text = Path(args.class_names), args.class_names
    try:
        names = path.read_text(encoding="utf-8").splitlines() if path.is_file() else text.split(",")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8: {error}.") from error
    return tuple(name.strip() for name in names if name.strip())
