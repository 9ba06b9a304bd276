"""Keras models on the PyTorch backend: their dropout is found, and is Keras' own."""

import os
import sys
import tempfile
from functools import cache

import numpy as np
import pytest
import torch
from short_fit import short_fit

import onesigma
from onesigma.errors import ModelError, UnsupportedOp
from onesigma.graph.capture import capture, export, is_site
from onesigma.importers.keras import as_module

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("KERAS_HOME", tempfile.mkdtemp())  # it writes its settings there
keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend here", allow_module_level=True)
L = keras.layers


def mlp():
    return keras.Sequential(
        [
            L.Input((6,)),
            L.Dense(16, activation="relu"),
            L.Dropout(0.5, name="drop1"),
            L.Dense(16, activation="leaky_relu"),
            L.BatchNormalization(),
            L.Dropout(0.2, name="drop2"),
            L.Dense(3),
        ]
    )


def cnn():
    """Functional, channels last: conv, batch norm along the last dimension, a residual join."""
    x = inputs = L.Input((8, 8, 2))
    x = L.Conv2D(4, 3, padding="same", strides=2, activation="relu")(x)
    x = L.BatchNormalization()(x)
    y = L.SpatialDropout2D(0.3, name="channels")(x)
    y = L.Conv2D(4, 3, padding="same", activation="relu")(y)
    x = L.Add()([x, y])
    x = L.AveragePooling2D(2)(x)
    x = L.Flatten()(x)
    x = L.Dropout(0.4, name="elements")(x)
    return keras.Model(inputs, L.Dense(3, activation="softmax")(x))


class Subclassed(keras.Model):
    """No configuration from which Keras could copy it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = L.Dense(width, activation="selu")
        self.dropout = L.AlphaDropout(0.1, name="alpha")
        self.out = L.Dense(3)

    def call(self, x, training=None):
        return self.out(self.dropout(self.hidden(x), training=training))


def subclassed():
    model = Subclassed(8)
    model(torch.zeros(1, 6))
    return model


def two_inputs():
    a, b = L.Input((6,)), L.Input((4,))
    joined = L.Concatenate()([L.Dense(5, activation="relu")(each) for each in (a, b)])
    return keras.Model([a, b], L.Dense(3)(L.Dropout(0.5, name="drop")(joined)))


SHAPES = {mlp: [(6,)], cnn: [(8, 8, 2)], subclassed: [(6,)], two_inputs: [(6,), (4,)]}
SITES = {
    mlp: [("drop1", "aten.dropout", 0.5), ("drop2", "aten.dropout", 0.2)],
    cnn: [("channels", "aten.feature_dropout", 0.3), ("elements", "aten.dropout", 0.4)],
    subclassed: [("alpha", "aten.alpha_dropout", 0.1)],
    two_inputs: [("drop", "aten.dropout", 0.5)],
}
MODELS = pytest.mark.parametrize("build", SHAPES, ids=lambda build: build.__name__)


def made(build):
    """The model, with biases and statistics that are not the initial ones, and inputs."""
    keras.utils.set_random_seed(0)
    model, draw = build(), np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith(("bias", "beta", "moving_mean")):
            weight.assign(0.3 * draw.normal(size=weight.shape))
        elif weight.path.endswith("moving_variance"):
            weight.assign(draw.uniform(0.5, 2, size=weight.shape))
    shapes = SHAPES[build]
    return model, tuple(torch.from_numpy(draw.normal(size=(3, *s)).astype("f4")) for s in shapes)


@cache
def converted(build):
    """The model, inputs and what became of it. Shared: do not change it."""
    model, inputs = made(build)
    return model, inputs, onesigma.convert(model, inputs)


def called(model, inputs, **options):
    with torch.no_grad():
        return model(list(inputs) if len(inputs) > 1 else inputs[0], **options)


@pytest.fixture
def norms_in_eval(monkeypatch):
    """Keras' training=True except in batch norm, as Monte-Carlo dropout wants it."""
    original = L.BatchNormalization.call

    def call(layer, inputs, training=None, mask=None):
        return original(layer, inputs, training=False, mask=mask)

    monkeypatch.setattr(L.BatchNormalization, "call", call)


@MODELS
def test_conversion(build, norms_in_eval):
    model, inputs, carried = converted(build)
    assert [(s.module, s.op, s.rate) for s in carried.report.sites] == SITES[build]
    assert carried.settings.input_shapes == tuple((None, *shape) for shape in SHAPES[build])
    assert all(entry.source == "" for entry in carried.report.entries)
    assert not [note for note in carried.report.notes if "NOT carried" in note]
    network = as_module(model)
    torch.testing.assert_close(network(*inputs), called(model, inputs), rtol=1e-6, atol=1e-6)

    # Monte Carlo of the captured graph against Keras' own dropout: within five standard errors.
    passes = 1000
    ours = onesigma.mc_dropout(model, passes=passes)(*inputs)
    torch.manual_seed(1)
    repeated = [x.repeat(passes, *[1] * (x.dim() - 1)) for x in inputs]
    theirs = called(model, repeated, training=True).reshape(passes, 3, -1)
    mean = ours.probs if build is cnn else ours.mean
    error = 5 * theirs.std(0) * (2 / passes) ** 0.5 + 1e-6
    assert ((mean - theirs.mean(0)).abs() < error).all()
    if build is not cnn:  # its logits are not to be had from Keras
        torch.testing.assert_close(ours.std, theirs.std(0), rtol=0.15, atol=1e-4)


def test_weights_are_shared_and_the_model_is_not_touched():
    model, inputs, carried = converted(two_inputs)
    assert torch.equal(called(model, inputs), called(made(two_inputs)[0], inputs))
    kernel = model.layers[-1].kernel.value
    assert any(kernel is weight for weight in carried.parameters())


def test_keras_itself_is_not_changed():
    model, inputs, _ = converted(mlp)
    calls = (L.Layer.__call__, L.Dropout.call, L.AlphaDropout.call, L.SpatialDropout1D.call)
    as_module(model)(*inputs)
    after = (L.Layer.__call__, L.Dropout.call, L.AlphaDropout.call, L.SpatialDropout1D.call)
    assert calls == after


def test_saving_export_and_double(tmp_path):
    pytest.importorskip("onnxruntime")
    model, inputs, carried = converted(cnn)
    onesigma.save(carried, tmp_path / "m.safetensors")
    again = onesigma.load(tmp_path / "m.safetensors")
    assert torch.equal(again(*inputs).var, carried(*inputs).var)
    exported = onesigma.export(carried, tmp_path / "m.onnx", plain=("answer", model))
    assert exported.error < 1e-4
    assert again.double()(*(x.double() for x in inputs)).mean.dtype == torch.float64


def test_what_is_not_carried_is_noted():
    noisy = [L.GaussianNoise(0.1, name="noise"), L.GaussianDropout(0.1, name="gauss")]
    model = keras.Sequential([L.Input((6,)), *noisy, L.Dropout(0.5), L.Dense(3)])
    notes = onesigma.convert(model, torch.zeros(2, 6)).report.notes
    assert [note.split()[0] for note in notes if "NOT carried" in note] == ["noise", "gauss"]


@pytest.mark.parametrize("layer", [L.Dropout, L.AlphaDropout])
def test_shared_masks_are_refused(layer):
    drop = layer(0.5, noise_shape=(None, 1), name="rows")
    model = keras.Sequential([L.Input((6,)), drop, L.Dense(3)])
    with pytest.raises(UnsupportedOp, match=r"'rows' has noise_shape=\(None, 1\)"):
        onesigma.convert(model, torch.zeros(2, 6))


def test_channels_first():
    """Where PyTorch has the channels too, so nothing is moved."""
    layer = L.SpatialDropout2D(0.5, data_format="channels_first")
    network = as_module(keras.Sequential([L.Input((3, 4, 4)), layer]))
    x = torch.rand(2, 3, 4, 4)
    assert torch.equal(network(x), x)
    graph = export(network.eval(), (x,), dynamic=False).graph
    ops = {str(each.target) for each in graph.nodes}
    assert "aten.feature_dropout.default" in ops
    assert not ops & {"aten.movedim.int", "aten.permute.default"}


def test_other_backends_are_told_what_to_do(monkeypatch):
    model, _ = made(mlp)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ModelError, match=r"runs on jax here\. Set KERAS_BACKEND=torch"):
        onesigma.convert(model, torch.zeros(2, 6))


def test_other_modules_are_left_alone(monkeypatch):
    module = torch.nn.Linear(2, 2)
    assert as_module(module) is module
    monkeypatch.delitem(sys.modules, "keras")
    assert as_module(module) is module


@pytest.mark.parametrize("noisy", [L.GaussianNoise(1.0), L.GaussianDropout(0.5)])
def test_monte_carlo_has_the_noise_that_is_not_carried(noisy):
    model = keras.Sequential(
        [L.Input((3, 4)), noisy, L.BatchNormalization(), L.Flatten(), L.Dropout(0.01), L.Dense(3)]
    )
    x = torch.randn(20, 3, 4, generator=torch.Generator().manual_seed(0))
    before = [variable.value.detach().clone() for variable in model.variables]
    network = onesigma.convert(model, x)
    assert any("NOT carried" in note for note in network.report.notes)
    assert onesigma.audit(network, x, passes=40).own_spread > 1.1
    after = [variable.value for variable in model.variables]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


RECURRENT = {
    "lstm": lambda **options: L.LSTM(8, dropout=0.4, **options),
    "lstm, recurrent": lambda **options: L.LSTM(8, recurrent_dropout=0.4, **options),
    "gru": lambda **options: L.GRU(8, dropout=0.3, recurrent_dropout=0.3, **options),
    "gru that resets before": lambda **options: L.GRU(8, dropout=0.4, reset_after=False, **options),
    "simple": lambda **options: L.SimpleRNN(8, dropout=0.4, **options),
    "bidirectional": lambda **options: L.Bidirectional(L.LSTM(8, dropout=0.4, **options)),
}


def recurrent(name: str, **options):
    """A recurrent layer over (steps, channels), and inputs."""
    keras.utils.set_random_seed(0)
    last = L.Dense(3, kernel_initializer=keras.initializers.RandomNormal(stddev=1.0))
    layer = RECURRENT[name](**options)
    model = keras.Sequential([L.Input((4, 5)), layer, last])
    return model, torch.randn(60, 4, 5, generator=torch.Generator().manual_seed(0))


def layers_of(model):
    return [layer for layer in model._flatten_layers() if isinstance(layer, L.RNN)]


@pytest.mark.parametrize(
    ("name", "unroll"), [*((name, False) for name in RECURRENT), ("lstm", True)]
)
def test_masks_of_recurrent_layers_are_found(name, unroll):
    """They are sites of the graph, which answers as Keras does; and nothing is left unsaid."""
    model, x = recurrent(name, unroll=unroll)
    captured = capture(as_module(model), x[:3])
    assert [layer.unroll for layer in layers_of(model)] == [unroll] * len(layers_of(model))
    sites = [node for node in captured.graph.graph.nodes if is_site(node)]
    cell = {"lstm, recurrent": [0.4] * 4, "gru": [0.3] * 6, "bidirectional": [0.4] * 2}
    assert [node.args[1] for node in sites] == cell.get(name, [0.4])
    assert captured.notes == ()
    assert captured.rows_apart
    assert captured.dynamic_batch
    assert torch.equal(captured.graph(x)[0], called(model, (x,)))


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_monte_carlo_of_recurrent_layers_is_that_of_keras(name):
    """Many rows of one input at once; a mask of its own for each row, the same at all steps."""
    model, x = recurrent(name)
    rows = x[:1].repeat(4000, 1, 1)
    wanted = called(model, (rows,), training=True)
    found = onesigma.mc_dropout(as_module(model), passes=4000, seed=0)(x[:1])
    error = wanted.std(0) / len(rows) ** 0.5
    assert bool(((found.mean[0] - wanted.mean(0)).abs() < 5 * 2**0.5 * error).all())
    # The error of a variance, from the fourth moment.
    squares = (wanted - wanted.mean(0)).square()
    error = squares.std(0) / len(rows) ** 0.5
    assert bool(((found.var[0] - wanted.var(0)).abs() < 5 * 2**0.5 * error).all())


def test_a_recurrent_layer_is_fitted_and_exported(tmp_path):
    pytest.importorskip("onnxruntime")
    model, x = recurrent("gru")
    with short_fit():
        ready = onesigma.fit(model, x, worth=1)
    assert not any("NOT carried" in note for note in ready.report.notes)
    onesigma.export(ready, tmp_path / "m.onnx", example_input=x[:8])
    found = onesigma.runtime.load(tmp_path / "m.onnx")(x[:5].numpy())
    with torch.no_grad():
        np.testing.assert_allclose(found.probs, ready(x[:5]).probs.numpy(), atol=1e-5)
