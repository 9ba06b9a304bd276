"""A fitted network with recurrent layers or attention: kept and exported as it is."""

import shutil
from functools import cache

import numpy as np
import pytest
import torch
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma.runtime.comparison import mismatch

X = torch.randn(60, 6, 4, generator=torch.Generator().manual_seed(0))


class Network(nn.Module):
    """A recurrent layer or an encoder over (batch, steps, channels), and a linear layer."""

    def __init__(self, layer: nn.Module, read, width: int) -> None:
        super().__init__()
        self.layer, self.read, self.last = layer, read, nn.Linear(width, 3)
        nn.init.normal_(self.last.weight, std=0.7)

    def forward(self, x):
        return self.last(self.read(self.layer, x))


def in_steps(cell, x):
    h = c = x.new_zeros(x.shape[0], 8)
    for t in range(x.shape[1]):
        h, c = cell[0](cell[1](x[:, t]), (h, c))
    return h


OPTIONS = {"dropout": 0.4, "batch_first": True}
NETWORKS = {
    "lstm": lambda: Network(nn.LSTM(4, 8, 2, **OPTIONS), lambda r, x: r(x)[0][:, -1], 8),
    "gru": lambda: Network(
        nn.GRU(4, 8, 2, bidirectional=True, **OPTIONS),
        lambda r, x: r(x)[1][-2:].transpose(0, 1).flatten(1),
        16,
    ),
    "rnn": lambda: Network(nn.RNN(4, 8, 2, **OPTIONS), lambda r, x: r(x)[0].mean(1), 8),
    "cell": lambda: Network(nn.ModuleList([nn.LSTMCell(4, 8), nn.Dropout(0.3)]), in_steps, 8),
    "encoder": lambda: Network(
        nn.TransformerEncoderLayer(4, 2, 8, 0.3, batch_first=True), lambda e, x: e(x).mean(1), 4
    ),
}


@cache
def fitted(name: str) -> onesigma.Converted:
    """Taught for a moment only: how close it comes is not asked here."""
    torch.manual_seed(0)
    with short_fit(STEPS=80):  # worth a pass
        return onesigma.fit(NETWORKS[name]().eval(), X, worth=1)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_loaded_answers_bit_for_bit(name, tmp_path):
    onesigma.save(fitted(name), tmp_path / "m.safetensors")
    loaded = onesigma.load(tmp_path / "m.safetensors")
    assert loaded.settings.form == "distilled"
    with torch.no_grad():
        found, wanted = loaded(X[:5]).arrays(), fitted(name)(X[:5]).arrays()
    for field, value in wanted.items():
        assert torch.equal(found[field], value), field


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_loaded_can_be_exported(name, tmp_path):
    pytest.importorskip("onnxruntime")
    onesigma.save(fitted(name), tmp_path / "m.safetensors")
    loaded = onesigma.load(tmp_path / "m.safetensors")
    onesigma.export(loaded, tmp_path / "m.onnx", example_input=X[:8])
    for batch in (1, 3, 8):
        found = onesigma.runtime.load(tmp_path / "m.onnx")(X[:batch].numpy())
        with torch.no_grad():
            wanted = fitted(name)(X[:batch]).arrays()
        for field, value in wanted.items():
            assert mismatch(field, getattr(found, field), value.numpy()) < 1e-4, field
        np.testing.assert_allclose(found.probs, wanted["probs"].numpy(), atol=1e-5)
    if shutil.which("gcc"):  # which compiles and compares
        onesigma.export(loaded, tmp_path / "firmware", example_input=X[:8])
