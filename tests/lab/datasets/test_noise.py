"""The paper's noise: its schedule, on motion, on sound; and random input."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline

from onesigma.errors import DataError
from onesigma.lab.datasets import esc, noise
from onesigma.lab.datasets.motion import Recording
from onesigma.lab.datasets.noise import (
    NOISES,
    Period,
    add_ambient,
    add_noise,
    ambient_stream,
    is_noisy,
    mix,
    plan_ambient,
    plan_motion,
    schedule,
    sensor_spread,
)
from onesigma.lab.datasets.prepared import data_root

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


TRIADS = ((0, 1, 2), (5, 3, 4))
CHANNELS = 7  # the last belongs to no sensor
UNIT = np.array([0.5, 0.5, 0.5, 3.0, 3.0, 3.0, 0.1])

seeds = st.integers(0, 2**32)
strengths = st.floats(0, 3)
# Lengths below, at and above a block of 2.5 s, and rates from a watch's to a phone's.
lengths = st.integers(1, 700)
rates = st.sampled_from([25.0, 33.3, 50.0, 200.0])
each_noise = pytest.mark.parametrize("kind", NOISES)
quickly = settings(max_examples=25, deadline=None)


def alter(kind, signal, seed=0, strength=1.0, rate=50.0):
    return NOISES[kind](signal, rate, TRIADS, np.random.default_rng(seed), strength)


def stream(n, seed=0):
    return np.random.default_rng([seed, 1]).normal(size=(n, CHANNELS))


def ramp(n):
    """Each instant holds its own number, so that the result says where every value came from."""
    return np.tile(np.arange(n, dtype=np.float64)[:, None], (1, CHANNELS))


def record(n=9000, rate=50.0, seed=0, **changes):
    signal = (UNIT * stream(n, seed)).astype(np.float32)
    plain = Recording(signal, rate, np.arange(n) // 100, "u", TRIADS, "r")
    return replace(plain, **changes)


@each_noise
@quickly
@given(n=lengths, seed=seeds, rate=rates, strength=strengths)
def test_shape_is_kept_input_untouched_and_the_seed_decides(kind, n, seed, rate, strength):
    signal = stream(n, seed)
    before = signal.copy()
    altered = alter(kind, signal, seed, strength, rate)
    assert altered.shape == signal.shape
    assert np.isfinite(altered).all()
    assert np.array_equal(signal, before)
    assert np.array_equal(altered, alter(kind, signal, seed, strength, rate))


@each_noise
@quickly
@given(n=lengths, seed=seeds, rate=rates)
def test_no_strength_is_no_change(kind, n, seed, rate):
    signal = stream(n, seed)
    assert np.array_equal(alter(kind, signal, seed, 0.0, rate), signal)


@each_noise
def test_every_noise_does_something_and_another_seed_something_else(kind):
    signal = stream(500)
    assert not np.allclose(alter(kind, signal, 1), signal)
    assert not np.allclose(alter(kind, signal, 1), alter(kind, signal, 2))


@quickly
@given(seed=seeds, strength=strengths)
def test_rotation_is_rigid_the_same_for_all_sensors_and_leaves_the_rest(seed, strength):
    signal = stream(50, seed)
    turned = alter("rotation", signal, seed, strength)
    (a, b), (c, d) = ([x[:, list(t)] for t in TRIADS] for x in (signal, turned))
    for before, after in ((a, c), (b, d)):
        assert np.linalg.norm(after, axis=1) == pytest.approx(np.linalg.norm(before, axis=1))
    assert (c * d).sum(axis=1) == pytest.approx((a * b).sum(axis=1))
    # A mirror image would turn the cross product around.
    matrix = np.linalg.lstsq(a, c, rcond=None)[0]
    assert np.cross(c, d) == pytest.approx(np.cross(a, b) @ matrix)
    assert np.linalg.det(matrix) == pytest.approx(1)
    angle = np.arccos(np.clip((np.trace(matrix) - 1) / 2, -1, 1))
    assert angle <= np.pi * min(strength, 1) + 1e-6
    assert np.array_equal(turned[:, 6], signal[:, 6])


def test_rotation_without_sensors_is_nothing():
    signal = stream(20)
    rng = np.random.default_rng(0)
    assert np.array_equal(noise.rotation(signal, 50.0, (), rng, 1.0), signal)


@quickly
@given(n=lengths, seed=seeds, strength=strengths, rate=rates)
def test_permutation_keeps_the_rows_of_each_block(n, seed, strength, rate):
    length = round(2.5 * rate)
    origin = alter("permutation", ramp(n), seed, strength, rate)[:, 0].astype(int)
    pieces = 1 + round(3 * strength)
    for start in range(0, n, length):
        block = origin[start : start + length]
        assert sorted(block) == list(range(start, min(start + length, n)))
        assert np.count_nonzero(np.diff(block) != 1) < pieces
    # Whole rows move.
    signal = stream(n, seed)
    assert np.array_equal(alter("permutation", signal, seed, strength, rate), signal[origin])


@quickly
@given(n=lengths, seed=seeds, strength=strengths, rate=rates)
def test_time_warp_keeps_the_ends_and_the_order_of_time(n, seed, strength, rate):
    warped = alter("time-warp", ramp(n), seed, strength, rate)
    assert warped[0] == pytest.approx(0, abs=1e-9)
    assert warped[-1] == pytest.approx(n - 1)
    assert (np.diff(warped, axis=0) > 0).all()
    assert np.ptp(warped, axis=1).max() < 1e-9  # one clock for all


def test_time_warp_changes_speed_by_its_stated_spread():
    position = alter("time-warp", ramp(200_000), strength=1.0)[:, 0]
    # Between its knots the curve is flatter than at them: of std 0.9.
    assert np.log(np.diff(position)).std() == pytest.approx(0.9 * 0.2, rel=0.05)


@quickly
@given(seed=seeds, strength=strengths, a=st.floats(-10, 10), b=st.floats(-10, 10))
@pytest.mark.parametrize("kind", [k for k in NOISES if k != "jitter"])
def test_all_but_jitter_are_linear(kind, seed, strength, a, b):
    x, y = stream(200, 1), stream(200, 2)
    together = alter(kind, a * x + b * y, seed, strength)
    apart = a * alter(kind, x, seed, strength) + b * alter(kind, y, seed, strength)
    np.testing.assert_allclose(together, apart, atol=1e-9)


def test_scaling_is_one_positive_factor_per_channel_of_the_stated_spread():
    factors = alter("scaling", np.ones((2, 10_000)), strength=3.0)
    assert np.ptp(factors, axis=0).max() == 0
    assert np.log(factors[0]).std() == pytest.approx(0.3, rel=0.03)
    assert np.log(factors[0]).mean() == pytest.approx(0, abs=0.01)
    weaker = alter("scaling", np.ones((2, 10_000)), strength=1.0)
    assert np.log(factors) == pytest.approx(3 * np.log(weaker))


def test_magnitude_warp_is_a_smooth_positive_curve_per_channel():
    curves = np.log(alter("magnitude-warp", np.ones((300, 3000))))
    assert curves[0].std() == pytest.approx(0.2, rel=0.05)  # the first instant is a knot
    assert np.abs(np.diff(curves, axis=0)).max() < 0.05
    assert np.corrcoef(curves[:, 0], curves[:, 1])[0, 1] != pytest.approx(1)


def test_curves_are_the_splines_they_are_said_to_be():
    n, rate, columns = 600, 50.0, 3
    curves = noise.smooth_curves((n, columns), rate, np.random.default_rng(5))
    knots = np.random.default_rng(5).normal(size=((n - 1) // 125 + 4, columns))
    tangents = (knots[2:] - knots[:-2]) / 2
    spline = CubicHermiteSpline(np.arange(len(tangents)), knots[1:-1], tangents)
    np.testing.assert_allclose(curves, spline(np.arange(n) / 125), atol=1e-12)


@pytest.mark.parametrize("strength", [0.5, 1.0, 4.0])
def test_jitter_is_white_and_of_the_stated_spread(strength):
    signal = stream(40_000)
    added = alter("jitter", signal, strength=strength) - signal
    assert added.std() == pytest.approx(0.1 * strength, rel=0.01)
    assert added.mean() == pytest.approx(0, abs=0.002 * strength)
    assert np.corrcoef(added[1:, 0], added[:-1, 0])[0, 1] == pytest.approx(0, abs=0.025)


@quickly
@given(n=lengths, seed=seeds, strength=strengths, rate=rates)
def test_crop_draws_out_a_stretch_of_each_block(n, seed, strength, rate):
    length = round(2.5 * rate)
    origin = alter("crop", ramp(n), seed, strength, rate)[:, 0]
    for start in range(0, n, length):
        stretch = origin[start : start + length]
        assert stretch[0] >= start - 1e-9
        assert stretch[-1] <= min(start + length, n) - 1 + 1e-9
        assert np.diff(stretch) == pytest.approx(1 / (1 + 0.5 * strength))


@quickly
@given(seed=seeds, n=st.integers(1, 40))
def test_sampling_between_instants_is_linear_interpolation(seed, n):
    rng = np.random.default_rng(seed)
    signal, position = rng.normal(size=(n, 2)), rng.uniform(-3, n + 3, 60)
    expected = [np.interp(position, np.arange(n), channel) for channel in signal.T]
    np.testing.assert_allclose(noise.sample_at(signal, position), np.stack(expected, axis=1))


@each_noise
def test_outside_the_periods_nothing_changes_and_inside_something_does(kind):
    source = record()
    kept, labels = source.signal.copy(), source.labels.copy()
    periods = (Period(20.0, 60.0, kind), Period(100.0, 130.5, kind))
    (noisy,) = add_noise([source], periods, UNIT, np.random.default_rng(0))
    inside = np.zeros(9000, dtype=bool)
    inside[1000:3000] = inside[5000:6525] = True
    assert noisy.signal.dtype == np.float32
    assert np.array_equal(noisy.signal[~inside], source.signal[~inside])
    assert (noisy.signal[1000:3000] != source.signal[1000:3000]).any()
    assert (noisy.signal[5000:6525] != source.signal[5000:6525]).any()
    assert np.array_equal(is_noisy([source], periods)[0], inside)
    assert replace(noisy, signal=source.signal, labels=labels) == replace(source, labels=labels)
    assert np.array_equal(noisy.labels, labels)
    assert np.array_equal(source.signal, kept)


@quickly
@given(seed=seeds)
def test_no_strength_is_no_change_bit_for_bit(seed):
    sources = [record(12_000, seed=seed % 1000), record(3000, seed=1)]
    periods = tuple(Period(40.0 * k, 40.0 * k + 30, kind) for k, kind in enumerate(NOISES))
    noisy = add_noise(sources, periods, UNIT, np.random.default_rng(seed), strength=0.0)
    for before, after in zip(sources, noisy, strict=True):
        assert np.array_equal(before.signal, after.signal)


def test_recordings_lie_end_to_end_but_do_not_mix():
    sources = [record(1000, seed=1), record(500, rate=25.0, seed=2), record(1000, seed=3)]
    # 20 s + 20 s + 20 s; the period begins in the first and ends in the last.
    periods = (Period(15.0, 45.0, "permutation"),)
    noisy = add_noise(sources, periods, UNIT, np.random.default_rng(0))
    covered = [slice(750, 1000), slice(0, 500), slice(0, 250)]
    for before, after, part, mark in zip(
        sources, noisy, covered, is_noisy(sources, periods), strict=True
    ):
        assert np.array_equal(np.flatnonzero(mark), np.arange(len(mark))[part])
        assert np.array_equal(after.signal[~mark], before.signal[~mark])
        assert not np.array_equal(after.signal[mark], before.signal[mark])
        rows = [np.unique(r.signal[mark], axis=0) for r in (before, after)]
        np.testing.assert_allclose(*rows, rtol=1e-6)


def test_the_same_seed_gives_the_same_noise_and_strengths_share_their_draws():
    sources = [record()]
    periods = (Period(0.0, 60.0, "permutation"), Period(80.0, 100.0, "scaling"))

    def factor(strength):
        (noisy,) = add_noise(sources, periods, UNIT, np.random.default_rng(3), strength)
        (again,) = add_noise(sources, periods, UNIT, np.random.default_rng(3), strength)
        assert np.array_equal(noisy.signal, again.signal)
        return np.log(noisy.signal[4500] / sources[0].signal[4500])

    # Although the permutation before it drew more numbers at the higher strength.
    assert factor(2.0) == pytest.approx(2 * factor(1.0), rel=1e-4)


def test_jitter_is_measured_in_the_unit_of_each_channel():
    source = record(50_000)
    (noisy,) = add_noise([source], (Period(0.0, 1000.0, "jitter"),), UNIT, np.random.default_rng(0))
    assert (noisy.signal - source.signal).std(axis=0) == pytest.approx(0.1 * UNIT, rel=0.02)


def test_spread_is_that_of_all_recordings_and_shared_within_a_sensor():
    sources = [record(seed=1), record(seed=2)]
    signal = np.concatenate([source.signal for source in sources]).astype(np.float64)
    spread = sensor_spread(sources)
    for triad in TRIADS:
        expected = np.sqrt(np.mean([np.var(signal[:, axis]) for axis in triad]))
        assert spread[list(triad)] == pytest.approx([expected] * 3)
    assert spread[6] == pytest.approx(signal[:, 6].std())
    assert sensor_spread([record(signal=np.ones((9000, 7), np.float32))]).tolist() == [1] * 7


def test_the_paper_periods_cover_the_recordings_together():
    sources = [record(5000, seed=seed) for seed in range(30)]  # 100 s each
    periods = plan_motion(sources, np.random.default_rng(0))
    assert max(p.stop for p in periods) > 2500
    assert {p.kind for p in periods} <= set(NOISES)
    assert all(20 <= p.stop - p.start <= 120 for p in periods[:-1])
    seconds = sum(mark.sum() for mark in is_noisy(sources, periods)) / 50
    assert seconds == pytest.approx(sum(p.stop - p.start for p in periods), abs=0.02 * 60)


@pytest.mark.parametrize(
    ("kind", "strength", "message"),
    [("fog", 1.0, "got 1.0 and fog"), ("jitter", -1.0, "got -1.0"), ("jitter", np.nan, "got nan")],
)
def test_unknown_noise_and_bad_strength_are_refused(kind, strength, message):
    periods = (Period(0.0, 1.0, kind),)
    with pytest.raises(ValueError, match=message):
        add_noise([record()], periods, UNIT, np.random.default_rng(0), strength)


RATE = 100
SOUNDS = {
    "rain": np.full((3, 2 * RATE), 5, dtype=np.int16),
    "dog": np.array([[7] * (2 * RATE), [-9] * (2 * RATE)], dtype=np.int16),
}


def generator(seed=0):
    return np.random.default_rng(seed)


def words(n=90, seed=0):
    return generator([seed, 1]).integers(-3000, 3000, size=(n, RATE)).astype(np.int16)


def noisy(sound, snr_db=10.0, seed=0):
    rng = generator(seed)
    periods = plan_ambient(sound.size / RATE, tuple(SOUNDS), rng)
    return add_ambient(sound, periods, SOUNDS, rng, snr_db, RATE), periods


def ratio_db(sound, added):
    powers = [np.square(x.astype(np.float64)).mean(axis=1) for x in (sound, added)]
    return 10 * np.log10(powers[0] / powers[1])


@settings(max_examples=30, deadline=None)
@given(snr_db=st.floats(-20, 40), seed=st.integers(0, 2**32))
def test_every_clip_has_the_stated_ratio(snr_db, seed):
    sound = words(seed=seed % 1000)
    mixed, _ = noisy(sound, snr_db, seed)
    assert np.abs(ratio_db(sound, mixed - sound) - snr_db).max() < 0.1
    assert np.array_equal(mixed, noisy(sound, snr_db, seed)[0])


def test_noise_is_one_kind_at_a_time_for_a_quarter_to_a_whole_minute():
    periods = plan_ambient(600.0, tuple(SOUNDS), generator(1))
    stream = ambient_stream(600 * RATE, periods, SOUNDS, generator(2), RATE)
    assert periods[0].start == 0
    assert periods[-1].stop == 600
    for period in periods:
        part = stream[round(period.start * RATE) : round(period.stop * RATE)]
        assert set(part) <= {"rain": {5.0}, "dog": {7.0, -9.0}}[period.kind]
        assert 15 <= period.stop - period.start <= 60 or period is periods[-1]
    # Clips of a kind follow each other in their own length, drawn anew.
    dog = next(p for p in periods if p.kind == "dog")
    part = stream[round(dog.start * RATE) :][: 10 * RATE].reshape(-1, 2 * RATE)
    assert (part == part[:, :1]).all()
    assert len(set(part[:, 0])) == 2


def test_in_a_gap_the_sound_is_as_it_was():
    sound = words()
    periods = (Period(10.0, 25.0, "dog"), Period(70.0, 80.5, "rain"))
    mixed = add_ambient(sound, periods, SOUNDS, generator(), 3.0, RATE)
    covered = np.zeros(sound.size, dtype=bool)
    covered[1000:2500] = covered[7000:8050] = True
    covered = covered.reshape(sound.shape)
    assert np.array_equal(mixed[~covered], sound[~covered])
    assert (mixed[covered] != sound[covered]).all()


def test_noise_of_no_power_is_no_noise():
    sound = words()
    assert np.array_equal(noisy(sound, np.inf)[0], sound)


def test_silence_has_no_ratio_and_stays_as_it_is():
    sound, silence = words(4), np.zeros((4, RATE), dtype=np.int16)
    assert np.array_equal(mix(sound, silence, 0.0), sound)
    assert np.array_equal(mix(silence, sound, 0.0), silence)
    half = sound.copy()
    half[1] = 0
    mixed = mix(half, sound, 0.0)
    assert np.array_equal(mixed[1], half[1])
    assert ratio_db(half[[0, 2, 3]], (mixed - half)[[0, 2, 3]]) == pytest.approx([0, 0, 0])


def test_loud_sums_are_not_clipped():
    loud = np.full((1, RATE), 32767, dtype=np.int16)
    assert mix(loud, loud, 0.0).max() == pytest.approx(2 * 32767)


def test_the_real_noise():
    try:
        sounds = esc.read(data_root())
    except DataError as error:
        pytest.skip(str(error))
    assert len(sounds) == 10
    assert {clips.shape for clips in sounds.values()} == {(40, 32000)}
    rng = generator()
    sound = rng.integers(-3000, 3000, size=(60, 16000))
    mixed = add_ambient(sound, plan_ambient(60.0, tuple(sounds), rng), sounds, rng, 10.0)
    assert np.abs(ratio_db(sound, mixed - sound) - 10).max() < 0.1


def test_random_input_is_white_or_a_walk_of_unit_spread():
    white, walk = (make(50, (2, 100), seed=3) for make in (noise.white_noise, noise.random_walk))
    assert white.shape == walk.shape == (50, 2, 100)
    assert white.std() == pytest.approx(1, abs=0.03)
    torch.testing.assert_close(walk.std(-1), torch.ones(50, 2))
    assert walk.diff().abs().mean() < 0.5 * white.diff().abs().mean()


def test_a_turn_is_about_its_axis_by_its_angle():
    quarter = noise.turn_about(np.array([0.0, 0.0, 2.0]), np.pi / 2)
    assert quarter == pytest.approx(np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]]), abs=1e-15)
