"""Max pools of a student that know of the noise in what they are given."""

import shutil

import numpy as np
import pytest
import torch
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma import fitting
from onesigma.baselines.mc_dropout import with_dropout_on
from onesigma.calibration.distillation import Training, distil
from onesigma.calibration.observation import silent
from onesigma.calibration.soft_pools import has_noisy_pools, soften_pools
from onesigma.calibration.teacher import Lesson
from onesigma.forms.student import without_dropout
from onesigma.graph.prepare import prepare


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


SERIES, IMAGES = drawn(200, 3, 40).cumsum(-1) / 3, drawn(200, 3, 12, 12)


def of_series() -> nn.Sequential:
    torch.manual_seed(0)
    front = [nn.Conv1d(3, 8, 5, padding=2), nn.ReLU(), nn.Dropout(0.3)]
    back = [nn.Conv1d(8, 8, 3, padding=1), nn.MaxPool1d(2), nn.ReLU(), nn.Flatten()]
    last = nn.Linear(160, 4)
    nn.init.normal_(last.weight, std=0.5)  # answers that dropout changes
    return nn.Sequential(*front, *back, last).eval()


def of_images() -> nn.Sequential:
    """Two pools, the first with a padding, the second behind two dropouts."""
    torch.manual_seed(0)
    front = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.3)]
    middle = [nn.Conv2d(8, 8, 3, padding=1), nn.MaxPool2d(3, 2, 1), nn.ReLU(), nn.Dropout(0.2)]
    back = [nn.Conv2d(8, 8, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)]
    return nn.Sequential(*front, *middle, *back).eval()


def graph_of(model: nn.Module, x: torch.Tensor) -> torch.fx.GraphModule:
    return prepare(model, x[:4], "classification", None).graph


@torch.no_grad()
@pytest.mark.parametrize(
    ("model", "x", "less"), [(of_series(), SERIES, 5.0), (of_images(), IMAGES, 1.5)]
)
def test_the_mean_is_closer_to_monte_carlo_before_anything_is_learnt(model, x, less):
    source = graph_of(model, x)
    layers = without_dropout(source, energies=False)
    assert has_noisy_pools(source)
    assert soften_pools(layers, source, (x,), 0)
    noisy = with_dropout_on(source)
    torch.manual_seed(1)
    wanted = torch.stack([noisy(x)[0] for _ in range(400)]).mean(0)
    own, plain = ((each - wanted).square().mean() for each in (layers(x)[0], model(x)))
    assert own < plain / less


def test_what_no_noise_reaches_is_left_alone():
    front = [nn.Conv1d(3, 8, 5), nn.MaxPool1d(2), nn.Dropout(0.3)]
    model = nn.Sequential(*front, nn.Flatten(), nn.Linear(144, 4)).eval()
    source = graph_of(model, SERIES)
    layers = without_dropout(source, energies=False)
    before = str(layers.graph)
    assert not has_noisy_pools(source)
    assert soften_pools(layers, source, (SERIES,), 0) == set()
    assert str(layers.graph) == before


@torch.no_grad()
def test_a_pool_with_a_dilation_stays_as_it_is():
    front = [nn.Conv1d(3, 8, 5), nn.Dropout(0.3), nn.MaxPool1d(2, dilation=2)]
    source = graph_of(nn.Sequential(*front, nn.Flatten(), nn.Linear(136, 4)).eval(), SERIES)
    assert not has_noisy_pools(source)


def test_the_pools_learn_with_the_layers():
    model = of_series()
    source = graph_of(model, SERIES)
    with torch.no_grad():
        noisy = with_dropout_on(source)
        logits = torch.stack([noisy(SERIES)[0] for _ in range(10)], 1)
    lesson, moment = Lesson((SERIES,), logits), Training(20, 0, silent)
    student = distil(source, lesson, moment, soft_pools=True)
    again = distil(source, lesson, moment, soft_pools=True)
    own = dict(student.get_submodule("adapted").named_parameters())
    (bias,) = (weight for name, weight in own.items() if name.endswith("pool1d_bias"))
    assert bool(bias.any())
    for a, b in zip(student(SERIES[:3]), again(SERIES[:3]), strict=True):
        assert torch.equal(a, b)


def test_fit_tries_them_second_and_they_can_be_exported(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(fitting, "_MORE_WITH_POOLS", float("inf"))
    with short_fit(LONGER={}, _more_forms=lambda *_: []):
        ready = onesigma.fit(of_series(), SERIES, worth=1_000_000, guard=False)
    names = [each.form for each in ready.report.candidates]
    assert names == ["distilled", "distilled, soft max pools"]
    with short_fit(LONGER={}, _more_forms=lambda *_: []):
        monkeypatch.setattr(fitting, "_chosen", lambda tried, *_: tried[-1][1])
        ready = onesigma.fit(of_series(), SERIES, worth=1_000_000, guard=False)
    assert "max pools that know of the noise" in str(ready.report)
    onesigma.export(ready, tmp_path / "m.onnx", example_input=SERIES[:8])
    found = onesigma.runtime.load(tmp_path / "m.onnx")(SERIES[:8].numpy())
    with torch.no_grad():
        wanted = ready(SERIES[:8])
    np.testing.assert_allclose(found.probs, wanted.probs.numpy(), atol=1e-5)
    np.testing.assert_allclose(found.var, wanted.var.numpy(), rtol=1e-4, atol=1e-6)
    onesigma.save(ready, tmp_path / "m.safetensors")
    loaded = onesigma.load(tmp_path / "m.safetensors")
    torch.testing.assert_close(loaded(SERIES[:8]).probs, wanted.probs, rtol=0, atol=0)
    if shutil.which("gcc"):  # which compares what the program says
        onesigma.export(ready, tmp_path / "firmware", example_input=SERIES[:8])
