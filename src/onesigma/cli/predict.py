"""``onesigma predict``: answers and their uncertainty for a file of data."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onesigma import command
from onesigma.answer import NOVEL, SURE
from onesigma.command import Command
from onesigma.decide.monitor import Monitor
from onesigma.decide.threshold import AbstainRule, is_familiar
from onesigma.errors import FileError, InputError
from onesigma.runtime import Prediction
from onesigma.runtime.model import BATCH
from onesigma.runtime.reference import ABSTAINED, Reference
from onesigma.storage.opening import EXPORTED, SAVED
from onesigma.tables.answers import Table, table_writer, tabulate

_FINE = "familiar"  # where no rule says when to act
# Options, by what they are for.
_OF_RECORDINGS = ("group_by", "time", "time_unit", "gap", "rate", "per", "engine", "workers")
_OF_ONE_FILE = (
    *("weights", "trust", "dropout", "channel_dropout", "task", "no_check", "header"),
    *("abstain_above", "abstain_rule"),
)


def _add_options(parser: argparse.ArgumentParser) -> None:
    command.add_model(parser, SAVED, EXPORTED)
    what = "take a file of onesigma.export that another tool has changed"
    command.add_switch(parser, "--no-check", what)
    more = "; or recordings: a folder of Parquet files, a pattern such as 'data/*/*.parquet', a URL"
    command.add_samples(parser, more, type=_parse_place)
    what = ".csv or .parquet; default: CSV to standard output; for recordings a folder or a URL"
    command.add_file(parser, "-o", "--output", what=what, type=_parse_place)
    command.add_class_names(parser)
    command.add_switch(parser, "--probs", "the probability of every class, a column for each")
    rule = parser.add_mutually_exclusive_group()
    what = "abstain where the entropy is above X"
    rule.add_argument("--abstain-above", type=float, metavar="X", help=what)
    what = "a JSON file of AbstainRule.to_dict(); default: the rule in the model, if any"
    command.add_file(rule, "--abstain-rule", what=what)
    command.add_json(parser, "print a summary as JSON; without -o, the summary alone")
    _add_recordings(parser)


def _add_recordings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "for recordings of many devices",
        "Needs an .onnx file of onesigma.export. Run it again to go on after an interruption.",
    )
    what = "columns, or folders such as device=17, that tell recordings apart"
    group.add_argument("--group-by", **command.NAMES, help=what)
    what = "the column that says when: no window crosses a gap"
    group.add_argument("--time", metavar="COLUMN", help=what)
    what = "of a time that is a number; default s"
    group.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help=what)
    number: Any = {"type": float, "metavar": "X"}
    what = "seconds between rows that are a gap; default: 1.5 times the median"
    group.add_argument("--gap", **number, help=what)
    what = "rows per second; windows of another rate are broken; default: as fit was told"
    group.add_argument("--rate", **number, help=what)
    what = "file: a table for each; folder: recordings go on from file to file; default file"
    group.add_argument("--per", choices=("file", "folder"), help=what)
    what = "who does the work; default local"
    group.add_argument("--engine", choices=("local", "ray", "spark"), help=what)
    what = "parts at the same time; default: one per core"
    group.add_argument("--workers", **command.COUNT, help=what)


def _parse_place(text: str) -> Path | str:
    return text if "://" in text else Path(text)


def _is_many(args: argparse.Namespace) -> bool:
    """Recordings of many devices, and not one file."""
    asked = any(getattr(args, name) is not None for name in _OF_RECORDINGS)
    if asked or isinstance(args.data, str) or args.data.is_dir():
        return True
    return not args.data.exists() and any(sign in str(args.data) for sign in "*?[")


def _score(args: argparse.Namespace) -> None:
    """Recordings of many devices, each in a table of its own."""
    from onesigma.fleet import score

    idle = [name for name in _OF_ONE_FILE if getattr(args, name) not in (None, False, [])]
    if idle:
        option = f"--{idle[0].replace('_', '-')}"
        raise InputError(f"{option} is for one file. Recordings are answered by an exported model.")
    if args.output is None:
        raise InputError("Recordings need -o: a folder or a URL for the tables.")
    given = {name: getattr(args, name) for name in _OF_RECORDINGS}
    summary = score(
        args.model,
        args.data,
        args.output,
        inputs=args.columns,
        **{name: value for name, value in given.items() if value is not None},
        **{name: getattr(args, name) for name in ("window", "hop", "probs", "shape")},
        batch=args.batch or BATCH,
        class_names=command.read_class_names(args),
        scaling=command.read_scaling(args),
        channels_last=args.channels_last,
        progress=lambda done, parts: command.show_progress(done, "parts", parts),
    )
    if args.json:
        command.print_json(summary.to_dict())
    else:
        print(summary)
        print(f"\nTables, _summary.html and _summary.json: {args.output}", file=sys.stderr)
    summary.require_all()


def _run(args: argparse.Namespace) -> None:
    if _is_many(args):
        return _score(args)
    if isinstance(args.output, str):
        raise InputError(f"{args.output}: a URL is for recordings. Give -o a path of this machine.")
    same = args.output is not None and os.path.realpath(args.output) == os.path.realpath(args.data)
    if same:
        raise InputError(f"{args.output} is the data itself: give the answers another name.")
    summary = _Summary()
    unwanted = args.json and args.output is None
    with nullcontext() if unwanted else table_writer(args.output) as write:
        for table, prediction in command.show_progress(_answer(args, summary), "batches"):
            summary.add(table, prediction)
            if write is not None:
                write(table)
    if args.json:
        output = args.output and str(args.output)
        names = {"model": args.model, "data": str(args.data)}
        command.print_json(names | summary.to_dict() | {"output": output})
    elif args.output is not None:
        print(f"{summary} → {args.output}", file=sys.stderr)
        if summary.monitor is not None:
            print(summary.monitor.verdict, file=sys.stderr)


def _answer(args: argparse.Namespace, summary: _Summary) -> Iterator[tuple[Table, Prediction]]:
    """The table of each batch, with the place of every sample in the file."""
    decide, class_names = _read_rule(args), command.read_class_names(args)
    model, samples = command.open_with_samples(args)
    summary.monitor = _watch(args, model.reference, own_rule=decide is None)
    place = "index" if args.window is None else "start"
    step = 1 if args.window is None else args.hop or args.window
    first = 0
    for x in samples:
        prediction = model.predict(x)
        if decide is not None:
            prediction = replace(prediction, act=decide(prediction))
        names = class_names or model.class_names
        table = tabulate(prediction, names, probs=args.probs, contract=model.contract)
        yield {place: step * np.arange(first, first + len(x))} | table, prediction
        first += len(x)


def _watch(
    args: argparse.Namespace, reference: Reference | None, *, own_rule: bool
) -> Monitor | None:
    """Does the file look like known inputs? None if the model does not know."""
    if reference is not None and not own_rule:
        reference = reference.without(ABSTAINED)  # another rule abstains at another rate
    if reference is None:
        return None
    # Windows that overlap hold the same instants: testing both would count them twice.
    overlap = 1 if args.window is None else math.ceil(args.window / (args.hop or args.window))
    return Monitor(reference, every=overlap)


def _read_rule(args: argparse.Namespace) -> Callable[[Any], Any] | None:
    """Where to act, as the options say; None leaves it to the model."""
    if args.abstain_above is not None:

        def is_sure(prediction: Prediction) -> Any:
            if prediction.entropy is None:
                raise InputError("--abstain-above needs classes: this model does regression.")
            return prediction.entropy <= args.abstain_above

        return _unless_odd(is_sure)
    if args.abstain_rule is None:
        return None
    try:  # it compares arrays of any kind
        rule = AbstainRule.from_dict(json.loads(args.abstain_rule.read_text(encoding="utf-8")))
        return _unless_odd(rule)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(
            f"{args.abstain_rule} is no abstain rule ({error}). Write one with "
            "json.dump(rule.to_dict(), file), from what onesigma.threshold returned."
        ) from error


def _unless_odd(decide: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Nothing that a guard finds odd is acted on, whatever the rule says."""

    def acts(prediction: Any) -> Any:
        act = decide(prediction)
        return act if prediction.novelty is None else act & is_familiar(prediction, NOVEL)

    return acts


@dataclass
class _Summary:
    """What the table says in a few figures."""

    samples: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)  # of the finite numbers in each sum
    reasons: Counter[str] = field(default_factory=Counter)  # of a model with a guard
    monitor: Monitor | None = None

    def add(self, table: Table, prediction: Prediction) -> None:
        if prediction.novelty is not None:
            ruled = prediction.act is not None
            found = prediction.reason if ruled else (odd or _FINE for odd in prediction.oddness)
            self.reasons.update(found)
        if self.monitor is not None:
            self.monitor.update(prediction)
        self.samples += len(next(iter(table.values())))
        self.labels.update(map(str, table.get("label", ())))
        self.acts.update(table.get("act", ()))
        for name, values in table.items():
            if values.dtype.kind == "f" and not name.startswith("p_"):
                finite = values[np.isfinite(values)]
                self.sums[name] += float(finite.sum(dtype=float))
                self.counts[name] += len(finite)

    @property
    def coverage(self) -> float | None:
        """The share of samples to act on."""
        return self.acts["act"] / self.samples if self.acts else None

    @property
    def shares(self) -> dict[str, float]:
        """Of each reason, the commonest first."""
        return {name: count / self.samples for name, count in self.reasons.most_common()}

    def to_dict(self) -> dict[str, Any]:
        guarded: dict[str, Any] = {"reasons": self.shares} if self.reasons else {}
        if (watched := self.monitor) is not None:
            guarded["drift"] = {
                "verdict": watched.verdict,
                "alarms": watched.alarm_count,
                "every": watched.every,
                "guarantee": watched.guarantee,
            }
        known = {
            "samples": self.samples,
            "valid": min(self.counts.values()),
            "labels": dict(self.labels.most_common()),
            "coverage": self.coverage,
            "averages": {k: total / max(1, self.counts[k]) for k, total in self.sums.items()},
        }
        return known | guarded

    def __str__(self) -> str:
        acts = "" if self.coverage is None else f", acts on {100 * self.coverage:.1f} %"
        odd = {name: share for name, share in self.shares.items() if name not in (SURE, _FINE)}
        reasons = ", ".join(f"{name} {100 * share:.1f} %" for name, share in odd.items())
        return f"{self.samples} samples{acts}{f'; {reasons}' if reasons else ''}"


PREDICT = Command(
    "predict",
    "answers and their uncertainty for a file of data",
    _add_options,
    _run,
    description="A table with one row per sample: label, probability, entropy and its "
    "epistemic and aleatoric parts and, where there is a threshold, act or abstain; for a model "
    "of onesigma.fit novelty, the reason and what is odd; for regression mean and std. Files "
    "larger than the memory are read piece by piece. Recordings of many devices give a table for "
    "each file, and a summary.",
    example="onesigma predict model.safetensors watch.csv --window 250 --hop 125 -o out.csv"
    "\n  onesigma predict out.onnx inputs.npy --abstain-above 0.5 --json -o out.parquet"
    "\n  onesigma predict out.onnx recordings/ --group-by device --time t -o answers/"
    "\n  onesigma predict my.nets:make_cnn --weights cnn.pt data.parquet --columns x,y,z "
    "--window 128",
)
