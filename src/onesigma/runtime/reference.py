"""``Reference``: what a model says of known inputs, in a few numbers, with their own uncertainty.

A stream is watched by scores s, where more is more unusual. Of n known inputs, let t be the one
with c others above it. How many of all known inputs lie above t was estimated from n, so it is
replaced by its upper limit: whatever the distribution, ties included,

    P(s > t) ≤ u   with confidence 1 − d,   where   P(Binomial(n, u) ≤ c) = d
(Clopper and Pearson; for a rank fixed in advance P(s > t) is at most Beta(c + 1, n − c)). The
risk of 5 % is shared by all limits, so that all of them hold at once with 95 % confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.answer import NOVEL
from onesigma.errors import InputError

Values = npt.NDArray[np.float64]
Tail = tuple[tuple[float, float], ...]  # (t, u), the most unusual first
LEVELS = (0.0, 0.01, 0.03, 0.1, 0.25, 0.5)  # shares of known inputs above t
RISK = 0.05
SHOWN = {"novelty": f"novelty below {NOVEL:g}", "entropy": "mean entropy", "abstained": "abstained"}
ABSTAINED = "abstained"
STREAMS = ("novelty", "high entropy", "low entropy", ABSTAINED)
_DIGITS = 4  # that are kept of each number


@dataclass(frozen=True)
class Reference:
    """What ``Monitor`` compares with; made by ``Reference.learn``, about 0.5 kB as JSON.

    Attributes:
        n: how many known inputs it was learnt from.
        known: of them: the share with a novelty below 0.02, the mean entropy, the share abstained.
        tails: for each stream, thresholds and the upper limits of the shares beyond them.
    """

    n: int
    known: Mapping[str, float]
    tails: Mapping[str, Tail]

    def __post_init__(self) -> None:
        if type(self.n) is not int or self.n < 1:
            raise InputError(f"n={self.n!r}: a reference is learnt from one input or more.")
        if not self.tails or not {*self.tails} <= {*STREAMS} or not {*self.known} <= {*SHOWN}:
            raise InputError(f"A reference has tails of {', '.join(STREAMS)}, at least of one.")
        for name, tail in self.tails.items():
            t, u = np.array(tail, dtype=float).reshape(-1, 2).T
            ordered = (np.diff(t) <= 0).all() and (np.diff(u) > 0).all() and len(u)
            if not (np.isfinite(t).all() and ordered and u[0] > 0 and u[-1] < 1):
                raise InputError(f"The tail of {name} is damaged: learn the reference again.")
        if not all(math.isfinite(value) for value in self.known.values()):
            raise InputError("A reference holds finite numbers.")

    @classmethod
    def learn(cls, prediction: Any) -> Reference:
        """Learn it from the answers to inputs that are known, independent, and new to the model.

        Args:
            prediction: what the model says of them, from the runtime that will be watched. Of
                ``novelty``, ``entropy`` and ``act``, those that it has are used.
        """
        values = read(prediction)
        values = {name: each[usable(values)] for name, each in values.items()}
        n = len(next(iter(values.values())))
        if n == 0:
            raise InputError("None of the inputs has a finite answer: there is nothing to learn.")
        each = scores(values)
        found = {name: _tail(name, score, RISK / len(each)) for name, score in each.items()}
        known = {name: _brief(float(column.mean())) for name, column in shown(values).items()}
        return cls(n, known, {name: tail for name, tail in found.items() if tail})

    def without(self, stream: str) -> Reference | None:
        """The other streams: for when this one no longer is what it was. None if none is left."""
        tails = {name: tail for name, tail in self.tails.items() if name != stream}
        known = {name: value for name, value in self.known.items() if name != stream}
        return Reference(self.n, known, tails) if tails else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Reference:
        try:
            tails = {
                name: tuple((float(t), float(u)) for t, u in tail)
                for name, tail in content["tails"].items()
            }
            known = {name: float(value) for name, value in content["known"].items()}
            return cls(content["n"], known, tails)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"This is no reference of a monitor: {error!r}.") from error


def read(prediction: Any) -> dict[str, Values]:
    """Novelty, entropy and abstentions, those that there are: one number per input."""
    found = {}
    for name in ("novelty", "entropy", "act"):
        value = getattr(prediction, name, None)
        if value is None:
            continue
        if hasattr(value, "detach"):  # a tensor, of any device and dtype
            value = value.detach().cpu().double()
        each = np.asarray(value, dtype=np.float64)
        # Positions of one input are not independent: a map counts as one number.
        found[name] = each if each.ndim == 1 else each.reshape(len(each), -1).mean(1)
    if len({len(value) for value in found.values()}) != 1:
        raise InputError("A monitor takes novelty, entropy or act, of the same length each.")
    if "act" in found:
        found["abstained"] = 1 - found.pop("act")
    return found


def usable(values: Mapping[str, Values]) -> npt.NDArray[np.bool_]:
    """False where a value is NaN or infinite: so are those of an invalid input."""
    return np.asarray(np.isfinite(np.stack([*values.values()])).all(0))


def scores(values: Mapping[str, Values]) -> dict[str, Values]:
    """What is watched: more is more unusual."""
    signs = {"novelty": ("novelty", -1), "high entropy": ("entropy", 1)}
    signs |= {"low entropy": ("entropy", -1), "abstained": ("abstained", 1)}
    return {name: sign * values[of] for name, (of, sign) in signs.items() if of in values}


def shown(values: Mapping[str, Values]) -> dict[str, Values]:
    """What is averaged for the reader."""
    odd = {"novelty": (values["novelty"] < NOVEL).astype(float)} if "novelty" in values else {}
    return {**values, **odd}


def _tail(name: str, score: Values, risk: float) -> Tail:
    n = len(score)
    if name == ABSTAINED:  # the one event is given: it is counted
        limit = upper_limit(int(score.sum()), n, risk)
        return ((0.0, _above(limit)),) if _above(limit) < 1 else ()
    ranks, ordered = sorted({int(level * n) for level in LEVELS}), np.sort(score)[::-1]
    limits = [_above(upper_limit(rank, n, risk / len(ranks))) for rank in ranks]
    pairs = zip(ranks, limits, strict=True)
    return tuple((_above(float(ordered[r])), u) for r, u in pairs if u < 1)


def _above(value: float) -> float:
    """Short in JSON, and never less: beyond a higher threshold there are no more inputs."""
    if abs(value) < 1e-300:
        return max(value, 0.0)
    step = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - _DIGITS)
    return max(value, _brief(math.ceil(value / step) * step))


def _brief(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def upper_limit(count: int, n: int, risk: float) -> float:
    """The largest share that still gives at most ``count`` of ``n`` with probability ``risk``."""
    if count >= n:
        return 1.0
    i = np.arange(1, count + 1)
    choices = np.concatenate([[0.0], np.log((n - i + 1) / i).cumsum()])
    i, low, high = np.arange(count + 1), count / n, 1.0
    while high - low > 1e-6 * high:
        p = (low + high) / 2
        chance = np.exp(choices + i * math.log(p) + (n - i) * math.log1p(-p)).sum()
        low, high = (p, high) if chance > risk else (low, p)
    return high
