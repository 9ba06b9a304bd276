"""Never NaN, never infinite, never a negative variance: a share of what tests/fuzz looks at."""

import shutil

import numpy as np
import pytest
import torch
import wild

COUNT = 3000
# One of each kind of formula, where each target has code of its own.
DELICATE = [
    *("relu.default", "relu6.default", "sigmoid.default", "gelu.default", "elu.default"),
    *("exp.default", "mul.Tensor", "maximum.default", "max_pool1d.default", "layer_norm.default"),
    "linear with factors",
]


def pool(dtype: type, count: int = COUNT) -> wild.Moments:
    mean, var = wild.moments(count)
    return mean.astype(dtype), var.astype(dtype)


@pytest.mark.parametrize("name", wild.NAMES)
def test_in_torch(name):
    for kind, dtype in ((np.float32, torch.float32), (np.float64, torch.float64)):
        for network in wild.networks(name, dtype, COUNT):
            found = wild.count_broken(network.size, wild.in_torch(network), pool(kind))
            assert found == wild.Broken(), f"{network.name} in {dtype}"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc not found")
@pytest.mark.parametrize("name", DELICATE)
def test_in_onnx_and_c(name, tmp_path):
    pytest.importorskip("onnxruntime")
    network = next(wild.networks(name, torch.float32))
    model = wild.as_onnx(network)
    for run in (wild.in_onnx(model), wild.in_c(model, tmp_path, "-O0")):
        assert wild.count_broken(network.size, run, pool(np.float32)) == wild.Broken()


def test_the_moments_are_wild():
    mean, var = pool(np.float32, 20_000)
    assert np.abs(mean).max() == var.max() == np.float32(wild.LARGEST)
    assert var.min() == 0
    assert ((var > 0) & (var < 1e-20)).any()
    for share in (mean == 0, var == 0, mean[1:] == mean[:-1], var < 1e-12 * mean**2, mean < 0):
        assert share.mean() > 0.05


def test_what_breaks_the_law_is_counted():
    """The check can fail: one number of each kind in each row."""

    def run(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bad = np.tile([np.nan, np.inf, -1.0], (len(mean), 1))
        return bad, bad

    found = wild.count_broken(3, run, pool(np.float32, 30))
    assert found == wild.Broken(nan=20, infinite=20, negative=10)
