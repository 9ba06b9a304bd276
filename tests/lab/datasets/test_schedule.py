from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onesigma.lab.datasets.schedule import schedule

KINDS = ("a", "b", "c")
LIMITS = {"lasting": (20.0, 120.0), "gap": (120.0, 300.0)}


def drawn(seconds, seed=0, **limits):
    return schedule(seconds, KINDS, np.random.default_rng(seed), **(LIMITS | limits))


@settings(max_examples=60, deadline=None)
@given(seconds=st.floats(0, 20_000), seed=st.integers(0, 2**32))
def test_periods_and_gaps_keep_their_limits(seconds, seed):
    periods = drawn(seconds, seed)
    assert all(0 <= p.start < p.stop <= seconds for p in periods)
    # Only the end of the stream cuts a period short.
    assert all(20 <= p.stop - p.start <= 120 for p in periods[:-1])
    assert all(p.stop - p.start <= 120 for p in periods)
    gaps = [after.start - before.stop for before, after in pairwise(periods)]
    assert all(120 - 1e-6 <= gap <= 300 + 1e-6 for gap in gaps)
    # What is before the first and after the last period is part of a gap.
    assert (periods[0].start if periods else seconds) <= 300
    if periods and periods[-1].stop < seconds:
        assert seconds - periods[-1].stop <= 300
    assert {p.kind for p in periods} <= set(KINDS)
    assert periods == drawn(seconds, seed)


def test_a_quarter_of_a_long_stream_is_noisy_and_kinds_take_equal_shares():
    seconds = 4e6
    periods = drawn(seconds)
    # A cycle lasts 70 s of noise and 210 s of quiet on average.
    assert sum(p.stop - p.start for p in periods) / seconds == pytest.approx(0.25, abs=0.005)
    counts = np.unique([p.kind for p in periods], return_counts=True)[1] / len(periods)
    assert counts == pytest.approx([1 / 3] * 3, abs=5 * np.sqrt(2 / 9 / len(periods)))


def test_without_gaps_all_of_the_stream_is_covered():
    periods = drawn(1000.0, gap=(0.0, 0.0))
    assert periods[0].start == 0
    assert periods[-1].stop == 1000
    assert all(a.stop == b.start for a, b in pairwise(periods))


def test_no_stream_has_no_periods():
    assert drawn(0.0) == ()


@pytest.mark.parametrize(
    "limits", [{"lasting": (0, 1)}, {"lasting": (3, 2)}, {"gap": (-1, 1)}, {"gap": (3, 2)}]
)
def test_limits_that_make_no_sense_are_refused(limits):
    with pytest.raises(ValueError, match="shortest ≤ longest"):
        drawn(100.0, **limits)


def test_some_kind_there_must_be():
    with pytest.raises(ValueError, match="some kinds"):
        schedule(100.0, (), np.random.default_rng(0), **LIMITS)
