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
from onesigma.tables.arrow import import_pyarrow, to_numpy
from onesigma.tables.files import Array
from onesigma.tables.windows import slide

Times = npt.NDArray[np.float64]
ROWS_AT_ONCE = 1 << 17
_READ_AT_ONCE = 1 << 18  # bytes of a column
_STEPS = 1 << 13  # of time at once: as many as stay in the caches
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
class Places:
    """Where some windows lie.

    Attributes:
        key: the recording of each, by its place in ``Reader.recordings``.
        start: when each begins, as the file says it; or the number of its first row.
        rate: of each, in rows per second; None without time.
    """

    key: npt.NDArray[np.intp]
    start: npt.NDArray[Any]
    rate: Times | None

    def __getitem__(self, part: slice) -> Places:
        return Places(
            self.key[part], self.start[part], None if self.rate is None else self.rate[part]
        )

    @staticmethod
    def join(parts: Sequence[Places]) -> Places:
        rates = [part.rate for part in parts if part.rate is not None]
        return Places(
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

    def breaks(self, when: npt.NDArray[Any], unit: float, gap: float | None) -> list[int]:
        """Where a new stretch begins; ``when`` is in units of time."""
        if self.interval is None:
            steps = np.diff(when)
            if (onward := steps[steps > 0]).size:
                self.interval = float(np.median(onward, overwrite_input=True)) * unit
        limit = gap if gap is not None else GAP * (self.interval or np.inf)
        found: list[int] = []
        for start in range(0, len(when) - 1, _STEPS):
            steps = np.diff(when[start : start + _STEPS + 1])
            if steps.min() > 0 and steps.max() * unit <= limit:
                continue  # soon known, and nearly always
            back, far = steps <= 0, steps * unit > limit
            self.backwards += int(back.sum())
            self.gaps += int(far.sum())
            found += (start + 1 + np.flatnonzero(back | far)).tolist()
        return found


@dataclass(frozen=True)
class Rows:
    """Instants of one recording: a column of values for each channel; and when, as in the file."""

    values: Sequence[Array]
    when: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.when)

    def __getitem__(self, places: slice | npt.NDArray[np.intp]) -> Rows:
        return Rows([column[places] for column in self.values], self.when[places])

    def join(self, other: Rows, values: Array, when: npt.NDArray[Any]) -> None:
        """Write both to ``values`` (channels, k) and ``when``."""
        for row, *both in zip(values, self.values, other.values, strict=True):
            np.concatenate(both, out=row)
        np.concatenate([self.when, other.when], out=when)


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
        self._of_all_rows: dict[str, str] = {}  # keys of the file that need not be read
        self._unit = UNITS[layout.unit]  # of time, in seconds
        # Of joined rows: new memory takes time.
        self._values, self._when = np.empty((len(layout.columns), 0), np.float32), np.empty(0)

    def windows(self) -> Iterator[tuple[Array, Places]]:
        """All of them, (n, channels, window) or (n, channels), and where they lie.

        Those of one recording come in the order of time. They overlap in memory, and the next ones
        are written over them.

        Raises:
            DataError: a file is damaged, or a column is missing or holds no numbers.
        """
        pyarrow, parquet = import_pyarrow()
        wanted = [*self.layout.columns, *self._written_keys]
        wanted += [self.layout.time] if self.layout.time else []
        numbers = {*self.layout.columns, self.layout.time}
        for path in self.part.files:
            name = path.rpartition("/")[2]
            try:
                with self._system.open_input_file(path) as content:
                    file = parquet.ParquetFile(
                        content,
                        read_dictionary=self._written_keys,  # once, and not in every row
                        page_checksum_verification=True,  # if its writer left any
                        # Threads that read ahead would take time from those that score.
                        pre_buffer=False,
                        buffer_size=_READ_AT_ONCE,
                    )
                    self._check(pyarrow.types, file.schema_arrow, wanted, name)
                    self._of_all_rows = _of_all_rows(file.metadata, self._written_keys)
                    skipped = self._of_all_rows.keys() - numbers
                    columns = [each for each in dict.fromkeys(wanted) if each not in skipped]
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
        self._unit = UNITS[getattr(self.time_type, "unit", self.layout.unit)]

    def _split(self, pyarrow: Any, batch: Any, file: str) -> Iterator[tuple[Array, Places]]:
        """The rows of each key, as they follow each other."""
        columns = [to_numpy(batch.column(name)) for name in self.layout.columns]
        rows = Rows([to_numbers(column) for column in columns], self._times(pyarrow, batch, file))
        for key, places in self._by_key(pyarrow, batch):
            number = self._known.setdefault(key, len(self._known))
            if number == len(self.recordings):
                self.recordings.append(Recording(key))
            yield from self._cut(number, rows if places is None else rows[places])

    def _by_key(
        self, pyarrow: Any, batch: Any
    ) -> Iterator[tuple[tuple[str, ...], npt.NDArray[np.intp] | None]]:
        """Each key with the places of its rows; None stands for all of them."""
        names = [name for name in self._written_keys if name not in self._of_all_rows]
        codes, words = [], []
        for name in names:
            column = batch.column(name)
            if not pyarrow.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            column = column.cast(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
            words.append([*column.dictionary.to_pylist(), ""])  # the last is for rows without a key
            places = column.indices
            codes.append(
                to_numpy(places.fill_null(len(words[-1]) - 1) if places.null_count else places)
            )
        groups: list[npt.NDArray[np.intp] | None] = [None] if batch.num_rows else []
        if any(column.min() < column.max() for column in codes if len(column)):
            order = np.lexsort(codes[::-1])
            edges = np.any([np.diff(column[order]) != 0 for column in codes], 0)
            groups = [*np.split(order, np.flatnonzero(edges) + 1)]
        for places in groups:
            first = 0 if places is None else places[0]
            own = [each[column[first]] for each, column in zip(words, codes, strict=True)]
            found = dict(zip(names, own, strict=True)) | self._of_all_rows | self._folders
            yield tuple(found[name] for name in self.layout.group_by), places

    def _times(self, pyarrow: Any, batch: Any, file: str) -> npt.NDArray[Any]:
        """As the file has them; without a time column, rows are counted later."""
        if self.layout.time is None:
            return np.zeros(batch.num_rows, np.int64)
        column = batch.column(self.layout.time)
        if column.null_count:
            raise DataError(f"{file}: the time of {column.null_count} rows is missing.")
        if pyarrow.types.is_timestamp(column.type):
            column = column.view(pyarrow.int64())  # nothing is copied
        when = to_numpy(column)
        # Differences of small or unsigned numbers would not fit in their type.
        return when.astype(np.float64 if when.dtype.kind == "f" else np.int64, copy=False)

    def _cut(self, number: int, rows: Rows) -> Iterator[tuple[Array, Places]]:
        recording, window, hop = self.recordings[number], self.layout.window or 1, self.layout.hop
        first, recording.rows = recording.rows, recording.rows + len(rows)
        timed = self.layout.time is not None
        if not timed:
            rows = Rows(rows.values, np.arange(first, recording.rows))
        held = recording.held or rows[:0]
        if len(self._when) < (count := len(held) + len(rows)):
            room = count + window  # also for the rows held when the next ones come
            self._values = np.empty((len(rows.values), room), np.float32)
            self._when = np.empty(room, rows.when.dtype)
        values, when = self._values[:, :count], self._when[:count]
        held.join(rows, values, when)
        breaks = recording.breaks(when, self._unit, self.layout.gap) if timed else []
        begin = recording.skip
        for start, stop in pairwise([0, *breaks, len(when)]):
            begin = start if start else begin
            found = slide(values[:, begin:stop], window, hop)
            if count := len(found):
                at = begin + hop * np.arange(count)
                long = (when[at + window - 1] - when[at]) * self._unit
                rate = (window - 1) / long if timed and window > 1 else None
                x = found if self.layout.window else found[..., 0]
                yield x, Places(np.full(count, number), when[at], rate)
            begin += hop * count
        kept = min(begin, len(when) - 1)
        recording.skip = begin - kept
        recording.held = Rows([column[kept:].copy() for column in values], when[kept:].copy())


def _of_all_rows(metadata: Any, names: Sequence[str]) -> dict[str, str]:
    """Texts and whole numbers that are the same in all rows, as the file's statistics say."""
    columns = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    found = {}
    for name in columns.keys() & names:
        seen = set[Any]()
        for group in range(metadata.num_row_groups):
            stats = metadata.row_group(group).column(columns[name]).statistics
            known = stats is not None and stats.has_min_max and stats.has_null_count
            seen |= {stats.min, stats.max} if known and not stats.null_count else {None}
        if [type(value) for value in seen] in ([str], [int]):
            found[name] = str(*seen)
    return found


def _is_number(types: Any, held: Any) -> bool:
    return bool(types.is_integer(held) or types.is_floating(held))
