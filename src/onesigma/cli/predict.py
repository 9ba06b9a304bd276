"""``onesigma predict``: answers and their uncertainty for a file of data."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from onesigma import command
from onesigma.command import Command
from onesigma.errors import FileError, InputError
from onesigma.runtime import Prediction
from onesigma.storage.opening import EXPORTED, SAVED
from onesigma.tables.answers import Table, table_writer, tabulate


def _add_options(parser: argparse.ArgumentParser) -> None:
    command.add_model(parser, SAVED, EXPORTED)
    what = "take a file of onesigma.export that another tool has changed"
    command.add_switch(parser, "--no-check", what)
    command.add_samples(parser)
    what = ".csv or .parquet; default: CSV to standard output"
    command.add_file(parser, "-o", "--output", what=what)
    command.add_class_names(parser)
    command.add_switch(parser, "--probs", "the probability of every class, a column for each")
    rule = parser.add_mutually_exclusive_group()
    rule.add_argument(
        "--abstain-above", type=float, metavar="X", help="abstain where the entropy is above X"
    )
    what = "a JSON file of AbstainRule.to_dict(); default: the rule in the model, if any"
    command.add_file(rule, "--abstain-rule", what=what)
    command.add_json(parser, "print a summary as JSON; without -o, the summary alone")


def _run(args: argparse.Namespace) -> None:
    same = args.output is not None and os.path.realpath(args.output) == os.path.realpath(args.data)
    if same:
        raise InputError(f"{args.output} is the data itself: give the answers another name.")
    summary = _Summary()
    unwanted = args.json and args.output is None
    with nullcontext() if unwanted else table_writer(args.output) as write:
        for table in command.show_progress(_answer(args), "batches"):
            summary.add(table)
            if write is not None:
                write(table)
    if args.json:
        output = args.output and str(args.output)
        names = {"model": args.model, "data": str(args.data)}
        command.print_json(names | summary.to_dict() | {"output": output})
    elif args.output is not None:
        print(f"{summary} → {args.output}", file=sys.stderr)


def _answer(args: argparse.Namespace) -> Iterator[Table]:
    """The table of each batch, with the place of every sample in the file."""
    decide, class_names = _read_rule(args), command.read_class_names(args)
    model, samples = command.open_with_samples(args)
    place = "index" if args.window is None else "start"
    step = 1 if args.window is None else args.hop or args.window
    first = 0
    for x in samples:
        prediction = model.predict(x)
        if decide is not None:
            prediction = replace(prediction, act=decide(prediction))
        names = class_names or model.class_names
        table = tabulate(prediction, names, probs=args.probs, contract=model.contract)
        yield {place: [step * i for i in range(first, first + len(x))]} | table
        first += len(x)


def _read_rule(args: argparse.Namespace) -> Callable[[Any], Any] | None:
    """Where to act, as the options say; None leaves it to the model."""
    if args.abstain_above is not None:

        def is_sure(prediction: Prediction) -> Any:
            if prediction.entropy is None:
                raise InputError("--abstain-above needs classes: this model does regression.")
            return prediction.entropy <= args.abstain_above

        return is_sure
    if args.abstain_rule is None:
        return None
    from onesigma.decide.threshold import AbstainRule

    try:  # it compares arrays of any kind
        return AbstainRule.from_dict(json.loads(args.abstain_rule.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(
            f"{args.abstain_rule} is no abstain rule ({error}). Write one with "
            "json.dump(rule.to_dict(), file), from what onesigma.threshold returned."
        ) from error


@dataclass
class _Summary:
    """What the table says in a few figures."""

    samples: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)  # of the finite numbers in each sum

    def add(self, table: Table) -> None:
        self.samples += len(next(iter(table.values())))
        self.labels.update(map(str, table.get("label", ())))
        self.acts.update(table.get("act", ()))
        for name, values in table.items():
            if values and isinstance(values[0], float) and not name.startswith("p_"):
                finite = [value for value in values if math.isfinite(value)]
                self.sums[name] += sum(finite)
                self.counts[name] += len(finite)

    @property
    def coverage(self) -> float | None:
        """The share of samples to act on."""
        return self.acts["act"] / self.samples if self.acts else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "valid": min(self.counts.values()),
            "labels": dict(self.labels.most_common()),
            "coverage": self.coverage,
            "averages": {k: total / max(1, self.counts[k]) for k, total in self.sums.items()},
        }

    def __str__(self) -> str:
        acts = "" if self.coverage is None else f", acts on {100 * self.coverage:.1f} %"
        return f"{self.samples} samples{acts}"


PREDICT = Command(
    "predict",
    "answers and their uncertainty for a file of data",
    _add_options,
    _run,
    description="A table with one row per sample: label, probability, entropy and its "
    "epistemic and aleatoric parts and, where there is a threshold, act or abstain; for "
    "regression mean and std. Files larger than the memory are read piece by piece.",
    example="onesigma predict model.safetensors watch.csv --window 250 --hop 125 -o out.csv"
    "\n  onesigma predict out.onnx inputs.npy --abstain-above 0.5 --json -o out.parquet"
    "\n  onesigma predict my.nets:make_cnn --weights cnn.pt data.parquet --columns x,y,z "
    "--window 128",
)
