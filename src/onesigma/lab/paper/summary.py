"""What came of the trials of a task: means and spreads, the goals, and the paper's own numbers.

What the project set out to reach, judged on the trials of a task:

    clean     not worse than BackboneDNN: accuracy; NLL and ECE, each after one temperature
    noise     NLL and ECE below those of BackboneDNN and of ApDeepSense, and within one standard
              error of those of MCDrop-30 or better
    foreign   the AUROC of the epistemic part 8 points above the best score of BackboneDNN
Differences are taken trial by trial, because both sides see the same input; their standard error is
std / √trials. With fewer than three trials nothing is judged.

The paper's own numbers belong only to results on the SAME dataset, by its exact name. Results on a
stand-in are never compared with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from onesigma.lab.paper.conditions import CLEAN
from onesigma.lab.paper.methods import APDEEPSENSE, COLUMNS, OURS, PLAIN

Result = dict[str, Any]
Pairs = Sequence[tuple[float, float]]

FOREIGN_FIGURES = ("auroc", "aupr", "fpr95")
SAMPLED = "MCDrop-30"
MARGIN = 0.08
FEWEST_TRIALS = 3

CITATION = (
    "“The Benefit of the Doubt: Uncertainty Aware Sensing for Edge Computing Platforms”, the table "
    "of accuracy, F1 score and NLL (there without standard deviations)"
)

_TABLE = {
    "HHAR": {
        "accuracy": (94.79, 91.5, 78.55, 92.67, 92, 91.33, 92.56, 92.51, 92.66, 92.83),
        "F1": (0.792, 0.671, 0.601, 0.671, 0.678, 0.677, 0.712, 0.702, 0.704, 0.708),
        "NLL": (2.558, 42.14, 3.75, 30.14, 8.01, 5.58, 4.13, 23.54, 7.18, 4.36),
    },
    "Opportunity": {
        "accuracy": (86.80, 83.85, 80.03, 83.24, 82.81, 83.85, 84.63, 82.35, 82.99, 84.06),
        "F1": (0.808, 0.732, 0.701, 0.741, 0.742, 0.744, 0.765, 0.743, 0.746, 0.755),
        "NLL": (2.39, 12.35, 4.00, 12.31, 9.38, 8.38, 2.28, 9.21, 7.98, 3.60),
    },
    "Speech Commands": {
        "accuracy": (82.12, 78.45, 71.15, 78.48, 80.02, 80.65, 81.01, 79.33, 80.45, 81.01),
        "F1": (0.733, 0.622, 0.589, 0.624, 0.628, 0.633, 0.706, 0.596, 0.599, 0.675),
        "NLL": (1.01, 2.11, 1.97, 1.44, 1.20, 1.13, 1.08, 1.44, 1.18, 1.08),
    },
}


def papers_numbers(data: str) -> dict[str, dict[str, float]]:
    """Figure → column → the paper's number, accuracy as a share; empty for any other dataset."""
    return {
        figure: {
            column: value / 100 if figure == "accuracy" else value
            for column, value in zip(COLUMNS, values, strict=True)
        }
        for figure, values in _TABLE.get(data, {}).items()
    }


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


def tabulate(result: Result) -> dict[str, dict[str, dict[str, Spread]]]:
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


def foreign_rows(result: Result) -> list[Foreign]:
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


def latencies(result: Result) -> dict[str, tuple[Spread, Spread]]:
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


class Goal(NamedTuple):
    """One goal for ours, and how far it was reached.

    `gain` is by how much ours is better than `rival`, on average over trials: positive is better
    whatever the figure. The goal holds if it is at least `needed`, or more than that if `strictly`.
    """

    part: str
    where: str
    claim: str
    rival: str
    ours: float
    theirs: float
    gain: float
    error: float  # one standard error of the gain; NaN for a single trial
    needed: float
    holds: bool | None  # None: too few trials to tell
    beside: dict[str, float]  # what to read along with it, not judged

    @property
    def verdict(self) -> str:
        if self.holds is None:
            return "not judged"
        close = ", within one standard error" if abs(self.gain - self.needed) <= self.error else ""
        return ("holds" if self.holds else "does not hold") + close


def goals(result: Result) -> list[Goal]:
    """All goals on one task: clean input first, then noise, then foreign input."""
    return [*_clean(result), *_noise(result), *_foreign(result)]


def tally(found: Sequence[Goal]) -> str:
    """How many hold, in words."""
    judged = [goal.holds for goal in found if goal.holds is not None]
    if not judged:
        return f"not judged: that takes {FEWEST_TRIALS} trials"
    return f"{sum(judged)} of {len(judged)} hold"


def _clean(result: Result) -> Iterator[Goal]:
    for figure, claim in (
        ("accuracy", "accuracy not worse"),
        ("NLL, T", "NLL after temperature not worse"),
        ("ECE, T", "ECE after temperature not worse"),
    ):
        pairs = _pairs(result, CLEAN, figure, PLAIN)
        yield judge(CLEAN, CLEAN, claim, PLAIN, pairs, higher=figure == "accuracy")


def _noise(result: Result) -> Iterator[Goal]:
    for condition in result["conditions"]:
        if condition == CLEAN:
            continue
        for figure in ("NLL", "ECE"):
            for rival in (PLAIN, APDEEPSENSE):
                pairs = _pairs(result, condition, figure, rival)
                yield judge("noise", condition, f"{figure} lower", rival, pairs, strictly=True)
            pairs = _pairs(result, condition, figure, SAMPLED)
            claim = f"{figure} within one standard error, or lower"
            yield judge("noise", condition, claim, SAMPLED, pairs, slack=1.0)


def _foreign(result: Result) -> Iterator[Goal]:
    for kind in foreign_kinds(result):
        found = areas(kind)
        means = {key: Spread.of(values).mean for key, values in found.items()}
        best = max((key for key in found if key[0] == PLAIN), key=lambda key: means[key])
        beside = {
            f"{method}, {score}": means[method, score]
            for method, score in ((OURS, "entropy"), (SAMPLED, "epistemic"))
            if (method, score) in means
        }
        pairs = list(zip(found[OURS, "epistemic"], found[best], strict=True))
        claim = f"epistemic AUROC {100 * MARGIN:.0f} points higher"
        yield judge(
            *("foreign", kind.name, claim, ", ".join(best), pairs),
            higher=True,
            needed=MARGIN,
            beside=beside,
        )


def judge(
    part: str,
    where: str,
    claim: str,
    rival: str,
    pairs: Pairs,
    *,
    higher: bool = False,
    strictly: bool = False,
    needed: float = 0.0,
    slack: float = 0.0,
    beside: dict[str, float] | None = None,
) -> Goal:
    """A goal, from what ours and its rival reached in each trial.

    Args:
        part: of the goals.
        where: on which input.
        claim: what ours is to be, compared with its rival.
        rival: whose figure it is compared with.
        pairs: ours and theirs, trial by trial.
        higher: whether more is better.
        strictly: whether a gain of exactly what is needed is too little.
        needed: the least gain that will do.
        slack: so many standard errors may be lacking.
        beside: for the record.
    """
    ours, theirs = (Spread.of(column).mean for column in zip(*pairs, strict=True))
    gains = Spread.of((a - b) * (1 if higher else -1) for a, b in pairs)
    error = gains.std / math.sqrt(gains.trials)
    reached: bool | None = None
    if len(pairs) >= FEWEST_TRIALS:
        least = needed - slack * error
        reached = gains.mean > least if strictly else gains.mean >= least
    found = (ours, theirs, gains.mean, error, needed, reached)
    return Goal(part, where, claim, rival, *found, beside or {})


def _pairs(result: Result, condition: str, figure: str, rival: str) -> Pairs:
    def value(trial: dict[str, Any], method: str) -> float:
        rows = trial["labelled"]
        key = (condition, method)
        return float(next(r[figure] for r in rows if (r["condition"], r["method"]) == key))

    return [(value(trial, OURS), value(trial, rival)) for trial in result["trials"]]
