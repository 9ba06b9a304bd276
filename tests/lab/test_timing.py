"""Interleaved timing, on a clock of the test's own: nothing here depends on the machine."""

import gc

import numpy as np
import pytest
import torch

from onesigma.lab import timing
from onesigma.lab.timing import time_in_turn, time_methods


class Clock:
    """Stands still but for what callables take."""

    def __init__(self) -> None:
        self.now = 0.0
        self.worked = 0.0

    def takes(self, *seconds: float, interrupted: float = 0.0):
        """A callable that takes these times in turn, the last one from then on."""
        times = list(seconds)

        def call() -> None:
            taken = times.pop(0) if len(times) > 1 else times[0]
            self.now += taken + interrupted
            self.worked += taken

        return call


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: made.now)
    monkeypatch.setattr(timing.time, "process_time", lambda: made.worked)
    return made


def summary(samples, name, reference):
    return timing.summarise(samples[name], samples[reference])


def test_minimum_percentiles_and_ratio(clock):
    calls = {"a": clock.takes(2.0), "b": clock.takes(9, 9, *range(10, 0, -1))}
    samples = time_in_turn(calls, repeats=10)
    found = summary(samples, "b", "a")
    assert found.calls == 10
    assert found.minimum == 1
    assert found.p50 == np.percentile(range(1, 11), 50)
    assert found.p99 == np.percentile(range(1, 11), 99)
    assert found.ratio == 0.5
    # In fifths of the run the minima are 9, 7, 5, 3, 1, those of "a" always 2.
    assert found.noise == pytest.approx(np.std([4.5, 3.5, 2.5, 1.5, 0.5], ddof=1))
    assert summary(samples, "a", "a").noise == 0


def test_the_first_two_calls_do_not_count(clock):
    samples = time_in_turn({"a": clock.takes(100.0, 50.0, 1.0)}, repeats=4)
    assert samples["a"][0].tolist() == [1, 1, 1, 1]


def test_a_short_one_is_called_just_before_it_is_timed(clock):
    # Of each two calls the first finds the caches full of something else.
    short = clock.takes(9e-4, 9e-4, *[9e-4, 1e-4] * 3)
    samples = time_in_turn({"short": short, "long": clock.takes(1.0)}, repeats=3)
    assert samples["short"][0] == pytest.approx([1e-4, 1e-4, 1e-4])
    assert clock.worked == pytest.approx(2 * 9e-4 + 3 * (9e-4 + 1e-4) + 5 * 1.0)


def test_a_slow_one_sits_rounds_out_evenly(clock):
    calls = {"fast": clock.takes(0.01), "slow": clock.takes(1.0)}
    samples = time_in_turn(calls, repeats=100, seconds=10)
    rounds = np.flatnonzero(np.isfinite(samples["slow"][0]))
    assert len(rounds) == 10
    assert set(np.diff(rounds)) == {10}
    assert np.isfinite(samples["fast"]).all()
    assert summary(samples, "slow", "fast").ratio == pytest.approx(100)


def test_even_the_slowest_is_called_five_times(clock):
    samples = time_in_turn({"slow": clock.takes(1000.0)}, repeats=100, seconds=1)
    assert np.isfinite(samples["slow"][0]).sum() == 5
    assert np.isfinite(time_in_turn({"slow": clock.takes(9.0)}, repeats=3, seconds=1)["slow"]).all()


def test_interruptions_do_not_count_as_work(clock):
    calls = {"short": clock.takes(1.0), "long": clock.takes(30.0, interrupted=30.0)}
    found = summary(time_in_turn(calls, repeats=5), "long", "short")
    assert found.ratio == 60
    assert found.cpu_ratio == 30


def test_the_order_is_drawn_anew_each_round(clock):
    order: list[str] = []

    def make(name: str):
        take = clock.takes(1.0)
        return lambda: (order.append(name), take())

    time_in_turn({name: make(name) for name in "abcd"}, repeats=20)
    rounds = ["".join(order[i : i + 4]) for i in range(8, len(order), 4)]
    assert all(sorted(each) == list("abcd") for each in rounds)
    assert len(set(rounds)) > 5


def test_a_short_run_has_no_noise(clock):
    samples = time_in_turn({"a": clock.takes(1.0)}, repeats=3)
    assert summary(samples, "a", "a").noise is None


def test_threads_and_the_collector_are_restored_after_an_error():
    before = torch.get_num_threads()
    seen = []

    def fail() -> None:
        seen.append((torch.get_num_threads(), gc.isenabled()))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        time_in_turn({"a": fail}, repeats=2, threads=before + 1)
    assert seen == [(before + 1, False)]
    assert torch.get_num_threads() == before
    assert gc.isenabled()


def test_progress_sees_every_round():
    seen = []

    def progress(rounds):
        for each in rounds:
            seen.append(each)
            yield each

    time_in_turn({"a": lambda: None}, repeats=7, progress=progress)
    assert seen == list(range(7))


def test_methods_are_compared_with_the_reference(clock):
    takes = {"plain": clock.takes(2.0), "one pass": clock.takes(3.0)}
    methods = {name: lambda x, call=call: call() for name, call in takes.items()}
    found = time_methods(methods, torch.zeros(1), reference="plain", repeats=5)
    assert found["plain"].ratio == 1
    assert found["one pass"].ratio == 1.5
    assert found["one pass"].minimum == 3
