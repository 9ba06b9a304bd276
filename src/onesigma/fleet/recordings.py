"""Windows from the Parquet files of one part, piece by piece; none crosses a key or a gap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError, InputError
from onesigma.fleet.places import Part
from onesigma.fleet.scorer import to_numbers
from onesigma.tables.files import Array, import_pyarrow
from onesigma.tables.windows import slide

Times = npt.NDArray[np.float64]
ROWS_AT_ONCE = 1 << 16
GAP = 1.5  # intervals between neighbours that are a gap
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Layout:
    """How recordings are read.

    Attributes:
        columns: of the channels, in the order of the model.
        window: rows of one sample; None makes a sample of every row.
        hop: rows from window to window.
        group_by: columns, or folders such as ``device=17``, that tell recordings apart.
        time: the column that says when; None: rows lie in the order of time, without gaps.
        unit: of a time that is a number.
        gap: neighbours farther apart than so many seconds are not joined; default: 1.5 times the
            median interval of the recording.
    """

    columns: tuple[str, ...]
    window: int | None = None
    hop: int = 1
    group_by: tuple[str, ...] = ()
    time: str | None = None
    unit: str = "s"
    gap: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InputError(f"time_unit={self.unit!r}: choose one of {', '.join(UNITS)}.")
        if self.hop < 1 or (self.window is not None and self.window < 1):
            raise InputError(f"window={self.window}, hop={self.hop}: at least 1 is needed.")


@dataclass(frozen=True)
class Windows:
    """Some windows.

    Attributes:
        x: (n, channels, window), or (n, channels).
        key: the recording of each, by its place in ``Reader.recordings``.
        start: when each begins, as the file says it; or the number of its first row.
        rate: of each, in rows per second; None without time.
    """

    x: Array
    key: npt.NDArray[np.intp]
    start: npt.NDArray[Any]
    rate: Times | None

    def __getitem__(self, part: slice) -> Windows:
        rate = None if self.rate is None else self.rate[part]
        return Windows(self.x[part], self.key[part], self.start[part], rate)

    @staticmethod
    def join(parts: Sequence[Windows]) -> Windows:
        rates = [part.rate for part in parts if part.rate is not None]
        return Windows(
            np.concatenate([part.x for part in parts]),
            np.concatenate([part.key for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate(rates) if rates else None,
        )


@dataclass
class Recording:
    """What is known of one recording so far, and the rows that the next window may need."""

    key: tuple[str, ...]
    rows: int = 0
    gaps: int = 0
    backwards: int = 0  # times that do not go on
    interval: float | None = None  # the median one, in seconds
    held: Rows | None = None  # the last row at least
    skip: int = 0  # rows from the first held to the start of the next window

    def breaks(self, seconds: Times, gap: float | None) -> list[int]:
        """Where a new stretch begins."""
        steps = np.diff(seconds)
        if self.interval is None and (onward := steps[steps > 0]).size:
            self.interval = float(np.median(onward))
        limit = gap if gap is not None else GAP * (self.interval or np.inf)
        back, far = steps <= 0, steps > limit
        self.backwards += int(back.sum())
        self.gaps += int(far.sum())
        found: list[int] = (np.flatnonzero(back | far) + 1).tolist()
        return found


@dataclass(frozen=True)
class Rows:
    """Instants of one recording: their values (channels, k), and when, as the file says it."""

    values: Array
    when: npt.NDArray[Any]
    seconds: Times

    def __len__(self) -> int:
        return len(self.when)

    def __getitem__(self, places: slice | npt.NDArray[np.intp]) -> Rows:
        return Rows(self.values[:, places], self.when[places], self.seconds[places])

    def __add__(self, other: Rows) -> Rows:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Rows(*(np.concatenate(pair, -1) for pair in pairs))


class Reader:
    """Reads one part.

    Attributes:
        recordings: those seen so far, in the order of their first rows.
        time_type: pyarrow's type of the time column, so that answers have the same.
        key_types: the same of the keys that are columns; all but whole numbers become text.
    """

    def __init__(self, part: Part, layout: Layout, system: Any) -> None:
        self.part, self.layout, self._system = part, layout, system
        self.recordings: list[Recording] = []
        self.time_type: Any = None
        self._known: dict[tuple[str, ...], int] = {}
        self._folders = dict(part.keys)
        self._written_keys = [name for name in layout.group_by if name not in self._folders]
        self.key_types: dict[str, Any] = dict.fromkeys(self._written_keys, "string")
        self._origin: Any = None  # of time: nanoseconds since 1970 are too large for a float

    def windows(self) -> Iterator[Windows]:
        """All of them; those of one recording in the order of time.

        Raises:
            DataError: a file is damaged, or a column is missing or holds no numbers.
        """
        pyarrow, parquet = import_pyarrow()
        wanted = [*self.layout.columns, *self._written_keys]
        wanted += [self.layout.time] if self.layout.time else []
        for path in self.part.files:
            name = path.rpartition("/")[2]
            try:
                with self._system.open_input_file(path) as content:
                    file = parquet.ParquetFile(
                        content,
                        read_dictionary=self._written_keys,  # once, and not in every row
                        page_checksum_verification=True,  # if its writer left any
                    )
                    self._check(pyarrow.types, file.schema_arrow, wanted, name)
                    columns = list(dict.fromkeys(wanted))
                    for batch in file.iter_batches(
                        ROWS_AT_ONCE, columns=columns, use_threads=False
                    ):
                        yield from self._split(pyarrow, batch, name)
            except (pyarrow.ArrowException, OSError) as error:
                raise DataError(f"{name} cannot be read as Parquet: {error}") from error

    def show_time(self, when: Any) -> str:
        """As people read it, to the second."""
        unit = getattr(self.time_type, "unit", None)
        if unit is None:
            return str(when)
        return str(np.datetime64(int(when), unit).astype("datetime64[s]")).replace("T", " ")

    def _check(self, types: Any, schema: Any, wanted: list[str], file: str) -> None:
        if missing := [name for name in wanted if name not in schema.names]:
            has = ", ".join(schema.names)
            raise DataError(f"{file} has no column {missing[0]!r}; it has {has}.")
        held = {name: schema.field(name).type for name in wanted}
        for name in self.layout.columns:
            if not (_is_number(types, held[name]) or types.is_boolean(held[name])):
                raise DataError(f"{file}, column {name!r} holds {held[name]}, no numbers.")
        for name in self._written_keys:
            self.key_types[name] = held[name] if types.is_integer(held[name]) else "string"
        if (time := self.layout.time) is None:
            return
        if not (_is_number(types, held[time]) or types.is_timestamp(held[time])):
            raise DataError(f"{file}, column {time!r} holds {held[time]}, no time.")
        if self.time_type not in (None, held[time]):
            raise DataError(f"{file}: times are {held[time]}, before they were {self.time_type}.")
        self.time_type = held[time]

    def _split(self, pyarrow: Any, batch: Any, file: str) -> Iterator[Windows]:
        """The rows of each key, as they follow each other."""
        columns = [batch.column(name).to_numpy(False) for name in self.layout.columns]
        values = np.stack([to_numbers(column) for column in columns])
        rows = Rows(values, *self._times(pyarrow, batch, file))
        for key, places in self._by_key(pyarrow, batch):
            number = self._known.setdefault(key, len(self._known))
            if number == len(self.recordings):
                self.recordings.append(Recording(key))
            yield from self._cut(number, rows if places is None else rows[places])

    def _by_key(
        self, pyarrow: Any, batch: Any
    ) -> Iterator[tuple[tuple[str, ...], npt.NDArray[np.intp] | None]]:
        """Each key with the places of its rows; None stands for all of them."""
        keys: list[tuple[str, ...]] = [()]
        codes = np.zeros(batch.num_rows, np.int64)
        for name in self._written_keys:
            column = batch.column(name)
            if not pyarrow.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            column = column.cast(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
            values = [*column.dictionary.to_pylist(), ""]  # the last is for rows without a key
            keys = [(*key, value) for key in keys for value in values]
            if len(values) > 2 or column.null_count:
                own = column.indices.fill_null(len(values) - 1).to_numpy()
                codes = codes * len(values) + own
            else:  # one key in all rows, as it is mostly
                codes *= len(values)
        single = not len(codes) or codes.min() == codes.max()
        order = np.arange(len(codes)) if single else np.argsort(codes, kind="stable")
        edges = np.flatnonzero(np.diff(codes[order])) + 1
        for places in np.split(order, edges) if len(order) else ():
            found = dict(zip(self._written_keys, keys[codes[places[0]]], strict=True))
            key = tuple((found | self._folders)[name] for name in self.layout.group_by)
            yield key, None if single else places

    def _times(self, pyarrow: Any, batch: Any, file: str) -> tuple[npt.NDArray[Any], Times]:
        """As the file has them, and in seconds; without a time column, rows are counted."""
        if self.layout.time is None:
            return np.zeros(batch.num_rows, np.int64), np.zeros(batch.num_rows)
        column, unit = batch.column(self.layout.time), self.layout.unit
        if column.null_count:
            raise DataError(f"{file}: the time of {column.null_count} rows is missing.")
        if pyarrow.types.is_timestamp(column.type):
            unit, column = column.type.unit, column.cast(pyarrow.int64())
        when = column.to_numpy(zero_copy_only=False)
        if self._origin is None and len(when):
            self._origin = when[0]
        return when, (when - self._origin).astype(np.float64) * UNITS[unit]

    def _cut(self, number: int, rows: Rows) -> Iterator[Windows]:
        recording, window, hop = self.recordings[number], self.layout.window or 1, self.layout.hop
        first, recording.rows = recording.rows, recording.rows + len(rows)
        timed = self.layout.time is not None
        if not timed:
            rows = Rows(rows.values, np.arange(first, recording.rows), rows.seconds)
        rows = rows if recording.held is None else recording.held + rows
        breaks = recording.breaks(rows.seconds, self.layout.gap) if timed else []
        begin = recording.skip
        for start, stop in pairwise([0, *breaks, len(rows)]):
            begin = start if start else begin
            found = slide(rows.values[:, begin:stop], window, hop)
            if len(found):
                at = begin + hop * np.arange(len(found))
                long = rows.seconds[at + window - 1] - rows.seconds[at]
                rate = (window - 1) / long if timed and window > 1 else None
                x = found if self.layout.window else found[..., 0]
                yield Windows(x, np.full(len(x), number), rows.when[at], rate)
            begin += hop * len(found)
        kept = min(begin, len(rows) - 1)
        recording.held, recording.skip = rows[kept:], begin - kept


def _is_number(types: Any, held: Any) -> bool:
    return bool(types.is_integer(held) or types.is_floating(held))
