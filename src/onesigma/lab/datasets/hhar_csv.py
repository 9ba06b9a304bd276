"""The official CSV files of HHAR, read in pieces: over a gigabyte each, and rows of all devices."""

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.lab.datasets.recording import NO_CLASS

Clock = Literal["Creation_Time", "Arrival_Time"]
StreamKey = tuple[str, str, str]  # user, model, device

_UNITS_PER_SECOND = {"Creation_Time": 1e9, "Arrival_Time": 1e3}
_TYPES = {
    **dict.fromkeys(("Arrival_Time", "Creation_Time"), "i8"),
    **dict.fromkeys(("x", "y", "z"), "f4"),
    **dict.fromkeys(("User", "Model", "Device", "gt"), "U24"),
}
_ROWS_AT_ONCE = 200_000
# A name for no activity, not a missing value.
_NULL = "null"


@dataclass(frozen=True)
class Stream:
    """What one sensor of one device read on one person, in the order of the file."""

    seconds: npt.NDArray[np.float64]  # by the clock asked for
    arrival: npt.NDArray[np.float64]  # by the clock of the phone that collected, in seconds
    values: npt.NDArray[np.float32]  # (n, axes)
    labels: npt.NDArray[np.int8]

    def __getitem__(self, rows: npt.NDArray[Any] | slice) -> "Stream":
        return Stream(*(getattr(self, field.name)[rows] for field in fields(self)))


def read_streams(
    path: Path, class_names: Sequence[str], clock: Clock, dropped: Sequence[str]
) -> dict[StreamKey, Stream]:
    """The rows of one file by user, model and device, without the devices `dropped`.

    Raises:
        DataError: the file is absent, cut short, lacks a column, or holds what no such file holds.
    """
    pieces: defaultdict[StreamKey, list[Stream]] = defaultdict(list)
    for rows in _pieces(path, clock):
        stream = Stream(
            seconds=rows[clock] / _UNITS_PER_SECOND[clock],
            arrival=rows["Arrival_Time"] / _UNITS_PER_SECOND["Arrival_Time"],
            values=np.stack([rows[axis] for axis in "xyz"], axis=1),
            labels=_labels(rows["gt"], class_names, path.name),
        )
        names = [rows[column] for column in ("User", "Model", "Device")]
        for key in set(zip(*(column.tolist() for column in names), strict=True)):
            if key[2] not in dropped:
                user, model, device = (
                    column == name for column, name in zip(names, key, strict=True)
                )
                pieces[key].append(stream[user & model & device])
    # One by one, so that not everything is there twice.
    return {key: _joined(pieces.pop(key)) for key in list(pieces)}


def _pieces(path: Path, clock: Clock) -> Iterator[npt.NDArray[Any]]:
    """The file's rows as records, some at a time."""
    done = 0
    try:
        with path.open(encoding="utf-8") as file:
            layout = _layout(file.readline(), path.name, clock)
            while lines := list(islice(file, _ROWS_AT_ONCE)):
                rows = _parsed(lines, *layout)
                broken = ~np.isfinite(rows["x"] + rows["y"] + rows["z"])
                if broken.any():
                    row = done + int(broken.argmax()) + 1
                    raise DataError(f"{path.name}: row {row} holds no number in x, y or z.")
                yield rows
                done += len(rows)
    except (OSError, ValueError, DeprecationWarning) as error:
        raise DataError(
            f"{path.name} cannot be read after row {done}: {error}. Unpack it again; if a "
            "spreadsheet has rounded Creation_Time, the clock Arrival_Time can still be read."
        ) from error


def _layout(header: str, name: str, clock: Clock) -> tuple[list[int], np.dtype[Any]]:
    """Where in a row the columns stand that are needed, and their types."""
    columns = header.strip().split(",")
    needed = [column for column in _TYPES if column != "Creation_Time" or clock == column]
    absent = [column for column in needed if column not in columns]
    if absent:
        raise DataError(f"{name} lacks the columns {', '.join(absent)}: not a file of HHAR.")
    return [columns.index(c) for c in needed], np.dtype([(c, _TYPES[c]) for c in needed])


def _parsed(lines: list[str], columns: list[int], types: np.dtype[Any]) -> npt.NDArray[Any]:
    with warnings.catch_warnings():
        # numpy would read a rounded 1.4E+18 as a whole number, and only warn.
        warnings.simplefilter("error", DeprecationWarning)
        warnings.filterwarnings("ignore", "loadtxt: input contained no data")
        return np.loadtxt(
            lines, dtype=types, comments=None, delimiter=",", usecols=columns, ndmin=1
        )


def _labels(names: npt.NDArray[np.str_], class_names: Sequence[str], file: str) -> npt.NDArray[Any]:
    unknown = set(names.tolist()) - {*class_names, _NULL}
    if unknown:
        raise DataError(f"{file}: gt holds {', '.join(sorted(unknown))}, no activity of HHAR.")
    labels = np.full(len(names), NO_CLASS, dtype=np.int8)
    for label, name in enumerate(class_names):
        labels[names == name] = label
    return labels


def _joined(parts: list[Stream]) -> Stream:
    return Stream(
        *(np.concatenate([getattr(p, field.name) for p in parts]) for field in fields(Stream))
    )
