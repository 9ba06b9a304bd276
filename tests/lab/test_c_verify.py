"""On emulated machines: an ARM board under Linux, and a bare Cortex-M4 that counts instructions."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma.lab import checkpoint
from onesigma.lab.datasets.noise import random_walk
from onesigma.lab.datasets.watch import INPUT_SHAPE

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import Model, as_onnx, needs_gcc  # noqa: E402

from onesigma.exporters.c import generate  # noqa: E402
from onesigma.lab import c_verify as verify  # noqa: E402
from onesigma.lab.bench import programs  # noqa: E402

EMULATED = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            verify.TARGETS[name].missing is not None, reason=f"{verify.TARGETS[name].missing}"
        ),
    )
    for name in ("aarch64", "cortex-m4")
]
(needs_m4,) = EMULATED[1].marks


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    """The shipped watch network, plain or in moments: in C, as ONNX, and an input; made once."""

    @cache
    def made(form: str):
        folder, x = tmp_path_factory.mktemp(form), random_walk(2, INPUT_SHAPE)
        converted = onesigma.convert(checkpoint.load().network, x)
        if form == "plain":
            model = onnx.load(programs.plain(converted, (x,), folder / "m.onnx").path)
        else:
            model = as_onnx(converted)
        generated = generate(model, folder)
        (name,) = generated.inputs
        return generated, model, [{name: x[:1].numpy()}]

    return made


@pytest.fixture(scope="module")
def on_m4(watch):
    @cache
    def ran(form: str) -> verify.RunResult:
        generated, _, samples = watch(form)
        return verify.run(generated, samples, "cortex-m4", profile=True)

    return ran


@pytest.mark.parametrize("machine", EMULATED)
def test_the_watch_network(machine, watch, on_m4):
    generated, model, samples = watch("moments")
    ran = on_m4("moments") if machine == "cortex-m4" else verify.run(generated, samples, machine)
    assert verify.largest_mismatch(model, ran, samples) < 1e-4


@pytest.mark.parametrize("machine", EMULATED)
def test_a_network_of_other_parts(machine, tmp_path):
    """Quadrature, a maximum, grouped and dilated convolutions."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv1d(4, 8, 3, groups=2, padding=1), nn.Tanh(), nn.Dropout(0.3)),
        *(nn.Conv1d(8, 7, 3, dilation=2), nn.LeakyReLU(0.1), nn.MaxPool1d(2), nn.Dropout(0.3)),
        *(nn.Flatten(), nn.Linear(35, 3)),
    )
    x = torch.randn(3, 4, 14)
    model = as_onnx(onesigma.convert(network.eval(), x))
    generated = generate(model, tmp_path)
    samples = [{"input": x[i : i + 1].numpy()} for i in range(3)]
    ran = verify.run(generated, samples, machine)
    assert verify.largest_mismatch(model, ran, samples) < 1e-4


@needs_m4
def test_instructions_are_counted_the_same_each_time(watch, on_m4):
    generated, _, samples = watch("moments")
    again = verify.run(generated, samples, "cortex-m4", profile=True)
    first = on_m4("moments")
    assert again.instructions == first.instructions > 1e6
    assert len(first.steps) == len(generated.steps)
    # The look at the input for NaN and infinity is outside of the steps.
    assert sum(first.steps) == pytest.approx(first.instructions, rel=3e-3)
    assert max(zip(first.steps, generated.steps, strict=True))[1].startswith("Conv: ")


@needs_m4
def test_what_the_uncertainty_costs(watch, on_m4):
    """The bar that was set, in instructions; they are the same on every machine."""
    assert on_m4("moments").instructions < 2.2 * on_m4("plain").instructions


def test_missing_tools_are_named():
    target = verify.Target("no-such-compiler", emulator=("no-such-emulator", "-x"))
    assert target.missing == "no-such-compiler and no-such-emulator not found"
    assert verify.Target("python3").missing is None


@needs_gcc
def test_a_failure_to_compile_says_what_gcc_says(tmp_path):
    m = Model(x=(1, 4))
    m.op("Exp", "x")
    generated = generate(m.proto(), tmp_path)
    with pytest.raises(onesigma.ExportError, match="gcc failed"):
        verify.run(generated, [{"x": np.zeros(4)}], flags=["-DMODEL_STEP=no such thing"])
