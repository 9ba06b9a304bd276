"""How long several callables take, compared with each other: in one run, in turn, many times.

A machine is never quite idle, so times of different runs do not compare. Here every round times
each callable once, in a new random order, and what slows the machine slows all of them. A short one
is called once more just before: else what counts is how much the one before left in the caches.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Seconds of the clock, and of the processor, for each round: (2, rounds). NaN where a slow callable
# was left out of a round.
Samples = npt.NDArray[np.float64]
Name = TypeVar("Name", bound=Hashable)
Progress = Callable[[Iterable[int]], Iterable[int]]

_PARTS = 5
_FEWEST = 5
_SHORT = 1e-3  # seconds; one that is longer fills the caches itself


@dataclass(frozen=True)
class Timing:
    """Seconds per call. ``ratio`` is that of the minima, to the reference's.

    ``noise`` is the standard deviation of that ratio over fifths of the run, one after the other;
    None if the run was too short to say. ``cpu_ratio`` is the ratio of the processor's time: on a
    busy machine long calls are interrupted and short ones may not be, and only this one is fair.
    """

    calls: int
    minimum: float
    p50: float
    p90: float
    p99: float
    ratio: float
    noise: float | None
    cpu_ratio: float


def time_in_turn(
    calls: Mapping[Name, Callable[[], object]],
    *,
    repeats: int,
    seconds: float = float("inf"),
    threads: int = 1,
    seed: int = 0,
    progress: Progress = iter,
) -> dict[Name, Samples]:
    """Time the callables in turn, each up to ``repeats`` times, after two calls to warm up.

    Args:
        calls: what to time, by name.
        repeats: how many rounds.
        seconds: how long what is timed of one callable may take. A slow one is left out of some
            rounds, evenly over the run, but is timed five times at least (``repeats``, if less).
        threads: of PyTorch, during the run; other runtimes are given theirs when prepared.
        seed: of the order within the rounds.
        progress: wraps the rounds, to show how far it is.
    """
    found = {name: np.full((2, repeats), np.nan) for name in calls}
    shuffled, names = random.Random(seed), list(calls)
    with torch_threads(threads), _without_collection():
        lasting = {name: _duration(calls[name]) for name in names}
        turns = {n: int(min(repeats, max(_FEWEST, seconds / s))) for n, s in lasting.items()}
        for turn in progress(range(repeats)):
            shuffled.shuffle(names)
            for name in names:
                # n turns spread evenly over all the rounds: those in which the quotient steps up.
                if (turn + 1) * turns[name] // repeats > turn * turns[name] // repeats:
                    if lasting[name] < _SHORT:
                        calls[name]()
                    found[name][:, turn] = _seconds(calls[name])
    return found


def summarise(own: Samples, reference: Samples) -> Timing:
    """The summary of one callable's samples, against those of another of the same run."""
    (clock, processor), (reference_clock, reference_processor) = own, reference
    p50, p90, p99 = np.nanpercentile(clock, (50, 90, 99))
    parts = zip(*(np.array_split(x, _PARTS) for x in (clock, reference_clock)), strict=True)
    ratios = [_ratio(a, b) for a, b in parts if _any(a) and _any(b)]
    return Timing(
        calls=int(np.isfinite(clock).sum()),
        minimum=float(np.nanmin(clock)),
        p50=float(p50),
        p90=float(p90),
        p99=float(p99),
        ratio=_ratio(clock, reference_clock),
        noise=float(np.std(ratios, ddof=1)) if len(ratios) == _PARTS else None,
        cpu_ratio=_ratio(processor, reference_processor),
    )


@torch.no_grad()
def time_methods(
    methods: Mapping[str, Callable[[Tensor], object]], x: Tensor, *, reference: str, repeats: int
) -> dict[str, Timing]:
    """How long each method takes for one input, on one thread, compared with the reference."""
    calls = {name: partial(method, x) for name, method in methods.items()}
    samples = time_in_turn(calls, repeats=repeats)
    return {name: summarise(own, samples[reference]) for name, own in samples.items()}


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """PyTorch on so many threads, within the block only."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _without_collection() -> Iterator[None]:
    """The garbage collector would slow one callable and not the next."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _duration(call: Callable[[], object]) -> float:
    """Seconds of a call after one to warm up, which may capture or compile."""
    call()
    return _seconds(call)[0]


def _seconds(call: Callable[[], object]) -> tuple[float, float]:
    processor, clock = time.process_time(), time.perf_counter()
    call()
    return time.perf_counter() - clock, time.process_time() - processor


def _ratio(own: npt.NDArray[Any], reference: npt.NDArray[Any]) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):  # a clock may be too coarse
        return float(np.nanmin(own) / np.nanmin(reference))


def _any(samples: npt.NDArray[Any]) -> bool:
    return bool(np.isfinite(samples).any())
