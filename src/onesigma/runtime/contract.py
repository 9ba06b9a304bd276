"""The input contract: what is known of each channel, and words for what an input breaks.

The graph itself compares: it returns, for each statistic of each channel, where that lies between
what is known, −1 at the lowest and 1 at the highest (``decide.guard``). Here these numbers become
values again, and a sentence that names the channel. Needs no PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.answer import NOVEL, Answer
from onesigma.errors import InputError

# Of a channel over a window; all but the first are compared by their logarithms.
MEAN, SPREAD, PEAK, STEP = "mean", "std", "peak", "step"
STATISTICS = (MEAN, SPREAD, PEAK, STEP)
_NOT_A_NUMBER = "not a number: the input holds NaN or infinity"


@dataclass(frozen=True)
class Contract:
    """What is known of the inputs, learnt by ``fit``.

    Attributes:
        channels: their names, those of several inputs one after the other.
        low, high: for each of ``statistics`` the least and the most that is known of each channel,
            with a margin. ``std``, ``peak`` (the largest distance from the mean) and ``step``
            (the root mean square of differences between neighbours) are in units of the channel.
        units: of each channel, if they were given.
        window: instants in one input, if it is a series.
        rate: of the series, in Hz, if it was given.
    """

    channels: tuple[str, ...]
    low: Mapping[str, tuple[float, ...]]
    high: Mapping[str, tuple[float, ...]]
    units: tuple[str, ...] = ()
    window: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        count = len(self.channels)
        if self.units and len(self.units) != count:
            raise InputError(f"{len(self.units)} units for {count} channels.")
        for bounds in (self.low, self.high):
            if any(name not in STATISTICS or len(bounds[name]) != count for name in bounds):
                raise InputError("The bounds of a contract are one for each channel.")
        if [*self.low] != [*self.high] or not self.low:
            raise InputError("A contract has lower and upper bounds of the same statistics.")

    @property
    def statistics(self) -> tuple[str, ...]:
        """Those that it knows, in order; an input of single values has only means."""
        return tuple(self.low)

    def values(self, places: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """From places between the bounds to values: (inputs, statistics, channels)."""
        count = len(self.channels)
        given = np.asarray(places, np.float64)
        found = np.empty((given.size // (count * len(self.low)), len(self.low), count))
        given = given.reshape(found.shape)
        for k, name in enumerate(self.low):
            low, high = (_scale(name, np.asarray(b[name])) for b in (self.low, self.high))
            found[:, k] = (high + low) / 2 + given[:, k] * (high - low) / 2
            if name != MEAN:
                found[:, k] = np.exp(found[:, k].clip(-700, 700))
        return found

    def explain(self, answer: Answer[Any], *, figures: bool = True) -> list[str]:
        """For each input that is broken or unfamiliar, what is odd about which channel; else "".

        Without figures, inputs that are odd in the same way have the same words.
        """
        rows, texts = self.explain_odd(answer, figures=figures)
        found = dict(zip(rows.tolist(), texts, strict=True))
        return [found.get(row, "") for row in range(len(answer.mean))]

    def explain_odd(
        self, answer: Answer[Any], *, figures: bool = True
    ) -> tuple[npt.NDArray[np.intp], list[str]]:
        """The inputs that are broken or unfamiliar, and what is odd about each."""
        if answer.contract is None or answer.novelty is None:
            raise InputError("The answer is not of a guarded model: make one with onesigma.fit.")
        known = np.asarray(answer.in_contract) & (np.asarray(answer.novelty) >= NOVEL)
        odd, words = np.flatnonzero(~known), list[str]()
        # For all at once: a recording may hold millions of odd inputs.
        places = np.asarray(answer.contract)[odd]
        sizes, each = np.abs(places), np.arange(len(odd))
        worst, values = sizes.argmax(1), self.values(places)
        oddest = values.reshape(places.shape)[each, worst].tolist()
        found = zip(worst.tolist(), sizes[each, worst].tolist(), oddest, strict=True)
        for row, (place, most, value) in enumerate(found):
            if not math.isfinite(most):
                words.append(_NOT_A_NUMBER)
                continue
            guess = self._guess(place, values[row].tolist()) if most > 1 else ""
            subject, least, known = self._words[place]
            # Near 0 a logarithm is limited, so that a smaller value looks like this one.
            limit = "≤ " if value < least else ""
            sentence = f"{subject} {limit}{value:.3g}{known}" if figures else subject
            words.append(f"{sentence}: {guess}?" if guess else sentence)
        return odd, words

    @cached_property
    def _names(self) -> list[tuple[str, int]]:
        """The statistic and the channel at each place."""
        return [(name, channel) for name in self.low for channel in range(len(self.channels))]

    @cached_property
    def _words(self) -> list[tuple[str, float, str]]:
        """At each place: which channel, the least value that can be told, and what is known."""
        found = []
        for name, channel in self._names:
            low, high = self.low[name][channel], self.high[name][channel]
            unit = f" {self.units[channel]}" if self.units else ""
            subject = f"channel {self.channels[channel]}: {name}"
            known = f"{unit}, known {low:.3g} … {high:.3g}"
            found.append((subject, -math.inf if name == MEAN else low, known))
        return found

    def _guess(self, place: int, values: Sequence[Sequence[float]]) -> str:
        """What may have happened; "" if nothing common fits."""
        name, channel = self._names[place]
        value = values[self.statistics.index(name)][channel]
        low, high = self.low[name][channel], self.high[name][channel]
        if name != MEAN and value < low:
            return "flat line"
        if SPREAD in self.low:
            spread = values[self.statistics.index(SPREAD)][channel]
            if spread < self.low[SPREAD][channel]:
                return "stuck or saturated"
        other = self._swapped_with(channel, values)
        if other is not None:
            return f"swapped with {self.channels[other]}"
        return "other units" if abs(value) > 2 * max(abs(low), abs(high)) else ""

    def _swapped_with(self, channel: int, values: Sequence[Sequence[float]]) -> int | None:
        """Another channel, if each of the two would keep the other's bounds."""
        for other in range(len(self.channels)):
            crossed = ((channel, other), (other, channel))
            if other != channel and all(self._keeps(values, a, b) for a, b in crossed):
                return other
        return None

    def _keeps(self, values: Sequence[Sequence[float]], channel: int, other: int) -> bool:
        """Whether the values of a channel keep the bounds of another one."""
        bounds = zip(values, self.low.values(), self.high.values(), strict=True)
        return all(low[other] <= each[channel] <= high[other] for each, low, high in bounds)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Contract:
        low, high = (
            {str(name): tuple(map(float, values)) for name, values in content[side].items()}
            for side in ("low", "high")
        )
        window, rate = content.get("window"), content.get("rate")
        return cls(
            tuple(map(str, content["channels"])),
            low,
            high,
            tuple(map(str, content.get("units", ()))),
            None if window is None else int(window),
            None if rate is None else float(rate),
        )


def _scale(name: str, bound: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return bound if name == MEAN else np.log(bound)


def name_channels(count: int, names: Sequence[str] | None) -> tuple[str, ...]:
    """The names that were given, or numbers."""
    if names is None:
        return tuple(str(k) for k in range(count))
    if isinstance(names, str) or len(names) != count:
        raise InputError(f"channels: {count} names are needed, one for each; got {names!r}.")
    return tuple(map(str, names))
