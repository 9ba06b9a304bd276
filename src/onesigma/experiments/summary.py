"""From the rows of several trials to mean and standard deviation, and to the project's goals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from onesigma.experiments.conditions import CLEAN
from onesigma.experiments.methods import APDEEPSENSE, COLUMNS, OURS, PLAIN

Result = dict[str, Any]
FOREIGN_FIGURES = ("auroc", "aupr", "fpr95")
# "at least 8 points of AUROC above the best score BackboneDNN offers"
MARGIN = 0.08


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


class Foreign(NamedTuple):
    """How well one score of one method spots one kind of foreign input."""

    input: str
    method: str
    score: str
    figures: dict[str, Spread]


class Goal(NamedTuple):
    """A goal the project set itself, and whether it was met."""

    text: str
    where: str
    numbers: str
    met: bool


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


def foreign(result: Result) -> list[Foreign]:
    """Every kind of foreign input, every method, every score it offers, in this order."""
    found = list(_foreign(result["trials"], ""))
    held_out = result["held out"]
    if held_out:
        activity = held_out["activity"]
        name = f"activity never trained on: {activity}"
        rows = _foreign(held_out["trials"], activity)
        found = [*(row._replace(input=name) for row in rows), *found]
    kinds = list(dict.fromkeys(row.input for row in found))
    return sorted(found, key=lambda row: kinds.index(row.input))


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


def goals(result: Result) -> list[Goal]:
    """What the project set out to reach, checked on the figures; equal counts as reached."""
    return [*_clean_goals(result), *_noise_goals(result), *_foreign_goals(result)]


def _spreads(rows: list[dict[str, Any]]) -> dict[str, Spread]:
    figures = [name for name in rows[0] if name not in ("condition", "method")]
    return {name: Spread.of(row[name] for row in rows) for name in figures}


def _foreign(trials: list[dict[str, Any]], only: str) -> Iterator[Foreign]:
    rows = [row for trial in trials for row in trial["foreign"]]
    keys = dict.fromkeys((row["input"], row["method"], row["score"]) for row in rows)
    for key in keys:
        if only and key[0] != only:
            continue
        found = [row for row in rows if (row["input"], row["method"], row["score"]) == key]
        spreads = {name: Spread.of(row[name] for row in found) for name in FOREIGN_FIGURES}
        yield Foreign(*key, spreads)


def _clean_goals(result: Result) -> Iterator[Goal]:
    table = labelled(result)[CLEAN]
    for figure, sign in (("accuracy", -1), ("NLL, T", 1), ("ECE, T", 1)):
        ours, plain = table[OURS][figure].mean, table[PLAIN][figure].mean
        text = f"{figure.replace(', T', ' after temperature')} not worse than BackboneDNN"
        yield Goal(text, CLEAN, f"{ours:.3f} against {plain:.3f}", sign * (ours - plain) <= 0)


def _noise_goals(result: Result) -> Iterator[Goal]:
    for condition, table in labelled(result).items():
        if condition == CLEAN:
            continue
        for figure in ("NLL", "ECE"):
            ours = table[OURS][figure].mean
            for other in (PLAIN, APDEEPSENSE):
                theirs = table[other][figure].mean
                numbers = f"{ours:.3f} against {theirs:.3f}"
                yield Goal(f"{figure} below {other}", condition, numbers, ours < theirs)
            yield _near_sampling(result, condition, figure)


def _near_sampling(result: Result, condition: str, figure: str) -> Goal:
    """Within one standard error of 30 passes; of the difference, trial by trial."""
    pairs = [
        [
            next(
                row[figure]
                for row in trial["labelled"]
                if (row["condition"], row["method"]) == (condition, method)
            )
            for method in (OURS, "MCDrop-30")
        ]
        for trial in result["trials"]
    ]
    ours, theirs = np.mean(pairs, axis=0)
    gap = Spread.of(a - b for a, b in pairs)
    error = gap.std / np.sqrt(gap.trials) if gap.trials > 1 else 0.0
    about = f"± {error:.3f}" if gap.trials > 1 else "(one trial: no standard error)"
    numbers = f"{ours:.3f} against {theirs:.3f} {about}"
    text = f"{figure} within one standard error of MCDrop-30, or better"
    return Goal(text, condition, numbers, bool(gap.mean <= error))


def _foreign_goals(result: Result) -> Iterator[Goal]:
    rows = foreign(result)
    for kind in dict.fromkeys(row.input for row in rows):
        area = {
            (row.method, row.score): row.figures["auroc"].mean for row in rows if row.input == kind
        }
        ours = area.get((OURS, "epistemic"), float("nan"))
        plain, score = max((a, score) for (method, score), a in area.items() if method == PLAIN)
        numbers = f"{ours:.3f} against {plain:.3f} ({score})"
        text = "epistemic AUROC 8 points above the best of BackboneDNN"
        yield Goal(text, kind, numbers, ours - plain >= MARGIN)
