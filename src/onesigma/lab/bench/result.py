"""What a benchmark found: rows of figures, for JSON and for tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from onesigma.lab.bench.timing import Timing


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
