"""``Scorer``: columns in, columns out. It is what an engine sends to its workers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onesigma.answer import BROKEN
from onesigma.errors import FileError, InputError, ModelError
from onesigma.runtime.contract import Contract
from onesigma.runtime.model import BATCH, Model, Prediction, open_bytes
from onesigma.tables.answers import Table, tabulate
from onesigma.tables.files import Array
from onesigma.tables.windows import fit_to_model, slide
from onesigma.tables.words import Words

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
_DIGEST = 16  # hexadecimal digits of the file's SHA-256 that name a model


class Scorer:
    """Answers a batch of columns with a model of ``onesigma.export``, one thread, no PyTorch.

    It is sent to other processes as the bytes of the model: the runtime starts there, at the first
    batch. An input that is broken (NaN, another shape, outside the contract) has a reason in its
    row and is not acted on; it never stops a job. With Ray Data::

        data.map_batches(
            Scorer,
            fn_constructor_kwargs={"model": "model.onnx", "inputs": "window"},
            batch_size=1024,
            compute=ActorPoolStrategy(size=8),
        )

    Attributes:
        digest: names the model: the first digits of the SHA-256 of its file.
    """

    def __init__(
        self,
        model: str | Path | bytes,
        *,
        inputs: str | Sequence[str] | None = None,
        keep: Sequence[str] | None = None,
        window: int | None = None,
        hop: int | None = None,
        class_names: Sequence[str] | None = None,
        probs: bool = False,
        batch: int = BATCH,
    ) -> None:
        """Read the model; nothing is started yet.

        Args:
            model: an ``.onnx`` file of ``onesigma.export``, or its bytes.
            inputs: the column that holds one array per sample; or the columns that hold one number
                per row, in the order of the channels. Default: the channels of the contract.
            keep: the other columns to pass through; default: all of them.
            window: rows are instants of ONE recording in the order of time, as ``map_groups`` gives
                them; windows of so many rows are cut. Kept columns are as where a window begins.
                Default: a row is a sample.
            hop: rows from window to window; default: ``window``.
            class_names: default: those in the model.
            probs: a column for the probability of every class, too.
            batch: samples that the runtime takes at a time.
        """
        self.content = model if isinstance(model, bytes) else _read(Path(model))
        self.name = "the model" if isinstance(model, bytes) else Path(model).name
        self.digest = hashlib.sha256(self.content).hexdigest()[:_DIGEST]
        self.inputs, self.keep = inputs, keep
        self.window, self.hop = window, hop or window or 1
        self.class_names, self.probs, self.batch = class_names, probs, batch
        for name, number in {"window": window, "hop": hop, "batch": batch}.items():
            if number is not None and number < 1:
                raise InputError(f"{name}={number}: at least 1 is needed.")
        if hop is not None and window is None:
            raise InputError("hop is for windows: give window, too.")
        if window is not None and isinstance(inputs, str):
            raise InputError("window is for columns of numbers: name them as a list in inputs.")

    def __getstate__(self) -> dict[str, Any]:
        started = ("model", "example", "_contract")  # here, and not elsewhere
        return {name: value for name, value in vars(self).items() if name not in started}

    @cached_property
    def model(self) -> Model:
        """The model, started in this process."""
        model = _open(self.content, self.name)
        if len(model.input_shapes) != 1:
            raise ModelError(f"{self.name} takes {len(model.input_shapes)} inputs, not one.")
        return model

    @cached_property
    def example(self) -> Table:
        """The table of one sample of zeros: which columns there are, and of what kind."""
        shape = [n or 1 for n in self.model.input_shapes[0][1:]]
        return self.tabulate(self.predict(np.zeros((1, *shape), np.float32)))

    @cached_property
    def _contract(self) -> Contract | None:
        return self.model.contract

    @property
    def channels(self) -> list[str]:
        """The columns to read: those that were named, or those of the contract."""
        if self.inputs is not None:
            return [self.inputs] if isinstance(self.inputs, str) else list(self.inputs)
        if self._contract is None:
            raise InputError(f"{self.name} does not name its channels: name the columns in inputs.")
        return list(self._contract.channels)

    def __call__(self, columns: Columns) -> Table:
        """One row per sample: kept columns, the answer, its uncertainty, the model's digest.

        Raises:
            InputError: a column is missing, or two of the result would have the same name.
        """
        names = self.channels
        keep = [name for name in columns if name not in names] if self.keep is None else self.keep
        kept = {name: _column(columns, name) for name in keep}
        given = [_column(columns, name) for name in names]
        if isinstance(self.inputs, str):
            x, odd = _stack(given[0], self.model.input_shapes[0][1:])
        else:
            x, odd = np.stack([to_numbers(each) for each in given], 1), None
        if self.window is not None:
            x = slide(x.T, self.window, self.hop)
            kept = {name: each[:: self.hop][: len(x)] for name, each in kept.items()}
        nothing = {name: column[:0] for name, column in self.example.items()}
        answers = self.tabulate(self.predict(x), odd) if len(x) else nothing
        if same := [name for name in kept if name in answers]:
            raise InputError(
                f"The data and the answers both have a column {same[0]!r}: rename it, or name the "
                "columns to pass through in keep."
            )
        return kept | {name: np.asarray(column) for name, column in answers.items()}

    def predict(self, x: Array) -> Prediction:
        """What the model says of some samples, one or more.

        Raises:
            DataError: the samples have not the shape that the model takes.
        """
        x = fit_to_model(x, self.model.input_shapes[0], "The data")
        return self.model.predict(x, batch=self.batch)

    def tabulate(self, prediction: Prediction, odd: Words | None = None) -> Table:
        """The columns of the answers; ``odd`` has words for broken samples, "" for the others."""
        count = len(prediction.mean)
        nothing = Words.all("", count)
        odd = nothing if odd is None else odd
        fine = prediction.valid & odd.are("")
        if prediction.act is not None and not fine.all():
            prediction = replace(prediction, act=prediction.act & fine)
        names = self.class_names or self.model.class_names
        table = tabulate(prediction, names, probs=self.probs, contract=self._contract)
        # Also of a model without a guard, where a row may be broken, too.
        reason, words = (table.pop(name, nothing) for name in ("reason", "odd"))
        table["reason"] = reason.where(fine, Words.all(BROKEN, count))
        table["odd"] = words.where(odd.are(""), odd)
        return table | {"model": Words.all(self.digest, count)}


@lru_cache(1)
def _open(content: bytes, name: str) -> Model:
    """An engine sends the scorer with every part; a worker starts the runtime once."""
    return open_bytes(content, name, threads=1)


def _read(path: Path) -> bytes:
    if path.suffix.lower() != ".onnx":
        raise FileError(
            f"{path} is no .onnx file: workers run without PyTorch. Write one with onesigma.export."
        )
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    return path.read_bytes()


def _column(columns: Columns, name: str) -> npt.NDArray[Any]:
    if name not in columns:
        raise InputError(f"There is no column {name!r}; there are {', '.join(columns)}.")
    return np.asarray(columns[name])


def to_numbers(column: npt.NDArray[Any]) -> Array:
    """As float32; NaN where there is no number."""
    try:
        with np.errstate(over="ignore"):  # infinite input is not answered: see ``Answer``
            return column.astype(np.float32, copy=False)
    except (ValueError, TypeError):
        return np.array([_to_number(value) for value in column.tolist()], np.float32)


def _to_number(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, TypeError):
        return np.nan


def _stack(column: npt.NDArray[Any], wanted: Sequence[int | None]) -> tuple[Array, Words | None]:
    """One array of samples that lie in a column; words for those that cannot, NaN in their place.

    A sample may be flat, as Parquet and Spark hold it. Another shape is not made to fit.
    """
    shape = tuple(n or 1 for n in wanted)
    fits: tuple[tuple[int, ...], ...] = (shape, (prod(shape),))
    if column.dtype != object:
        x = to_numbers(column.reshape(len(column), -1)).reshape(column.shape)
        if len(x) and (x.shape[1:] in fits or None in wanted):
            return x, None
    x, odd = np.full((len(column), *shape), np.nan, np.float32), [""] * len(column)
    for i, sample in enumerate(column):
        found = _to_array(sample)
        if found is None:
            odd[i] = "no array of numbers"
        elif found.shape in fits:
            x[i] = found.reshape(shape)
        else:
            odd[i] = f"an array of shape {found.shape}, the model takes {shape}"
    return x, Words.of(odd)


def _to_array(sample: Any) -> Array | None:
    """Arrays of arrays, as pyarrow gives lists of lists, become one."""
    try:
        if isinstance(sample, np.ndarray) and sample.dtype == object:
            sample = sample.tolist()
        return np.array(sample, np.float32)
    except (ValueError, TypeError):
        return None
