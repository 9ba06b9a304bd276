import numpy as np
import pytest
from onesigma.lab.plots.kernel import bandwidth, reflected_density
from scipy.stats import gaussian_kde


def area(values: np.ndarray, upper: float) -> float:
    grid = np.linspace(0, upper, 4001)
    return float(np.trapezoid(reflected_density(values, grid, upper), grid))


@pytest.mark.parametrize("upper", [1.0, np.log(7)])
@pytest.mark.parametrize("place", ["middle", "lower bound", "upper bound", "everywhere"])
def test_no_density_leaks_out_of_the_interval(place, upper):
    generator = np.random.default_rng(0)
    unit = {
        "middle": generator.normal(0.5, 0.05, 200),
        "lower bound": generator.beta(0.3, 8, 200),
        "upper bound": generator.beta(8, 0.3, 200),
        "everywhere": generator.random(200),
    }[place]
    assert area(upper * unit, upper) == pytest.approx(1, abs=2e-3)


def test_constant_and_single_values_have_a_narrow_finite_hill():
    for values in (np.full(50, 1.0), np.array([0.5])):
        assert bandwidth(values, 1.0) == 0.015
        assert area(values, 1.0) == pytest.approx(1, abs=2e-3)


def test_far_from_the_bounds_it_is_the_usual_estimate():
    values = np.random.default_rng(1).normal(0.5, 0.03, 300)
    grid = np.linspace(0.3, 0.7, 50)
    width = bandwidth(values, 1.0)
    usual = gaussian_kde(values, bw_method=width / values.std(ddof=1))(grid)
    assert reflected_density(values, grid, 1.0) == pytest.approx(usual, rel=1e-6, abs=1e-9)


def test_mirroring_the_values_mirrors_the_density():
    values, grid = np.random.default_rng(2).beta(8, 1, 100), np.linspace(0, 1, 101)
    mirrored = reflected_density(1 - values, grid, 1.0)
    assert reflected_density(values, grid, 1.0) == pytest.approx(mirrored[::-1])
