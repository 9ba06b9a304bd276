"""Predictions as a table: which columns there are, and CSV or Parquet written piece by piece."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np

from onesigma.answer import BROKEN, SURE, UNFAMILIAR, UNSURE
from onesigma.errors import InputError, ModelError
from onesigma.runtime import Prediction
from onesigma.runtime.contract import Contract
from onesigma.storage.atomic import replacing
from onesigma.tables.arrow import import_pyarrow, to_arrow
from onesigma.tables.files import is_number
from onesigma.tables.words import Words
from onesigma.text_table import printable

Column: TypeAlias = Any  # one-dimensional: an array of numbers, or ``Words``
Table: TypeAlias = dict[str, Column]
Write: TypeAlias = Callable[[Table], None]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def tabulate(
    prediction: Prediction,
    class_names: Sequence[str] | None = None,
    *,
    probs: bool = False,
    contract: Contract | None = None,
) -> Table:
    """A column per quantity: the answer first, then its uncertainty, then whether to act on it.

    Args:
        prediction: of a batch, one answer per sample.
        class_names: without them, the classes are numbered from 0.
        probs: a column for the probability of every class, too.
        contract: of the model, to say what is odd about an input.

    Raises:
        ModelError: the model answers more than once per sample, as segmentation does.
        InputError: there are more or fewer names than classes.
    """
    if prediction.probs is None:
        return _tabulate_regression(prediction, contract)
    if prediction.probs.ndim != 2:
        raise ModelError(
            f"The model answers a sample with {prediction.probs.shape[1:]} probabilities: "
            "a table has one answer per sample."
        )
    count = prediction.probs.shape[1]
    if class_names is not None and len(class_names) != count:
        shown = ", ".join(class_names)
        raise InputError(f"{len(class_names)} class names ({shown}) for {count} classes.")
    unknown = -1 if class_names is None else count
    label = np.where(prediction.valid, prediction.label, unknown)
    table: Table = {
        "label": label if class_names is None else Words((*class_names, ""), label),
        # Of few columns numpy finds the largest sooner in this order: all rows at once.
        "probability": np.asfortranarray(prediction.probs).max(1),
    }
    for name in ("entropy", "epistemic", "aleatoric", "novelty", "exit"):
        if (values := getattr(prediction, name)) is not None:
            table[name] = values
    if probs:
        for i, name in enumerate(class_names or map(str, range(count))):
            table[f"p_{name}"] = prediction.probs[:, i]
    if prediction.act is not None:
        table["act"] = Words(("abstain", "act"), prediction.act.astype(np.int8))
    if prediction.act is not None and prediction.novelty is not None:
        # As ``Answer.reason`` has it.
        places = np.where(prediction.act, 0, 1 + prediction.odd_places)
        table["reason"] = Words((SURE, UNSURE, UNFAMILIAR, BROKEN), places)
    if contract is not None and prediction.contract is not None:
        table["odd"] = Words.at(*contract.explain_odd(prediction), len(prediction.mean))
    return table


def _tabulate_regression(prediction: Prediction, contract: Contract | None) -> Table:
    mean, std = (values.reshape(len(values), -1) for values in (prediction.mean, prediction.std))
    table: Table = {}
    for i in range(mean.shape[1]):
        suffix = f"_{i}" if mean.shape[1] > 1 else ""
        table[f"mean{suffix}"], table[f"std{suffix}"] = mean[:, i], std[:, i]
        for name in ("low", "high"):
            if (bound := getattr(prediction, name)) is not None:
                table[f"{name}{suffix}"] = bound.reshape(mean.shape)[:, i]
    if prediction.novelty is not None:
        table["novelty"] = prediction.novelty
    if contract is not None and prediction.contract is not None:
        table["odd"] = Words.at(*contract.explain_odd(prediction), len(prediction.mean))
    return table


@contextmanager
def table_writer(path: Path | None) -> Iterator[Write]:
    """A function that appends a table to a ``.csv`` or ``.parquet`` file; None: CSV to stdout.

    The file appears, whole, when the block ends without an error.
    """
    if path is None:
        yield _append_to_csv(sys.stdout)
        return
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{path}: a table is written as .csv or .parquet.")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: create it first.")
    with replacing(path) as temporary:
        if path.suffix.lower() == ".csv":
            with temporary.open("w", encoding="utf-8", newline="") as stream:
                yield _append_to_csv(stream)
        else:
            with _parquet_writer(temporary) as write:
                yield write


def _append_to_csv(stream: TextIO) -> Write:
    writer = csv.writer(stream, lineterminator="\n")
    header: list[str] = []

    def write(table: Table) -> None:
        if not header:
            header.extend(table)
            writer.writerow(map(cell, header))
        for row in zip(*(column.tolist() for column in table.values()), strict=True):
            writer.writerow(map(cell, row))

    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value:.6g}"  # which is what float32 has
        if not isinstance(value, str):
            return value
        # A spreadsheet would compute these; the apostrophe tells it that they are text.
        return "'" * (value[:1] in _FORMULA and not is_number(value)) + printable(value)

    return write


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Write]:
    pyarrow, parquet = import_pyarrow()
    with ExitStack() as opened:
        writers: list[Any] = []

        def write(table: Table) -> None:
            content = pyarrow.table({name: to_arrow(column) for name, column in table.items()})
            if not writers:  # the first table says which columns there are
                writer = parquet.ParquetWriter(path, content.schema)
                writers.append(opened.enter_context(writer))
            writers[0].write_table(content)

        yield write
