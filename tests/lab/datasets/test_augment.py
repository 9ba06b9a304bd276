from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onesigma.lab.datasets.augment import NOISES, add_noise, is_noisy, plan, sensor_spread
from onesigma.lab.datasets.recording import Recording
from onesigma.lab.datasets.schedule import Period
from scipy.interpolate import CubicHermiteSpline

from onesigma.lab.datasets import augment

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


def noise(kind, signal, seed=0, strength=1.0, rate=50.0):
    return NOISES[kind](signal, rate, TRIADS, np.random.default_rng(seed), strength)


def stream(n, seed=0):
    return np.random.default_rng([seed, 1]).normal(size=(n, CHANNELS))


def ramp(n):
    """Each instant holds its own number, so that the result says where every value came from."""
    return np.tile(np.arange(n, dtype=np.float64)[:, None], (1, CHANNELS))


def recording(n=9000, rate=50.0, seed=0, **changes):
    signal = (UNIT * stream(n, seed)).astype(np.float32)
    plain = Recording(signal, rate, np.arange(n) // 100, "u", TRIADS, "r")
    return replace(plain, **changes)


@each_noise
@quickly
@given(n=lengths, seed=seeds, rate=rates, strength=strengths)
def test_shape_is_kept_input_untouched_and_the_seed_decides(kind, n, seed, rate, strength):
    signal = stream(n, seed)
    before = signal.copy()
    altered = noise(kind, signal, seed, strength, rate)
    assert altered.shape == signal.shape
    assert np.isfinite(altered).all()
    assert np.array_equal(signal, before)
    assert np.array_equal(altered, noise(kind, signal, seed, strength, rate))


@each_noise
@quickly
@given(n=lengths, seed=seeds, rate=rates)
def test_no_strength_is_no_change(kind, n, seed, rate):
    signal = stream(n, seed)
    assert np.array_equal(noise(kind, signal, seed, 0.0, rate), signal)


@each_noise
def test_every_noise_does_something_and_another_seed_something_else(kind):
    signal = stream(500)
    assert not np.allclose(noise(kind, signal, 1), signal)
    assert not np.allclose(noise(kind, signal, 1), noise(kind, signal, 2))


@quickly
@given(seed=seeds, strength=strengths)
def test_rotation_is_rigid_the_same_for_all_sensors_and_leaves_the_rest(seed, strength):
    signal = stream(50, seed)
    turned = noise("rotation", signal, seed, strength)
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
    assert np.array_equal(augment.rotation(signal, 50.0, (), rng, 1.0), signal)


@quickly
@given(n=lengths, seed=seeds, strength=strengths, rate=rates)
def test_permutation_keeps_the_rows_of_each_block(n, seed, strength, rate):
    length = round(2.5 * rate)
    origin = noise("permutation", ramp(n), seed, strength, rate)[:, 0].astype(int)
    pieces = 1 + round(3 * strength)
    for start in range(0, n, length):
        block = origin[start : start + length]
        assert sorted(block) == list(range(start, min(start + length, n)))
        assert np.count_nonzero(np.diff(block) != 1) < pieces
    # Whole rows move.
    signal = stream(n, seed)
    assert np.array_equal(noise("permutation", signal, seed, strength, rate), signal[origin])


@quickly
@given(n=lengths, seed=seeds, strength=strengths, rate=rates)
def test_time_warp_keeps_the_ends_and_the_order_of_time(n, seed, strength, rate):
    warped = noise("time-warp", ramp(n), seed, strength, rate)
    assert warped[0] == pytest.approx(0, abs=1e-9)
    assert warped[-1] == pytest.approx(n - 1)
    assert (np.diff(warped, axis=0) > 0).all()
    assert np.ptp(warped, axis=1).max() < 1e-9  # one clock for all


def test_time_warp_changes_speed_by_its_stated_spread():
    position = noise("time-warp", ramp(200_000), strength=1.0)[:, 0]
    # Between its knots the curve is flatter than at them: of std 0.9.
    assert np.log(np.diff(position)).std() == pytest.approx(0.9 * 0.2, rel=0.05)


@quickly
@given(seed=seeds, strength=strengths, a=st.floats(-10, 10), b=st.floats(-10, 10))
@pytest.mark.parametrize("kind", [k for k in NOISES if k != "jitter"])
def test_all_but_jitter_are_linear(kind, seed, strength, a, b):
    x, y = stream(200, 1), stream(200, 2)
    together = noise(kind, a * x + b * y, seed, strength)
    apart = a * noise(kind, x, seed, strength) + b * noise(kind, y, seed, strength)
    np.testing.assert_allclose(together, apart, atol=1e-9)


def test_scaling_is_one_positive_factor_per_channel_of_the_stated_spread():
    factors = noise("scaling", np.ones((2, 10_000)), strength=3.0)
    assert np.ptp(factors, axis=0).max() == 0
    assert np.log(factors[0]).std() == pytest.approx(0.3, rel=0.03)
    assert np.log(factors[0]).mean() == pytest.approx(0, abs=0.01)
    weaker = noise("scaling", np.ones((2, 10_000)), strength=1.0)
    assert np.log(factors) == pytest.approx(3 * np.log(weaker))


def test_magnitude_warp_is_a_smooth_positive_curve_per_channel():
    curves = np.log(noise("magnitude-warp", np.ones((300, 3000))))
    assert curves[0].std() == pytest.approx(0.2, rel=0.05)  # the first instant is a knot
    assert np.abs(np.diff(curves, axis=0)).max() < 0.05
    assert np.corrcoef(curves[:, 0], curves[:, 1])[0, 1] != pytest.approx(1)


def test_curves_are_the_splines_they_are_said_to_be():
    n, rate, columns = 600, 50.0, 3
    curves = augment.smooth_curves((n, columns), rate, np.random.default_rng(5))
    knots = np.random.default_rng(5).normal(size=((n - 1) // 125 + 4, columns))
    tangents = (knots[2:] - knots[:-2]) / 2
    spline = CubicHermiteSpline(np.arange(len(tangents)), knots[1:-1], tangents)
    np.testing.assert_allclose(curves, spline(np.arange(n) / 125), atol=1e-12)


@pytest.mark.parametrize("strength", [0.5, 1.0, 4.0])
def test_jitter_is_white_and_of_the_stated_spread(strength):
    signal = stream(40_000)
    added = noise("jitter", signal, strength=strength) - signal
    assert added.std() == pytest.approx(0.1 * strength, rel=0.01)
    assert added.mean() == pytest.approx(0, abs=0.002 * strength)
    assert np.corrcoef(added[1:, 0], added[:-1, 0])[0, 1] == pytest.approx(0, abs=0.025)


@quickly
@given(n=lengths, seed=seeds, strength=strengths, rate=rates)
def test_crop_draws_out_a_stretch_of_each_block(n, seed, strength, rate):
    length = round(2.5 * rate)
    origin = noise("crop", ramp(n), seed, strength, rate)[:, 0]
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
    np.testing.assert_allclose(augment.sampled_at(signal, position), np.stack(expected, axis=1))


@each_noise
def test_outside_the_periods_nothing_changes_and_inside_something_does(kind):
    source = recording()
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
    sources = [recording(12_000, seed=seed % 1000), recording(3000, seed=1)]
    periods = tuple(Period(40.0 * k, 40.0 * k + 30, kind) for k, kind in enumerate(NOISES))
    noisy = add_noise(sources, periods, UNIT, np.random.default_rng(seed), strength=0.0)
    for before, after in zip(sources, noisy, strict=True):
        assert np.array_equal(before.signal, after.signal)


def test_recordings_lie_end_to_end_but_do_not_mix():
    sources = [recording(1000, seed=1), recording(500, rate=25.0, seed=2), recording(1000, seed=3)]
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
    sources = [recording()]
    periods = (Period(0.0, 60.0, "permutation"), Period(80.0, 100.0, "scaling"))

    def factor(strength):
        (noisy,) = add_noise(sources, periods, UNIT, np.random.default_rng(3), strength)
        (again,) = add_noise(sources, periods, UNIT, np.random.default_rng(3), strength)
        assert np.array_equal(noisy.signal, again.signal)
        return np.log(noisy.signal[4500] / sources[0].signal[4500])

    # Although the permutation before it drew more numbers at the higher strength.
    assert factor(2.0) == pytest.approx(2 * factor(1.0), rel=1e-4)


def test_jitter_is_measured_in_the_unit_of_each_channel():
    source = recording(50_000)
    (noisy,) = add_noise([source], (Period(0.0, 1000.0, "jitter"),), UNIT, np.random.default_rng(0))
    assert (noisy.signal - source.signal).std(axis=0) == pytest.approx(0.1 * UNIT, rel=0.02)


def test_spread_is_that_of_all_recordings_and_shared_within_a_sensor():
    sources = [recording(seed=1), recording(seed=2)]
    signal = np.concatenate([source.signal for source in sources]).astype(np.float64)
    spread = sensor_spread(sources)
    for triad in TRIADS:
        expected = np.sqrt(np.mean([np.var(signal[:, axis]) for axis in triad]))
        assert spread[list(triad)] == pytest.approx([expected] * 3)
    assert spread[6] == pytest.approx(signal[:, 6].std())
    assert sensor_spread([recording(signal=np.ones((9000, 7), np.float32))]).tolist() == [1] * 7


def test_the_paper_periods_cover_the_recordings_together():
    sources = [recording(5000, seed=seed) for seed in range(30)]  # 100 s each
    periods = plan(sources, np.random.default_rng(0))
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
        add_noise([recording()], periods, UNIT, np.random.default_rng(0), strength)
