"""Recurrent layers, cells and attention as ONNX, in onnxruntime, against the modules of PyTorch."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onesigma.errors import ExportError  # noqa: E402
from onesigma.exporters.onnx import Interface  # noqa: E402
from onesigma.exporters.onnx.ops import UnwritableError  # noqa: E402
from onesigma.exporters.onnx.writer import write  # noqa: E402
from onesigma.graph.capture import export, plain_module  # noqa: E402
from onesigma.graph.functionalize import functionalize  # noqa: E402

BATCHES = (1, 3, 8)


class Wrapped(nn.Module):
    """All that a module returns, as a flat tuple with the batch first."""

    def __init__(self, inner: nn.Module, call=None, state=None) -> None:
        super().__init__()
        self.inner, self.call, self.state = inner, call, state

    def forward(self, x):
        if self.call is not None:
            return self.call(self.inner, x)
        steps = x if self.inner.batch_first else x.transpose(0, 1)
        out, ends = self.inner(steps, *([] if self.state is None else [self.state(self.inner, x)]))
        out = out if self.inner.batch_first else out.transpose(0, 1)
        return out, *(end.transpose(0, 1) for end in (ends if type(ends) is tuple else (ends,)))


def states(layer: nn.RNNBase, x):
    """Initial states that depend on the input."""
    rows = layer.num_layers * (1 + layer.bidirectional)
    h = torch.stack([(0.3 + i) * x[:, 0, :1].expand(-1, layer.hidden_size) for i in range(rows)])
    return (h, -0.5 * h) if isinstance(layer, nn.LSTM) else h


def written(module: nn.Module, x, opset: int = 18):
    """The module as its graph is captured, and as ONNX."""
    graph = plain_module(export(module.eval(), (x,), dynamic=True))
    functionalize(graph)
    count = len(graph.graph.output_node().args[0])
    names = [f"out{i}" for i in range(count)]
    model = write(graph, (x,), Interface(opset, ["x"], names, dynamic=True))
    onnx.checker.check_model(model, full_check=True)
    return model


def assert_agrees(module: nn.Module, shape=(5, 6), opset: int = 18):
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    model = written(module, torch.randn(2, *shape), opset)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for batch in BATCHES:
        x = torch.randn(batch, *shape)
        with torch.no_grad():
            answer = module(x)
        wanted = answer if isinstance(answer, tuple) else (answer,)
        for found, expected in zip(session.run(None, {"x": x.numpy()}), wanted, strict=True):
            np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    return model


KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
FLAGS = list(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("bidirectional", "batch_first"), FLAGS)
def test_layers(kind, layers, bidirectional, batch_first):
    options = {"bidirectional": bidirectional, "batch_first": batch_first}
    layer = KINDS[kind](6, 4, layers, **options)
    model = assert_agrees(Wrapped(layer))
    ops = [node.op_type for node in model.graph.node]
    assert ops.count(layer.mode.split("_")[0]) == layers
    assert "Expand" not in ops  # zeros are not written


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_initial_states_and_no_biases(kind, layers, bidirectional):
    layer = KINDS[kind](6, 4, layers, bidirectional=bidirectional, bias=layers == 1)
    assert_agrees(Wrapped(layer, state=states), shape=(7, 6), opset=17)


def test_weights_are_stored_once_and_as_onnx_wants_them():
    model = written(Wrapped(nn.LSTM(3, 2, batch_first=True)), torch.randn(2, 4, 3))
    shapes = {tuple(t.dims) for t in model.graph.initializer if t.data_type == 1}
    assert shapes == {(1, 8, 3), (1, 8, 2), (1, 16)}


def in_steps(cell: nn.RNNCellBase, x):
    h = c = torch.zeros(x.shape[0], cell.hidden_size)
    for t in range(x.shape[1]):
        if isinstance(cell, nn.LSTMCell):
            h, c = cell(x[:, t], (h, c))
        else:
            h = cell(x[:, t], h)
    return h, c


CELLS = {
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
    "tanh": nn.RNNCell,
    "relu": lambda *sizes, **options: nn.RNNCell(*sizes, nonlinearity="relu", **options),
}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [False, True])
def test_cells(kind, bias):
    model = assert_agrees(Wrapped(CELLS[kind](6, 4, bias=bias), in_steps))
    ops = [node.op_type for node in model.graph.node]
    assert sum(op in ("LSTM", "GRU", "RNN") for op in ops) == 5


def with_padding(attention: nn.Module, x):
    return attention(x, x, x, key_padding_mask=x[..., 0] > 0.5, need_weights=False)[0]


def causally(encoder: nn.Module, x):
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
    return encoder(x, mask=mask, is_causal=True)


ENCODER = {"d_model": 6, "nhead": 2, "dim_feedforward": 8, "batch_first": True}
ATTENTION = {
    "attention": (nn.MultiheadAttention(6, 2, 0.1, batch_first=True), lambda a, x: a(x, x, x)),
    "attention with padding": (nn.MultiheadAttention(6, 2, batch_first=True), with_padding),
    "encoder layer": (nn.TransformerEncoderLayer(**ENCODER), lambda e, x: e(x)),
    "causal encoder": (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**ENCODER, activation="gelu", norm_first=True),
            num_layers=2,
            norm=nn.LayerNorm(6),
            enable_nested_tensor=False,
        ),
        causally,
    ),
    "decoder layer": (nn.TransformerDecoderLayer(**ENCODER), lambda d, x: d(x, x.flip(1))),
}


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("steps", [5, 9])
def test_attention(name, steps):
    assert_agrees(Wrapped(*ATTENTION[name]), shape=(steps, 6))


def test_projections_are_refused_clearly():
    layer = nn.LSTM(6, 4, proj_size=3, batch_first=True)
    with pytest.raises(ExportError, match=r"projections \(proj_size\).*without them") as error:
        written(Wrapped(layer), torch.randn(2, 5, 6))
    assert "While executing" not in str(error.value)


@pytest.mark.parametrize("computed", ["weights", "dropout"])
def test_what_is_not_covered_is_refused(computed):
    layer = nn.GRU(6, 4, 2, dropout=0.5, batch_first=True)

    def call(gru, x):
        weights = [w + 0 * x.sum() if computed == "weights" else w for w in gru._flat_weights]
        train = computed == "dropout"
        return torch.gru(
            x, x.new_zeros(2, x.shape[0], 4), weights, True, 2, 0.5, train, False, True
        )

    with pytest.raises(UnwritableError):
        written(Wrapped(layer, call), torch.randn(2, 5, 6))
