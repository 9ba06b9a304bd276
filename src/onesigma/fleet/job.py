"""``Job``: what a worker does to one part, on any engine. It can be sent to other processes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from onesigma.answer import BROKEN, UNFAMILIAR
from onesigma.decide.monitor import Monitor
from onesigma.errors import OnesigmaError
from onesigma.fleet.places import Part, Place
from onesigma.fleet.recordings import Layout, Places, Reader, Recording, Times
from onesigma.fleet.scorer import Scorer
from onesigma.runtime.model import Prediction
from onesigma.runtime.reference import Reference
from onesigma.tables.answers import Table
from onesigma.tables.arrow import import_pyarrow, to_arrow
from onesigma.tables.files import Array
from onesigma.tables.windows import Scaling, rebatch, to_samples
from onesigma.tables.words import Words

KEY = "onesigma.fleet"  # of the recording's number, and of a table's metadata
FALSE_ALARMS = 1e-6  # per window: in a fleet there are many windows
START = "start"
_ROWS, _WINDOWS = 1 << 15, 1 << 10  # of a row group, and windows at once
_WATCHED = (KEY, START, "novelty", "entropy", "act", "reason")
# Of the course of one recording, and of all in one part: they stand in the table's metadata.
_POINTS, _ALL_POINTS = 24, 4800
_RATE = 0.1  # of the known rate, more is another rate


@dataclass(frozen=True)
class Course:
    """One recording, in one part or in all that hold it.

    Attributes:
        key: which one.
        windows: how many there are.
        rows: how many there are.
        gaps: how often the next row is missing; no window crosses one.
        backwards: how often time does not go on; no window crosses that, either.
        rate: in rows per second, by its median interval.
        reasons: how many windows of each.
        acted: how many windows are acted on; None without a rule.
        alarms: of the monitor; None if the model has no reference.
        drift_at: where the first alarm was raised.
        points: over time, up to 24: the start of the last window, then shares of windows acted on
            and odd.
    """

    key: tuple[str, ...]
    windows: int
    rows: int
    gaps: int
    backwards: int
    rate: float | None
    reasons: dict[str, int]
    acted: int | None
    alarms: int | None
    drift_at: str | None
    points: tuple[tuple[str, float | None, float], ...]

    @property
    def name(self) -> str:
        return " · ".join(self.key) or "all"

    def share(self, reason: str) -> float:
        return self.reasons.get(reason, 0) / max(1, self.windows)

    @staticmethod
    def join(courses: Sequence[Course]) -> Course:
        """Those of several parts in their order, which is that of time."""
        reasons: Counter[str] = Counter()
        for each in courses:
            reasons.update(each.reasons)
        acted = [each.acted for each in courses if each.acted is not None]
        alarms = [each.alarms for each in courses if each.alarms is not None]
        rates = [each.rate for each in courses if each.rate is not None]
        return Course(
            courses[0].key,
            sum(each.windows for each in courses),
            sum(each.rows for each in courses),
            sum(each.gaps for each in courses),
            sum(each.backwards for each in courses),
            median(rates) if rates else None,
            dict(reasons.most_common()),
            sum(acted) if acted else None,
            sum(alarms) if alarms else None,
            next((each.drift_at for each in courses if each.drift_at is not None), None),
            tuple(point for each in courses for point in each.points),
        )


@dataclass(frozen=True)
class Outcome:
    """What came of one part: its recordings, or the error that kept it from being scored."""

    part: str
    windows: int = 0
    courses: tuple[Course, ...] = ()
    error: str = ""
    skipped: bool = False  # it was there already

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> Outcome:
        content = json.loads(text)
        courses = [
            Course(
                **each | {"key": tuple(each["key"]), "points": tuple(map(tuple, each["points"]))}
            )
            for each in content.pop("courses")
        ]
        return Outcome(**content, courses=tuple(courses))


@dataclass(frozen=True)
class Job:
    """A model, recordings, and where the tables go.

    Attributes:
        scorer: the model.
        layout: how recordings are read.
        source: whose file system they lie in.
        output: the folder of the tables.
        rate: in Hz: windows of another rate are broken input.
        shape, scaling, channels_last: of samples, see ``tables.windows.to_samples``.
    """

    scorer: Scorer
    layout: Layout
    source: Place
    output: Place
    rate: float | None = None
    shape: tuple[int, ...] | None = None
    scaling: Scaling | None = None
    channels_last: bool = False

    def digest(self, part: Part) -> str:
        """Names what decides on the content of a table; it is scored again if that changes."""
        scorer = self.scorer
        options: list[Any] = [scorer.digest, scorer.class_names, scorer.probs, scorer.batch]
        options += [asdict(self.layout), self.rate, self.shape, self.channels_last]
        options += [part.files, part.sizes]
        if self.scaling is not None:
            options += [self.scaling.mean.tolist(), self.scaling.std.tolist()]
        return hashlib.sha256(json.dumps(options).encode()).hexdigest()

    def find_done(self, part: Part) -> Outcome | None:
        """What an earlier run made of the part, if its table is whole and of the same job."""
        pyarrow, parquet = import_pyarrow()
        system, path = (self.output / part.name).open()
        try:
            with system.open_input_file(path) as content:
                metadata = parquet.read_metadata(content).metadata or {}
            found = json.loads(metadata.get(KEY.encode(), b"{}"))
            if found.get("job") == self.digest(part):
                return replace(Outcome.from_json(found["outcome"]), skipped=True)
        except (OSError, pyarrow.ArrowException, ValueError, KeyError, TypeError):
            pass  # absent or damaged
        return None

    def run(self, part: Part) -> Outcome:
        """Score it and write its table. No error stops the other parts: the outcome has it."""
        try:
            return self.find_done(part) or self._score(part)
        except OnesigmaError as error:
            return Outcome(part.name, error=str(error))
        except Exception as error:  # one part must not cost the others
            return Outcome(part.name, error=f"{type(error).__name__}: {error}")

    def _score(self, part: Part) -> Outcome:
        pyarrow, parquet = import_pyarrow()
        reader = Reader(part, self.layout, self.source.open()[0])
        watched: list[Table] = []
        with (self.output / part.name).writing() as sink:
            tables = self._answers(reader)
            first = next(tables, None) or self._nothing()  # now the reader knows all types
            schema = _to_arrow(pyarrow, self._nothing(), reader).schema
            # Numbers all differ, so that a dictionary of them would be made in vain.
            words = [field.name for field in schema if field.type == "string"]
            options = {"use_dictionary": words, "write_page_checksum": True}
            with parquet.ParquetWriter(sink, schema, **options) as writer:
                for table in chain([first], tables):
                    watched.append({name: table[name] for name in _WATCHED if name in table})
                    writer.write_table(_to_arrow(pyarrow, table, reader))
                outcome = self._sum_up(part, reader, _join(watched))
                found = {"job": self.digest(part), "outcome": outcome.to_json()}
                writer.add_key_value_metadata({KEY: json.dumps(found)})
        return outcome

    def _answers(self, reader: Reader) -> Iterator[Table]:
        """Tables of many rows: which recording, when it starts, and the answer."""
        places: list[Places] = []
        said: list[Prediction] = []

        def windows() -> Iterator[Array]:
            for x, where in reader.windows():
                places.append(where)
                yield x

        # Several batches at once, because what is done between two of them is slow: a network
        # empties the caches.
        rows = 0
        for x in rebatch(windows(), self.scorer.batch, max(1, _WINDOWS // self.scorer.batch)):
            options = (reader.part.name, self.shape, self.scaling)
            x = to_samples(x, *options, channels_last=self.channels_last)
            said.append(self.scorer.predict(x))
            rows += len(x)
            if rows >= _ROWS:
                yield self._tabulate(places, said)
                rows = 0
        if said:
            yield self._tabulate(places, said)

    def _tabulate(self, places: list[Places], said: list[Prediction]) -> Table:
        """Takes the answers, and the places of as many windows."""
        prediction, found = Prediction.cat(said), Places.join(places)
        count = len(prediction.mean)
        places[:], said[:] = [found[count:]], []
        answers = self.scorer.tabulate(prediction, self._other_rate(found[:count].rate))
        return {KEY: found.key[:count], START: found.start[:count]} | answers

    def _nothing(self) -> Table:
        empty = {KEY: np.empty(0, np.int64), START: np.empty(0, np.int64)}
        return empty | {name: column[:0] for name, column in self.scorer.example.items()}

    def _other_rate(self, rate: Times | None) -> Words | None:
        if rate is None or self.rate is None:
            return None
        words = [""] * len(rate)
        for i in np.flatnonzero(~(np.abs(rate / self.rate - 1) <= _RATE)):
            words[i] = f"rate {rate[i]:.3g} Hz, known {self.rate:g} Hz"
        return Words.of(words) if any(words) else None

    def _sum_up(self, part: Part, reader: Reader, table: Table) -> Outcome:
        reference, every = self.scorer.model.reference, 1
        if self.layout.window is not None:  # overlapping windows would be tested twice
            every = -(-self.layout.window // self.layout.hop)
        order = np.argsort(table[KEY], kind="stable")
        counts = np.bincount(table[KEY], minlength=len(reader.recordings))
        most = max(1, min(_POINTS, _ALL_POINTS // max(1, len(counts))))
        ends, courses = np.cumsum(counts), []
        for recording, count, end in zip(reader.recordings, counts, ends, strict=True):
            place = order[end - count : end]
            own = {name: column[place] for name, column in table.items()}
            drift = _find_drift(own, reference, every) if reference and len(place) else (None, None)
            courses.append(_follow(recording, own, drift, most, reader.show_time))
        return Outcome(part.name, len(order), tuple(courses))


def _join(tables: Sequence[Table]) -> Table:
    columns = {name: [table[name] for table in tables] for name in tables[0]}
    return {
        name: Words.cat(parts) if isinstance(parts[0], Words) else np.concatenate(parts)
        for name, parts in columns.items()
    }


def _to_arrow(pyarrow: Any, table: Table, reader: Reader) -> Any:
    """The keys in place of their numbers, the rest as it is."""
    columns = {}
    for name, kind in reader.key_types.items():
        place = reader.layout.group_by.index(name)
        texts = [recording.key[place] for recording in reader.recordings]
        if kind == "string" or all(texts):
            values = to_arrow(Words.of(texts))
        else:  # rows without a number
            values = pyarrow.array([text or None for text in texts], "string")
        columns[name] = values.cast(kind).take(to_arrow(table[KEY]))
    start = to_arrow(table[START])
    columns[START] = start if reader.time_type is None else start.cast(reader.time_type)
    answers = {name: column for name, column in table.items() if name not in (KEY, START)}
    return pyarrow.table(columns | {name: to_arrow(column) for name, column in answers.items()})


def _find_drift(own: Table, reference: Reference, every: int) -> tuple[int | None, int | None]:
    """How many alarms, and at which window the first was raised.

    By novelty alone, if there is one: somebody who sits all night is sure all night, which is not
    like the mixture of all that is known, but nothing new.
    """
    if "novelty" in reference.tails:
        reference = replace(reference, tails={"novelty": reference.tails["novelty"]})
    monitor = Monitor(reference, FALSE_ALARMS, every=every)
    answers: Table = {name: own[name] for name in ("novelty", "entropy") if name in own}
    if "act" in own:
        answers["act"] = own["act"].are("act")
    alarms = monitor.update(SimpleNamespace(**answers))
    return monitor.alarm_count, alarms[0].index if alarms else None


def _follow(
    recording: Recording,
    own: Table,
    drift: tuple[int | None, int | None],
    most: int,
    show: Callable[[Any], str],
) -> Course:
    count, (alarms, first) = len(own[START]), drift
    acted = own["act"].are("act") if "act" in own else None
    odd = own["reason"].are(BROKEN, UNFAMILIAR)
    points = []
    for place in np.array_split(np.arange(count), most) if count else ():
        if len(place):
            share = None if acted is None else float(acted[place].mean())
            points.append((show(own[START][place[-1]]), share, float(odd[place].mean())))
    return Course(
        recording.key,
        count,
        recording.rows,
        recording.gaps,
        recording.backwards,
        None if recording.interval is None else 1 / recording.interval,
        own["reason"].count(),
        None if acted is None else int(acted.sum()),
        alarms,
        None if first is None else show(own[START][first]),
        tuple(points),
    )
