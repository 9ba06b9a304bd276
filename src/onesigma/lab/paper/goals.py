"""What the project set out to reach, judged on the trials of a task.

    clean     not worse than BackboneDNN: accuracy; NLL and ECE, each after one temperature
    noise     NLL and ECE below those of BackboneDNN and of ApDeepSense, and within one standard
              error of those of MCDrop-30 or better
    foreign   the AUROC of the epistemic part 8 points above the best score of BackboneDNN
Differences are taken trial by trial, for both sides see the same input; their standard error is
std / √trials. With fewer than three trials nothing is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from onesigma.lab.paper import summary
from onesigma.lab.paper.conditions import CLEAN
from onesigma.lab.paper.methods import APDEEPSENSE, OURS, PLAIN
from onesigma.lab.paper.summary import Result, Spread

SAMPLED = "MCDrop-30"
MARGIN = 0.08
FEWEST_TRIALS = 3

Pairs = Sequence[tuple[float, float]]


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
        yield judged(CLEAN, CLEAN, claim, PLAIN, pairs, higher=figure == "accuracy")


def _noise(result: Result) -> Iterator[Goal]:
    for condition in result["conditions"]:
        if condition == CLEAN:
            continue
        for figure in ("NLL", "ECE"):
            for rival in (PLAIN, APDEEPSENSE):
                pairs = _pairs(result, condition, figure, rival)
                yield judged("noise", condition, f"{figure} lower", rival, pairs, strictly=True)
            pairs = _pairs(result, condition, figure, SAMPLED)
            claim = f"{figure} within one standard error, or lower"
            yield judged("noise", condition, claim, SAMPLED, pairs, slack=1.0)


def _foreign(result: Result) -> Iterator[Goal]:
    for kind in summary.foreign_kinds(result):
        areas = summary.areas(kind)
        means = {key: Spread.of(values).mean for key, values in areas.items()}
        best = max((key for key in areas if key[0] == PLAIN), key=lambda key: means[key])
        beside = {
            f"{method}, {score}": means[method, score]
            for method, score in ((OURS, "entropy"), (SAMPLED, "epistemic"))
            if (method, score) in means
        }
        pairs = list(zip(areas[OURS, "epistemic"], areas[best], strict=True))
        claim = f"epistemic AUROC {100 * MARGIN:.0f} points higher"
        yield judged(
            *("foreign", kind.name, claim, ", ".join(best), pairs),
            higher=True,
            needed=MARGIN,
            beside=beside,
        )


def judged(
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
