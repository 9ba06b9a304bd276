"""``Monitor``: does a stream still look like known inputs? A test at every input, without end.

For each stream with limits 0 = u₀ < u₁ < … < 1 of its tail (``Reference``), an input in bin j,
beyond the j-th threshold but not beyond the one before, wins the bet of parameters w and a

    e = 1 − w + w (uⱼᵃ − uⱼ₋₁ᵃ) / (uⱼ − uⱼ₋₁)
which falls with j, so E[e] ≤ 1 for every input like the known ones. Of each bet the Shiryaev–
Roberts sum over all times at which a drift may have begun

    Mₙ = eₙ (Mₙ₋₁ + 1),  M₀ = 0        evidence = mean of M over the bets, then over the streams
is an e-detector (Shin, Ramdas & Rinaldo 2023). At evidence ≥ A = 1 / false_alarms there is an
alarm, and all M start again at 0. With Nₙ alarms so far, evidence + A Nₙ − n is a supermartingale
on independent known inputs, whatever the streams have to do with each other, so for every n

    E[Nₙ] ≤ n false_alarms
A drift after a quiet year is found as soon as one on the first day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.decide.history import History
from onesigma.errors import InputError
from onesigma.runtime.reference import RISK, SHOWN, Reference, Values, read, scores, shown, usable
from onesigma.text_table import text_table

# (w, a): the first four suit inputs that are all a little odd, the others a few that are very odd.
BETS = ((1, 0.85), (1, 0.65), (1, 0.4), (1, 0.15), (0.1, 0.4), (0.3, 0.1), (0.1, 0.1), (0.03, 0.1))
KEPT = 1000  # alarms: a drift that stays raises one after the other
_BLOCK, _LARGE = 256, 1e150  # inputs whose payoffs are multiplied, and how large that may be


@dataclass(frozen=True)
class Alarm:
    """The stream no longer looks like known inputs.

    Attributes:
        index: the input that raised it, counted from 0 over all that ``update`` was given.
        stream: what speaks most against known inputs.
        evidence: on average, known inputs take at least so many inputs to reach it.
    """

    index: int
    stream: str
    evidence: float


class Monitor:
    """Watch a model's answers for drift, with a stated rate of false alarms: ``guarantee``.

    Attributes:
        inputs: how many it was given.
        alarms: the last 1000.
        alarm_count: how many there were in all.
    """

    def __init__(
        self, reference: Reference, false_alarms: float = 0.001, window: int = 500, every: int = 1
    ) -> None:
        """Start to watch.

        Args:
            reference: of known inputs, from ``Reference.learn``.
            false_alarms: how many to accept, per input that is tested: 0.001 is one in 1000.
            window: ``state`` is an average over so many of the last inputs that were tested.
            every: test only each k-th input, where neighbours are alike.
        """
        if not 0 < false_alarms < 1:
            raise InputError(f"false_alarms={false_alarms}: it is a share, between 0 and 1.")
        if type(window) is not int or type(every) is not int or min(window, every) < 1:
            raise InputError(f"window={window}, every={every}: they are whole numbers from 1.")
        self.reference, self.false_alarms = reference, false_alarms
        self.window, self.every = window, every
        self.inputs = self.alarm_count = 0
        self.alarms: list[Alarm] = []
        self._history = History()
        self._recent = np.empty((0, len(SHOWN)))
        self._sums = np.zeros((len(reference.tails), len(BETS)))
        self._payoffs = [payoffs([u for _, u in tail]) for tail in reference.tails.values()]

    def update(self, prediction: Any) -> list[Alarm]:
        """Take the answers to the next inputs, in the order of time; returns the new alarms."""
        values = read(prediction)
        total = len(next(iter(values.values())))
        places = np.arange(-self.inputs % self.every, total, self.every)
        values = {name: each[places] for name, each in values.items()}
        valid = usable(values)
        payoff = self._payoff({name: each[valid] for name, each in scores(values).items()})
        absent = np.full(len(places), np.nan)
        rows = np.stack([shown(values).get(name, absent) for name in SHOWN], 1)
        rows[~valid] = np.nan
        evidence = np.zeros(len(places))
        alarms, evidence[valid] = self._test(payoff, self.inputs + places[valid])
        self._recent = np.concatenate([self._recent, rows])[-self.window :]
        self._history.add(rows, valid, evidence)
        self.inputs += total
        self.alarm_count += len(alarms)
        self.alarms = [*self.alarms, *alarms][-KEPT:]
        return alarms

    def _payoff(self, score: Mapping[str, Values]) -> Values:
        """What each input wins, per stream and bet."""
        columns = []
        for (name, tail), table in zip(self.reference.tails.items(), self._payoffs, strict=True):
            if name not in score:
                raise InputError(f"The reference knows of {name}, but this prediction does not.")
            beyond = np.searchsorted([t for t, _ in reversed(tail)], score[name])
            columns.append(table[len(tail) - beyond])
        return np.stack(columns, 1)

    def _test(self, payoff: Values, index: npt.NDArray[np.intp]) -> tuple[list[Alarm], Values]:
        """The recursion over a block at once: M = P (M₀ + Σ 1 / P′), where P is the product of the
        payoffs up to an input and P′ that up to the one before it.
        """
        alarms, evidence, start, block = [], np.zeros(len(payoff)), 0, _BLOCK
        while start < len(payoff):
            with np.errstate(over="ignore", under="ignore"):
                part = payoff[start : start + block]
                product = part.cumprod(0)
            if not 1 / _LARGE < product.min() <= product.max() < _LARGE:
                wild = ((product <= 1 / _LARGE) | (product >= _LARGE)).any((1, 2))
                product = product[: max(1, int(wild.argmax()))]
            before = product / part[: len(product)]
            sums = product * (self._sums + (1 / before).cumsum(0))
            found = sums.reshape(len(sums), -1) @ np.full(self._sums.size, 1 / self._sums.size)
            over = np.flatnonzero(found * self.false_alarms >= 1)
            last = int(over[0]) if len(over) else len(found) - 1
            evidence[start : start + last + 1] = found[: last + 1]
            self._sums, block = sums[last], _BLOCK
            if len(over):
                stream = [*self.reference.tails][int(self._sums.mean(1).argmax())]
                alarms.append(Alarm(int(index[start + last]), stream, float(found[last])))
                # In a drift the next alarm is near: a long block would be computed in vain.
                self._sums, block = np.zeros_like(self._sums), last + 2
            start += last + 1
        return alarms, evidence

    @property
    def state(self) -> dict[str, float]:
        """Averages over the last ``window`` inputs tested, and the share of invalid ones."""
        if not len(self._recent):
            return {}
        valid = ~np.isnan(self._recent).all(1)
        names = [(i, name) for i, name in enumerate(SHOWN) if name in self.reference.known]
        means = {name: float(self._recent[valid, i].mean()) for i, name in names if valid.any()}
        return {**means, "invalid": 1 - float(valid.mean())}

    @property
    def history(self) -> dict[str, Values]:
        """Averages from the first input on, in at most 512 blocks; ``index`` is where they end."""
        arrays = self._history.arrays()
        kept = {k: v for k, v in arrays.items() if k not in SHOWN or k in self.reference.known}
        return {"index": np.minimum(kept.pop("end") * self.every, self.inputs), **kept}

    @property
    def evidence(self) -> dict[str, float]:
        """What each stream adds to it; at a sum of 1 / ``false_alarms`` there is an alarm."""
        parts = self._sums.sum(1) / self._sums.size
        return dict(zip(self.reference.tails, parts.tolist(), strict=True))

    @property
    def drifting(self) -> bool:
        """Whether there was an alarm among the last ``window`` inputs tested."""
        first = self.inputs - self.window * self.every
        return bool(self.alarms) and self.alarms[-1].index >= first

    @property
    def verdict(self) -> str:
        """One line: whether the stream looks like known inputs."""
        if not self.alarms:
            return f"no drift found in {self.inputs} inputs"
        last = self.alarms[-1]
        kind = "drift" if self.drifting else "no drift now"
        many = f"{self.alarm_count} alarm" + "s" * (self.alarm_count > 1)
        return f"{kind}: {many} in {self.inputs} inputs, last at {last.index} by {last.stream}"

    @property
    def guarantee(self) -> str:
        """What is promised."""
        tested = "inputs" if self.every == 1 else "inputs tested"
        return (
            f"On independent inputs like the {self.reference.n} known ones: on average at most one "
            f"false alarm in {1 / self.false_alarms:.4g} {tested}, with {100 * (1 - RISK):.0f} % "
            "confidence in the known ones."
        )

    def __str__(self) -> str:
        rows, state = [], self.state
        for name, words in {**SHOWN, "invalid": "invalid"}.items():
            if name in self.reference.known or name == "invalid":
                parts = [part for stream, part in self.evidence.items() if stream.endswith(name)]
                pair = [_number(name, each.get(name)) for each in (state, self.reference.known)]
                rows.append([words, *pair, f"{sum(parts):.0f}" if parts else ""])
        needed = f"evidence (alarm: {1 / self.false_alarms:.6g})"
        header = ["", f"last {len(self._recent)}", "known", needed]
        return f"{self.verdict}\n\n{text_table(header, rows, numbers=True)}\n\n{self.guarantee}"

    def plot(self, path: Path | str) -> None:
        """Draw the history as PNG; needs matplotlib."""
        from onesigma.decide.plots import draw_monitor

        draw_monitor(self, path)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: all there is, so that a device can stop and go on."""
        names = ("false_alarms", "window", "every", "inputs", "alarm_count")
        return {name: getattr(self, name) for name in names} | {
            "reference": self.reference.to_dict(),
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "sums": self._sums.tolist(),
            "recent": [[None if np.isnan(v) else v for v in row] for row in self._recent.tolist()],
            "history": self._history.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Monitor:
        try:
            settings = (content[name] for name in ("false_alarms", "window", "every"))
            monitor = cls(Reference.from_dict(content["reference"]), *settings)
            monitor.inputs, monitor.alarm_count = (
                int(content[name]) for name in ("inputs", "alarm_count")
            )
            monitor.alarms = [Alarm(**alarm) for alarm in content["alarms"]]
            monitor._sums = np.array(content["sums"], float).reshape(monitor._sums.shape)
            monitor._recent = np.array(content["recent"], float).reshape(-1, len(SHOWN))
            monitor._history = History.from_dict(content["history"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"This is no state of a monitor: {error!r}.") from error
        return monitor


def payoffs(limits: list[float]) -> Values:
    """What each bin (the most unusual first) wins in each bet."""
    edges = np.array([0.0, *limits, 1.0])
    w, a = np.array(BETS).T
    table: Values = 1 - w + w * np.diff(edges[:, None] ** a, axis=0) / np.diff(edges)[:, None]
    return table


def _number(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if name == "entropy" else f"{100 * value:.1f} %"
