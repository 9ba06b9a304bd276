"""Architectures as people in sensing write them: what becomes of each, on every road.

What fails today is in ``OUTCOMES`` with the words of its error, and so on the page.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import architectures_page
import numpy as np
import pytest
import torch
from architectures import (
    ARCHITECTURES,
    OUTCOMES,
    QUICK,
    build,
    inputs_for,
    logits_of,
    silenced,
)
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import onesigma
from onesigma import fitting
from onesigma.calibration import exam
from onesigma.report import Candidate

aten = torch.ops.aten
TAUGHT = "learnt from Monte Carlo"
FITTED = [name for name in ARCHITECTURES if name not in OUTCOMES["fit"]]


def options(name: str) -> dict[str, object]:
    output = ARCHITECTURES[name].output
    return {} if output is None else {"output": output}


def parameters(stage: str, names=ARCHITECTURES) -> list:
    """Each architecture on one worker, which fits it once; known failures must fail."""

    def marks(name: str) -> Iterator[pytest.MarkDecorator]:
        yield pytest.mark.xdist_group(name)
        if name not in QUICK:
            yield pytest.mark.long
        if name in OUTCOMES[stage]:
            reason = OUTCOMES[stage][name]
            yield pytest.mark.xfail(raises=(onesigma.OnesigmaError, TypeError), reason=reason)

    return [pytest.param(name, marks=[*marks(name)]) for name in names]


@contextmanager
def known(stage: str, name: str) -> Iterator[None]:
    """If it fails, then in the words that are known."""
    try:
        yield
    except (onesigma.OnesigmaError, TypeError) as error:
        if OUTCOMES[stage].get(name, "") not in " ".join(str(error).split()):
            pytest.fail(f"another error than is known: {error}")
        raise


@cache
def fitted(name: str) -> tuple[nn.Module, onesigma.Converted]:
    """The model, and what a very short fit makes of it; shared, so do not change them."""
    model = build(name)
    with pytest.MonkeyPatch.context() as patch:
        for constant, value in {"ROWS": 100, "STEPS": 10, "_REFERENCE": 12}.items():
            patch.setattr(fitting, constant, value)
        patch.setattr(exam, "_FEW", 4)
        patch.setattr(fitting, "cost_of", lambda *_: 1.0)
        patch.setattr(Candidate, "is_worth", lambda *_: True)  # the first form will do
        return model, onesigma.fit(model, inputs_for(name, 60), **options(name))


class Draws(TorchDispatchMode):
    """Counts the masks that a model draws, whoever draws them."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (aten.native_dropout.default, aten.bernoulli_.float)
        self.count += func in (aten.randn_like.default, aten.bernoulli.p)
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def masks_drawn(name: str) -> int:
    model = build(name).train()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    with Draws() as draws:
        model(*inputs_for(name, 4))
    return draws.count


def masks_inside(model: nn.Module) -> int:
    """Those that are drawn by hand: they are no dropout in any graph."""
    return sum(type(module).__name__ in ("DropPath", "OwnNoise") for module in model.modules())


def test_there_are_many_and_they_are_small():
    assert len(ARCHITECTURES) >= 40
    for name in ARCHITECTURES:
        assert 1_000 <= sum(p.numel() for p in build(name).parameters()) <= 60_000, name


@pytest.mark.parametrize("name", parameters("fit"))
def test_it_is_fitted(name, tmp_path):
    model = build(name)
    with known("fit", name):
        own, ready = fitted(name)
    _assert_untouched(own, model)
    x = inputs_for(name, 6, seed=2)
    with torch.no_grad():
        found = ready(*x)
        wanted = logits_of(name, own(*x))
    assert found.probs.shape == wanted.shape
    assert bool(torch.isfinite(found.mean).all())
    assert bool((found.var > 0).all())
    audit = onesigma.audit(ready, x, passes=8)
    assert audit.own is not None
    assert "onesigma audit" in str(audit)
    onesigma.save(ready, tmp_path / "m.safetensors")
    with torch.no_grad():
        loaded = onesigma.load(tmp_path / "m.safetensors")(*x)
    for before, after in zip(found.arrays().values(), loaded.arrays().values(), strict=True):
        assert torch.equal(before, after)


def _assert_untouched(model: nn.Module, fresh: nn.Module) -> None:
    """Weights, buffers and flags are those of another that nobody has touched."""
    for (name, tensor), other in zip(
        model.state_dict().items(), fresh.state_dict().values(), strict=True
    ):
        assert torch.equal(tensor, other), name
    for module, other in zip(model.modules(), fresh.modules(), strict=True):
        assert module.training == other.training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("name", parameters("noise", FITTED))
def test_the_report_names_every_source_of_noise(name):
    """As many as masks are drawn in training mode, by whatever draws them."""
    model, ready = fitted(name)
    report = ready.report
    rates = [site.rate for site in report.sites if site.rate]
    inside = masks_inside(model)
    with known("noise", name):
        # AlphaDropout and dropout of channels draw one mask each, like any other.
        assert len(rates) + inside == masks_drawn(name)
    modules = [m.p for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    assert set(modules) <= set(rates)
    taught = [note for note in report.notes if TAUGHT in note]
    assert bool(taught) == bool(inside)


@pytest.mark.parametrize("name", parameters("onnx", FITTED))
def test_onnx_runtime_says_the_same(name, tmp_path):
    pytest.importorskip("onnxruntime")
    _, ready = fitted(name)
    x = inputs_for(name, 6, seed=2)
    with known("onnx", name):
        onesigma.export(ready, tmp_path / "m.onnx", example_input=x)
    found = onesigma.runtime.load(tmp_path / "m.onnx")(*(each.numpy() for each in x))
    with torch.no_grad():
        wanted = ready(*x)
    for field in ("mean", "var", "probs", "entropy"):
        expected = getattr(wanted, field).numpy()
        np.testing.assert_allclose(getattr(found, field), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize("name", parameters("c", FITTED))
def test_c_says_the_same(name, tmp_path):
    pytest.importorskip("onnx")
    from onesigma.lab import c_verify

    _, ready = fitted(name)
    x = inputs_for(name, 3, seed=2)
    with known("c", name):
        generated = onesigma.export(ready, tmp_path / "c", example_input=x)
    samples = [
        {key: each[row : row + 1].numpy() for key, each in zip(generated.inputs, x, strict=True)}
        for row in range(len(x[0]))
    ]
    ran = c_verify.run(generated, samples, flags=c_verify.SANITIZERS)
    with torch.no_grad():
        wanted = ready(*x)
    for field in ("mean", "var", "probs"):
        expected = getattr(wanted, field).numpy()
        found = np.stack([each[field].reshape(expected.shape[1:]) for each in ran.outputs])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", parameters("silent"))
def test_without_noise_it_is_the_original(name):
    model, x = silenced(build(name)), inputs_for(name, 4)
    with torch.no_grad():
        wanted = logits_of(name, model(*x))
    try:
        with known("silent", name):
            found = onesigma.convert(model, x, **options(name))
    except onesigma.NoRandomness:
        # Only where no module or call says dropout, as in a recurrent layer.
        assert not [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        return
    with torch.no_grad():
        answer = found(*x)
    ends_in_log_softmax = torch.allclose(wanted.exp().sum(1), torch.ones(1))
    mean = answer.mean.log_softmax(1) if ends_in_log_softmax else answer.mean
    torch.testing.assert_close(mean, wanted, rtol=1e-5, atol=1e-6)
    assert not answer.var.any()


@pytest.mark.long
@pytest.mark.parametrize("name", parameters("convert"))
def test_convert_is_near_monte_carlo_or_refuses(name):
    model, x = build(name), inputs_for(name, 16, seed=2)
    with known("convert", name):
        converted = onesigma.convert(model, tuple(each[:4] for each in x), **options(name))
    with torch.no_grad():
        one = converted(*x)
    reference = onesigma.mc_dropout(model, 300, seed=1, **options(name))(*x)
    live = reference.std > 1e-6
    ratio = float((one.std / reference.std)[live].median())
    # Noise that is not carried makes it smaller; the report says so, and names what.
    lost = any("NOT carried" in note for note in converted.report.notes)
    assert lost == (masks_inside(model) > 0)
    assert (0.1 if lost else 0.4) < ratio < 1.25


@pytest.mark.parametrize("name", [n for n in OUTCOMES["convert"] if not options(n)])
def test_a_refusal_names_the_op_and_a_way_out(name):
    with pytest.raises(onesigma.OnesigmaError) as refusal:
        onesigma.convert(build(name), inputs_for(name, 4))
    text = str(refusal.value)
    assert re.search(r"aten\.\w+", text)
    assert re.search(r"\w+\.py:\d+", text)
    assert re.search(r"put the|add one|pass input_std", text)
    if "particles" in text:
        found = onesigma.convert(build(name), inputs_for(name, 4), particles=4)
        assert bool((found(*inputs_for(name, 4)).var > 0).all())


def test_the_page_is_current():
    page = Path(__file__).parents[1] / "docs" / "architectures.md"
    assert page.read_text(encoding="utf-8") == architectures_page.text(), (
        "write it anew: python tests/architectures_page.py"
    )
