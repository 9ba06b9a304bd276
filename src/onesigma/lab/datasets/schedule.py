"""When which noise is on: one kind at a time, in periods with quiet gaps between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Period:
    """One kind of noise, from `start` to `stop`, in seconds from the beginning of the stream."""

    start: float
    stop: float
    kind: str


def schedule(
    seconds: float,
    kinds: Sequence[str],
    rng: np.random.Generator,
    *,
    lasting: tuple[float, float],
    gap: tuple[float, float],
) -> tuple[Period, ...]:
    """The periods of noise in a stream of `seconds`, in order, none overlapping another.

    Each lasts and is followed by a gap of a time drawn uniformly from (shortest, longest); its kind
    is drawn from `kinds`, all alike. The stream begins at a random instant of a gap, as if it had
    run before, and the last period ends with the stream.
    """
    if not kinds or lasting[0] <= 0 or gap[0] < 0 or lasting[1] < lasting[0] or gap[1] < gap[0]:
        raise ValueError(
            "Expected some kinds, lasting with 0 < shortest ≤ longest and gap with "
            f"0 ≤ shortest ≤ longest, got {list(kinds)}, {lasting} and {gap}."
        )
    periods = []
    clock = rng.uniform(0.0, rng.uniform(*gap))
    while clock < seconds:
        stop = clock + rng.uniform(*lasting)
        kind = kinds[int(rng.integers(len(kinds)))]
        periods.append(Period(clock, min(stop, seconds), kind))
        clock = stop + rng.uniform(*gap)
    return tuple(periods)
