import cmath

import numpy as np
import pytest
from onesigma.lab.datasets.fourier import fourier


def transformed(points):
    """Real and imaginary parts in turn, straight from the sum that defines them."""
    sums = [
        sum(x * cmath.exp(-2j * cmath.pi * f * t / 10) for t, x in enumerate(points))
        for f in range(10)
    ]
    return [value for s in sums for value in (s.real, s.imag)]


def test_each_interval_is_the_sum_that_defines_it():
    windows = np.random.default_rng(0).normal(size=(2, 200, 3))
    found = fourier(windows)
    assert found.shape == (2, 3, 20, 20)
    assert found.dtype == np.float32
    for n, channel, interval in ((0, 0, 0), (1, 2, 7), (1, 1, 19)):
        points = windows[n, 10 * interval : 10 * interval + 10, channel]
        assert found[n, channel, :, interval] == pytest.approx(transformed(points), abs=1e-5)


@pytest.mark.parametrize(("rate", "tolerance"), [(25, 1.5), (40, 1e-4), (50, 0.5), (200, 1e-4)])
def test_a_wave_looks_alike_at_any_rate(rate, tolerance):
    # 4 Hz: a whole period in each interval, hence only the values of f = 1 and its mirror, f = 9.
    time = np.arange(5 * rate) / rate
    window = (2 * np.sin(2 * np.pi * 4 * time) + 3)[None, :, None]
    expected = np.zeros((20, 20))
    expected[0] = 30
    expected[3], expected[19] = -10, 10
    # The last interval lacks the instant after the last.
    assert fourier(window)[0, 0, :, :19] == pytest.approx(expected[:, :19], abs=tolerance)


def test_lines_between_instants_are_read_off():
    ramp = np.arange(250.0)[None, :, None]
    constant = fourier(ramp)[0, 0, 0] / 10
    # 10 points, 1.25 rows apart: their mean is the first plus 4.5 steps; the very end is held.
    assert constant[:19] == pytest.approx(12.5 * np.arange(19) + 4.5 * 1.25)


def test_no_window_gives_no_spectrum():
    assert fourier(np.zeros((0, 125, 6))).shape == (0, 6, 20, 20)
