import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onesigma.lab.datasets.schedule import Period

from onesigma.errors import DataError
from onesigma.lab.datasets import ambient, esc
from onesigma.lab.datasets.prepared import data_root

RATE = 100
NOISE = {
    "rain": np.full((3, 2 * RATE), 5, dtype=np.int16),
    "dog": np.array([[7] * (2 * RATE), [-9] * (2 * RATE)], dtype=np.int16),
}


def generator(seed=0):
    return np.random.default_rng(seed)


def words(n=90, seed=0):
    return generator([seed, 1]).integers(-3000, 3000, size=(n, RATE)).astype(np.int16)


def noisy(sound, snr_db=10.0, seed=0, gap=(0.0, 0.0)):
    rng = generator(seed)
    periods = ambient.plan(sound.size / RATE, tuple(NOISE), rng, gap)
    return ambient.add_ambient(sound, periods, NOISE, rng, snr_db, RATE), periods


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
    periods = ambient.plan(600.0, tuple(NOISE), generator(1))
    stream = ambient.ambient_stream(600 * RATE, periods, NOISE, generator(2), RATE)
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
    mixed = ambient.add_ambient(sound, periods, NOISE, generator(), 3.0, RATE)
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
    assert np.array_equal(ambient.mixed(sound, silence, 0.0), sound)
    assert np.array_equal(ambient.mixed(silence, sound, 0.0), silence)
    half = sound.copy()
    half[1] = 0
    mixed = ambient.mixed(half, sound, 0.0)
    assert np.array_equal(mixed[1], half[1])
    assert ratio_db(half[[0, 2, 3]], (mixed - half)[[0, 2, 3]]) == pytest.approx([0, 0, 0])


def test_loud_sums_are_not_clipped():
    loud = np.full((1, RATE), 32767, dtype=np.int16)
    assert ambient.mixed(loud, loud, 0.0).max() == pytest.approx(2 * 32767)


def test_the_real_noise():
    try:
        noise = esc.read(data_root())
    except DataError as error:
        pytest.skip(str(error))
    assert len(noise) == 10
    assert {clips.shape for clips in noise.values()} == {(40, 32000)}
    rng = generator()
    sound = rng.integers(-3000, 3000, size=(60, 16000))
    mixed = ambient.add_ambient(sound, ambient.plan(60.0, tuple(noise), rng), noise, rng, 10.0)
    assert np.abs(ratio_db(sound, mixed - sound) - 10).max() < 0.1
