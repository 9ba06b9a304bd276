import struct
import subprocess
import sys

import numpy as np
import pytest
from lab.quick_figures import coarse  # noqa: F401
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from onesigma.errors import FileError
from onesigma.lab.plots import bandwidth, confidence_and_entropy, reflected_density

SIZES = {"right": 200, "wrong": 30, "random": 100}


def result(name: str, seed: int = 0, **sizes: int):
    generator = np.random.default_rng(seed)
    counts = SIZES | sizes
    confidence = {group: generator.beta(8, 1, n) for group, n in counts.items()}
    entropy = {group: np.log(7) * generator.beta(1, 3, n) for group, n in counts.items()}
    return name, {"confidence": confidence, "entropy": entropy}


def png_size(path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[-8:-4] == b"IEND"
    return struct.unpack(">II", content[16:24])


def test_three_methods_make_one_readable_picture(tmp_path):
    path = tmp_path / "figure.png"
    methods = ["plain network", "one pass", "MC dropout, 30 passes"]
    confidence_and_entropy([result(m, s) for s, m in enumerate(methods)], path, classes=7)
    width, height = png_size(path)
    assert 1200 <= width <= 4000
    assert 900 <= height <= 4000
    assert 10_000 < path.stat().st_size < 2_000_000
    assert sorted(tmp_path.iterdir()) == [path, path.with_suffix(".svg")]


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("empty", [("wrong",), ("random",), ("right", "wrong", "random")])
def test_empty_groups_are_drawn_without_a_warning(tmp_path, empty):
    path = tmp_path / "figure.png"
    confidence_and_entropy([result("a", **dict.fromkeys(empty, 0))], str(path))
    png_size(path)


@pytest.mark.usefixtures("coarse")
def test_a_perfectly_sure_network_is_drawn_without_a_warning(tmp_path):
    name, quantities = result("sure")
    quantities["confidence"] = {group: np.ones(n) for group, n in SIZES.items()}
    quantities["entropy"] = {group: np.zeros(n) for group, n in SIZES.items()}
    confidence_and_entropy([(name, quantities)], tmp_path / "figure.png")


def test_a_failing_write_keeps_the_old_figure(tmp_path, monkeypatch):
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")

    def fail(self, target, **_):
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(FileError, match="disk full"):
        confidence_and_entropy([result("a")], path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_to_draw_and_bad_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="No results"):
        confidence_and_entropy([], tmp_path / "figure.png")
    name, quantities = result("a")
    quantities["entropy"]["wrong"][3] = np.nan
    with pytest.raises(ValueError, match="entropy of the wrong group of 'a'"):
        confidence_and_entropy([(name, quantities)], tmp_path / "figure.png")


def test_pyplot_is_never_imported():
    code = "import sys, onesigma.lab.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


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
