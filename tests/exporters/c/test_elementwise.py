"""Our exponential and error function, against double precision over their whole range."""

import numpy as np
import pytest
from scipy.special import erf

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import Model, needs_gcc

from onesigma.exporters.c import generate
from onesigma.exporters.c.elementwise import expression, literal
from onesigma.lab import c_verify as verify


def test_literals_are_exact_and_negative_ones_stand_in_brackets():
    assert float(literal(float(np.float32(0.1)))[:-1]) == pytest.approx(np.float32(0.1), abs=0)
    assert [literal(x) for x in (2.0, float("inf"), -float("inf"))] == [
        *("2.0f", "INFINITY", "-INFINITY")
    ]
    assert literal(float("nan")) == "NAN"
    assert expression("Neg", ["-2.0f"], {}) == "-(-2.0f)"
    assert expression("LeakyRelu", ["x"], {"alpha": 0.5}) == "x < 0.0f ? 0.5f * x : x"


@needs_gcc
def test_exp_and_erf(tmp_path):
    m = Model(x=(1, 4001), y=(1, 4001))
    m.op("Exp", "x")
    m.op("Erf", m.op("Mul", "y", m.constant(10), output=False))
    x = np.linspace(-110, 95, 4001, dtype=np.float32)[None]
    y = np.linspace(-0.5, 0.5, 4001, dtype=np.float32)[None]
    y[0, :4] = [3e38, -3e38, 1e30, 0]  # the first two are infinite when multiplied
    (found,) = verify.run(generate(m.proto(), tmp_path), [{"x": x, "y": y}]).outputs
    exp, error = found["exp_0_0"], found["erf_2_0"]
    with np.errstate(over="ignore"):
        wanted = np.exp(x[0].astype(np.float64))
    normal = (wanted > 2e-38) & (wanted < 2.3e38)
    assert np.abs(exp[normal] / wanted[normal] - 1).max() < 2.5e-7
    assert (exp[wanted > 3.5e38] == np.inf).all()
    assert (exp[wanted < 1e-38] == 0).all()
    assert np.abs(error - erf(10 * y[0].astype(np.float64))).max() < 6e-7
    assert [*error[:4]] == [1, -1, 1, 0]
