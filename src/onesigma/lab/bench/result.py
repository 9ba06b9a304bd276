"""What a benchmark found: rows of figures, as JSON and as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from onesigma.lab.bench.runtimes import runtime
from onesigma.lab.timing import Timing
from onesigma.storage.atomic import write_text
from onesigma.text_table import text_table


def kept(path: Path, measure: Callable[[], Any]) -> Any:
    """What the JSON file holds; measured now if there is none. So an interrupted run goes on."""
    if not path.is_file():
        print(path.stem, file=sys.stderr, flush=True)
        write_text(path, json.dumps(measure(), indent=1))
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Row:
    """The time of one contender in one runtime, for one answer to a whole batch."""

    contender: str
    runtime: str
    threads: int
    batch: int
    timing: Timing

    def to_dict(self) -> dict[str, Any]:
        taken = asdict(self.timing)
        where = {k: v for k, v in asdict(self).items() if k != "timing"}
        seconds = {f"{k}_ms": 1e3 * taken.pop(k) for k in ("minimum", "p50", "p90", "p99")}
        return where | seconds | taken | {"inputs_per_second": self.batch / self.timing.p50}


@dataclass(frozen=True)
class Footprint:
    """Bytes of the files that one contender opens in one runtime, and of memory at its peak.

    The ratio of the files is to the plain network's, ``over_plain`` the difference of the peaks.
    """

    contender: str
    runtime: str
    file: int
    file_ratio: float
    peak: int | None
    over_plain: int | None


@dataclass
class Result:
    """All that was found so far; ``skipped`` says what could not be run and why."""

    model: str
    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    footprints: list[Footprint] = field(default_factory=list)
    energy: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def row(self, contender: str, runtime: str, threads: int = 1, batch: int = 1) -> Row | None:
        """The one row of that kind, if it could be measured."""
        wanted = (contender, runtime, threads, batch)
        found = (r for r in self.rows if (r.contender, r.runtime, r.threads, r.batch) == wanted)
        return next(found, None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"rows": [row.to_dict() for row in self.rows]}


def show_result(result: Result) -> str:
    """Tables of times and of footprints, energy if there is a meter, and what was left out."""
    machine = result.machine
    parts = [
        f"{result.model} on {machine['cpu']}, {machine['cores']} cores\n"
        "× is time relative to the plain network in the same runtime and run (ratio of minima, "
        "± over fifths of the run);\ncpu × the same of the processor's own time, which a busy "
        "machine does not blur; ms the median for the whole batch."
    ]
    for threads, batch in dict.fromkeys((row.threads, row.batch) for row in result.rows):
        rows = [row for row in result.rows if (row.threads, row.batch) == (threads, batch)]
        parts.append(f"threads {threads}, batch {batch}\n{_times(rows)}")
    if result.footprints:
        parts.append(f"files and memory (batch {result.rows[0].batch})\n{_footprints(result)}")
    if result.energy:
        parts.append(f"energy\n{_energy(result)}")
    left_out = [f"left out: {what}: {why}" for what, why in result.skipped.items()]
    return "\n\n".join([*parts, "\n".join([*left_out, *result.notes])]).rstrip()


def show_ratio(value: float, noise: float | None = None) -> str:
    digits = 2 if value < 10 else 1
    tail = "" if noise is None else f" ± {noise:.{digits}f}"
    return f"{value:.{digits}f}{tail}"


def _times(rows: list[Row]) -> str:
    names = list(dict.fromkeys(row.runtime for row in rows))
    header = ["", *(cell for name in names for cell in (f"{runtime(name).title} ms", "×", "cpu ×"))]
    found = {(row.contender, row.runtime): row.timing for row in rows}
    lines = []
    for contender in dict.fromkeys(row.contender for row in rows):
        cells = [contender]
        for name in names:
            timing = found.get((contender, name))
            cells += _cells(timing) if timing else ["–"] * 3
        lines.append(cells)
    return text_table(header, lines, numbers=True)


def _cells(timing: Timing) -> list[str]:
    return [
        f"{1e3 * timing.p50:.2f}",
        show_ratio(timing.ratio, timing.noise),
        show_ratio(timing.cpu_ratio),
    ]


def _footprints(result: Result) -> str:
    lines = [
        [
            f"{each.contender}, {runtime(each.runtime).title}",
            f"{each.file / 1e3:.0f}",
            show_ratio(each.file_ratio),
            "–" if each.peak is None else f"{each.peak / 1e6:.1f}",
            "–" if each.over_plain is None else f"{each.over_plain / 1e6:+.1f}",
        ]
        for each in result.footprints
    ]
    return text_table(("", "file kB", "×", "peak MB", "over plain MB"), lines, numbers=True)


def _energy(result: Result) -> str:
    lines = [
        [
            f"{each['contender']}, {runtime(each['runtime']).title}, threads {each['threads']}",
            f"{1e3 * each['joules_per_call']:.2f}",
            f"{each['watts']:.2f}",
            f"{each['idle_watts']:.2f}",
        ]
        for each in result.energy
    ]
    return text_table(("", "mJ per answer", "W", "W idle"), lines, numbers=True)
