"""``onesigma predict``: answers and their doubt for a file of data."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onesigma.cli.options import (
    Commands,
    add_json,
    add_labels,
    add_model,
    add_samples,
    bar,
    command,
    labels_of,
    opened_with,
    print_json,
)

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.prediction import Prediction
    from onesigma.tables.answers import Columns

    Act = Callable[[Prediction], Tensor]


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "predict",
        "answers and their doubt for a file of data",
        description="A table with one row per sample: label, probability, entropy and its "
        "epistemic and aleatoric parts and, where there is a threshold, act or abstain; for "
        "regression mean and std. Files larger than the memory are read piece by piece.",
        example="onesigma predict model.safetensors watch.csv --window 250 --hop 125 -o out.csv"
        "\n  onesigma predict out.onnx inputs.npy --abstain-above 0.5 --json -o out.parquet"
        "\n  onesigma predict my.nets:make_cnn --weights cnn.pt data.parquet --columns x,y,z "
        "--window 128",
    )
    add_model(parser)
    add_samples(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=".csv or .parquet; default: CSV to stdout"
    )
    add_labels(parser)
    parser.add_argument(
        "--probs", action="store_true", help="the probability of every class in columns of its own"
    )
    rule = parser.add_mutually_exclusive_group()
    rule.add_argument(
        "--abstain-above", type=float, metavar="X", help="abstain where the entropy is above X"
    )
    rule.add_argument(
        "--abstain-rule",
        type=Path,
        metavar="FILE",
        help="a JSON file of AbstainRule.to_dict(); default: the rule in the model, if any",
    )
    add_json(parser, "print a summary as JSON; without -o, it alone")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from onesigma.errors import InputError
    from onesigma.tables.answers import table_writer

    if options.output is not None and options.output.resolve() == options.data.resolve():
        raise InputError(f"{options.output} is the data itself: give the answers another name.")
    unwanted = options.json and options.output is None
    table = nullcontext() if unwanted else table_writer(options.output)
    summary = Summary(options.model, str(options.data))
    answers = _answers(options)
    with table as write:
        for columns in bar(answers, "batches"):
            summary.add(columns)
            if write is not None:
                write(columns)
    if options.json:
        print_json(summary.to_dict() | {"output": options.output and str(options.output)})
    elif options.output is not None:
        print(f"{summary} → {options.output}", file=sys.stderr)


def _answers(options: argparse.Namespace) -> Iterator[Columns]:
    """The table of each batch, with the place of every sample in the file."""
    from onesigma.tables.answers import columns_of

    act, labels = _act(options), labels_of(options)
    model, samples = opened_with(options)
    place = "index" if options.window is None else "start"
    step = 1 if options.window is None else options.hop or options.window
    first = 0
    for x in samples:
        prediction = model.predict(x)
        if act is not None:
            prediction = replace(prediction, act=act(prediction))
        places = [step * i for i in range(first, first + len(x))]
        yield {place: places} | columns_of(prediction, labels or model.labels, probs=options.probs)
        first += len(x)


@dataclass
class Summary:
    """What the table says in a few figures."""

    model: str
    data: str
    samples: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    sums: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))

    def add(self, columns: Columns) -> None:
        self.samples += len(next(iter(columns.values())))
        self.labels.update(map(str, columns.get("label", ())))
        self.acts.update(columns.get("act", ()))
        for name, values in columns.items():
            if values and isinstance(values[0], float) and not name.startswith("p_"):
                self.sums[name] += sum(values)

    @property
    def coverage(self) -> float | None:
        """The share of samples to act on."""
        return self.acts["act"] / self.samples if self.acts else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data,
            "samples": self.samples,
            "labels": dict(self.labels.most_common()),
            "coverage": self.coverage,
            "averages": {name: total / self.samples for name, total in self.sums.items()},
        }

    def __str__(self) -> str:
        acts = "" if self.coverage is None else f", acts on {100 * self.coverage:.1f} %"
        return f"{self.samples} samples{acts}"


def _act(options: argparse.Namespace) -> Act | None:
    """What the options say of acting; None leaves it to the model."""
    from onesigma.decide.threshold import AbstainRule, score_of
    from onesigma.errors import FileError

    if (limit := options.abstain_above) is not None:
        return lambda prediction: score_of(prediction, "entropy") <= limit
    if options.abstain_rule is None:
        return None
    try:
        return AbstainRule.from_dict(json.loads(options.abstain_rule.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(
            f"{options.abstain_rule} is no abstain rule ({error}). Write one with "
            "json.dump(rule.to_dict(), file), from what onesigma.threshold returned."
        ) from error
