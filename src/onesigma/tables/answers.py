"""Predictions as a table: which columns there are, and CSV or Parquet written piece by piece."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from torch import Tensor

from onesigma.errors import InputError, ModelError
from onesigma.prediction import Prediction
from onesigma.storage.atomic import replacing
from onesigma.tables.rows import arrow

Columns: TypeAlias = dict[str, list[Any]]
Write: TypeAlias = Callable[[Columns], None]

ACT, ABSTAIN = "act", "abstain"


def columns_of(
    prediction: Prediction, names: Sequence[str] | None = None, *, probs: bool = False
) -> Columns:
    """A column per quantity: the answer first, then its doubt, then whether to act on it.

    Args:
        prediction: of a batch, one answer per sample.
        names: of the classes; without, the classes are numbered from 0.
        probs: a column for the probability of every class, too.

    Raises:
        ModelError: the model answers more than once per sample, as segmentation does.
        InputError: not as many names as classes.
    """
    if prediction.probs is None:
        return _regression(prediction)
    if prediction.probs.dim() != 2:
        raise ModelError(
            f"The model answers a sample with {tuple(prediction.probs.shape[1:])} probabilities: "
            "a table has one answer per sample."
        )
    classes = prediction.probs.shape[1]
    if names is not None and len(names) != classes:
        raise InputError(f"{len(names)} labels ({', '.join(names)}) for {classes} classes.")
    labels = prediction.label.tolist()
    columns: Columns = {
        "label": labels if names is None else [names[i] for i in labels],
        "probability": prediction.confidence.tolist(),
    }
    for doubt in ("entropy", "epistemic", "aleatoric"):
        if (values := getattr(prediction, doubt)) is not None:
            columns[doubt] = values.tolist()
    if probs:
        for i, name in enumerate(names or map(str, range(classes))):
            columns[f"p_{name}"] = prediction.probs[:, i].tolist()
    if prediction.act is not None:
        columns["act"] = [ACT if yes else ABSTAIN for yes in prediction.act.tolist()]
    return columns


def _regression(prediction: Prediction) -> Columns:
    mean, std = (_flat(values) for values in (prediction.mean, prediction.std))
    outputs = range(mean.shape[1])
    columns: Columns = {}
    for i in outputs:
        suffix = f"_{i}" if len(outputs) > 1 else ""
        columns[f"mean{suffix}"] = mean[:, i].tolist()
        columns[f"std{suffix}"] = std[:, i].tolist()
    return columns


def _flat(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1)


def table_writer(path: Path | None) -> AbstractContextManager[Write]:
    """A function that appends columns to a ``.csv`` or ``.parquet`` file; None: CSV to stdout.

    The file appears when the block ends well, and whole.
    """
    if path is None:
        return _csv_to(sys.stdout)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{path}: a table is written as .csv or .parquet.")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder.")
    return _csv_file(path) if path.suffix.lower() == ".csv" else _parquet_file(path)


@contextmanager
def _csv_file(path: Path) -> Iterator[Write]:
    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as stream,
        _csv_to(stream) as write,
    ):
        yield write


@contextmanager
def _csv_to(stream: TextIO) -> Iterator[Write]:
    writer = csv.writer(stream, lineterminator="\n")
    header: list[str] = []

    def write(columns: Columns) -> None:
        if not header:
            header.extend(columns)
            writer.writerow(header)
        rows = zip(*columns.values(), strict=True)
        writer.writerows([[_short(value) for value in row] for row in rows])

    yield write


def _short(value: Any) -> Any:
    """Six digits, which is what float32 has."""
    return f"{value:.6g}" if isinstance(value, float) else value


@contextmanager
def _parquet_file(path: Path) -> Iterator[Write]:
    pyarrow, parquet = arrow()
    writers: list[Any] = []
    with replacing(path) as temporary:

        def write(columns: Columns) -> None:
            table = pyarrow.table(columns)
            if not writers:
                writers.append(parquet.ParquetWriter(temporary, table.schema))
            writers[0].write_table(table)

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()
