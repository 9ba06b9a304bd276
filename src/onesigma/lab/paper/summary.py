"""From the rows of several trials to mean and standard deviation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from onesigma.lab.paper.methods import COLUMNS, PLAIN

Result = dict[str, Any]
FOREIGN_FIGURES = ("auroc", "aupr", "fpr95")


class Spread(NamedTuple):
    """Mean and sample standard deviation over trials; NaN where there is nothing to average."""

    mean: float
    std: float
    trials: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread:
        known = [value for value in values if value is not None]
        mean = float(np.mean(known)) if known else float("nan")
        std = float(np.std(known, ddof=1)) if len(known) > 1 else float("nan")
        return Spread(mean, std, len(known))


class ForeignKind(NamedTuple):
    """One kind of foreign input, and of each trial the rows about it."""

    name: str
    trials: list[list[dict[str, Any]]]


class Foreign(NamedTuple):
    """How well one score of one method spots one kind of foreign input."""

    input: str
    method: str
    score: str
    figures: dict[str, Spread]


def labelled(result: Result) -> dict[str, dict[str, dict[str, Spread]]]:
    """Condition → column → figure → mean and spread."""
    rows = [row for trial in result["trials"] for row in trial["labelled"]]
    return {
        condition: {
            column: _spreads(found)
            for column in COLUMNS
            if (found := [r for r in rows if (r["condition"], r["method"]) == (condition, column)])
        }
        for condition in result["conditions"]
    }


def foreign_kinds(result: Result) -> list[ForeignKind]:
    """The kinds of foreign input; an activity left out of a training of its own comes first."""
    kinds = [_kind(name, result["trials"], name) for name in result["foreign"]]
    held_out = result["held out"]
    if held_out:
        name = f"activity never trained on: {held_out['activity']}"
        kinds.insert(0, _kind(name, held_out["trials"], held_out["activity"]))
    return kinds


def foreign(result: Result) -> list[Foreign]:
    """Every kind of foreign input, every method, every score it offers, in this order."""
    return [
        Foreign(
            *(kind.name, method, score),
            {name: Spread.of(areas(kind, name)[method, score]) for name in FOREIGN_FIGURES},
        )
        for kind in foreign_kinds(result)
        for method, score in areas(kind)
    ]


def areas(kind: ForeignKind, figure: str = "auroc") -> dict[tuple[str, str], list[Any]]:
    """Method and score → the figure in each trial."""
    found: dict[tuple[str, str], list[Any]] = {}
    for rows in kind.trials:
        for row in rows:
            found.setdefault((row["method"], row["score"]), []).append(row[figure])
    return found


def slower(result: Result) -> dict[str, tuple[Spread, Spread]]:
    """Column → time relative to the plain network, and milliseconds; batch 1."""
    times = [trial["milliseconds"] for trial in result["trials"]]
    return {
        column: (
            Spread.of(time[column] / time[PLAIN] for time in times),
            Spread.of(time[column] for time in times),
        )
        for column in COLUMNS
        if column in times[0]
    }


def _spreads(rows: list[dict[str, Any]]) -> dict[str, Spread]:
    figures = [name for name in rows[0] if name not in ("condition", "method")]
    return {name: Spread.of(row[name] for row in rows) for name in figures}


def _kind(name: str, trials: list[dict[str, Any]], key: str) -> ForeignKind:
    return ForeignKind(
        name, [[row for row in trial["foreign"] if row["input"] == key] for trial in trials]
    )
