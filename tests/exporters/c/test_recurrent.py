"""Recurrent layers as C: against ONNX Runtime, and fitted networks against PyTorch."""

import numpy as np
import pytest
import torch
from torch import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import Model, assert_agrees, needs_gcc, verify  # noqa: E402

from onesigma.errors import ExportError  # noqa: E402
from onesigma.exporters.c import generate  # noqa: E402
from onesigma.exporters.onnx import Interface  # noqa: E402
from onesigma.exporters.onnx.writer import write  # noqa: E402
from onesigma.graph.prepare import prepare  # noqa: E402

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, INPUTS, UNITS = 5, 3, 6
RANDOM = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return (0.7 * RANDOM.standard_normal(shape)).astype(np.float32)


def layer(m: Model, op: str, x: str, *states: str, biases: bool = True, count: int = 1, **options):
    """One layer with random weights; returns its first output."""
    gates = GATES[op] * UNITS
    weights = [m.constant(normal(count, gates, n)) for n in (INPUTS, UNITS)]
    weights.append(m.constant(normal(count, 2 * gates)) if biases else "")
    options |= {"linear_before_reset": 1} if op == "GRU" else {}
    results = 3 if op == "LSTM" else 2
    inputs = (x, *weights, "", *states)
    return m.op(op, *inputs, hidden_size=UNITS, results=results, **options)


@needs_gcc
@pytest.mark.parametrize("op", GATES)
def test_layers(op, tmp_path):
    m = Model(x=(1, STEPS, INPUTS), h=(1, 2, UNITS))
    steps = m.op("Transpose", "x", perm=[1, 0, 2], output=False)
    rows = m.op("Reshape", "x", m.sizes(STEPS, 1, INPUTS), output=False)
    layer(m, op, steps)
    layer(m, op, rows, biases=False, direction="reverse")
    layer(m, op, steps, count=2, direction="bidirectional")
    state = m.op("Transpose", "h", perm=[1, 0, 2], output=False)
    layer(m, op, steps, *[state] * (2 if op == "LSTM" else 1), count=2, direction="bidirectional")
    fixed = m.constant(normal(1, 1, UNITS))
    layer(m, op, steps, fixed)
    if op == "RNN":
        layer(m, op, steps, activations=["Relu"])
    # Several rows at once, as where a batch was folded into the steps.
    folded = m.op("Reshape", m.op("Concat", "x", "x", axis=1, output=False), m.sizes(5, 2, 3))
    layer(m, op, folded, count=2, direction="bidirectional")
    assert_agrees(m, tmp_path)


class Recurrent(nn.Module):
    """What people take of a recurrent layer: the last step, the last states, or all of them."""

    def __init__(self, recurrent: nn.RNNBase, take: str) -> None:
        super().__init__()
        self.recurrent, self.take = recurrent, take
        width = recurrent.hidden_size * (1 + recurrent.bidirectional)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(width, 3)

    def forward(self, x):
        out, state = self.recurrent(x)
        h = state[0] if isinstance(state, tuple) else state
        rows = 1 + self.recurrent.bidirectional
        taken = {
            "last step": lambda: out[:, -1],
            "last state": lambda: h[-rows:].transpose(0, 1).flatten(1),
            "all steps": lambda: out.mean(1),
        }
        return self.last(self.drop(taken[self.take]()))


def generated(module: nn.Module, x: torch.Tensor, folder, **options):
    """The network itself as C, and what it answers in PyTorch."""
    prepared = prepare(module.eval(), x, "classification", None)
    model = write(prepared.graph, (x,), Interface(18, ["x"], ["y"], dynamic=True))
    return generate(model, folder, **options)


def assert_c_agrees(made, module: nn.Module, x: torch.Tensor, tolerance: float = 1e-5) -> None:
    samples = [{"x": row[None].numpy()} for row in x]
    ran = verify.run(made, samples, flags=verify.SANITIZERS)
    with torch.no_grad():
        wanted = module(x).numpy()
    found = np.stack([each["y"] for each in ran.outputs])
    np.testing.assert_allclose(found, wanted, atol=tolerance)


def seeded(recurrent, take: str) -> Recurrent:
    torch.manual_seed(0)
    module = Recurrent(recurrent, take)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module.eval()


OPTIONS = {"batch_first": True, "num_layers": 2}


@needs_gcc
@pytest.mark.parametrize("take", ["last step", "last state", "all steps"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("both", [False, True])
def test_networks(kind, both, take, tmp_path):
    module = seeded(kind(4, 6, bidirectional=both, **OPTIONS), take)
    x = torch.randn(3, 7, 4)
    assert_c_agrees(generated(module, x, tmp_path), module, x)


@pytest.mark.parametrize("take", ["last step", "last state"])
def test_a_sequence_that_is_not_read_takes_no_memory(take, tmp_path):
    arenas = []
    for steps in (10, 100):
        module = seeded(nn.LSTM(4, 6, batch_first=True), take)
        arenas.append(generated(module, torch.randn(2, steps, 4), tmp_path).arena)
    assert arenas[0] == arenas[1]


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        options = {"batch_first": True, "activation": "gelu", "norm_first": True}
        self.encoder = nn.TransformerEncoderLayer(8, 2, 12, **options)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.last(self.encoder(x, src_mask=mask, is_causal=True).mean(1))


class InSteps(nn.Module):
    """A cell in a loop of Python."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell, self.drop, self.last = cell, nn.Dropout(0.2), nn.Linear(8, 3)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 8)
        for t in range(x.shape[1]):
            if isinstance(self.cell, nn.LSTMCell):
                h, c = self.cell(x[:, t], (h, c))
            else:
                h = self.cell(x[:, t], h)
        return self.last(self.drop(h))


MODULES = {
    "attention": Attentive,
    "lstm cell": lambda: InSteps(nn.LSTMCell(8, 8)),
    "gru cell": lambda: InSteps(nn.GRUCell(8, 8)),
    "rnn cell": lambda: InSteps(nn.RNNCell(8, 8)),
}


@needs_gcc
@pytest.mark.parametrize("name", MODULES)
def test_attention_and_cells(name, tmp_path):
    torch.manual_seed(0)
    module, x = MODULES[name]().eval(), torch.randn(3, 5, 8)
    assert_c_agrees(generated(module, x, tmp_path), module, x)


@pytest.mark.parametrize(
    ("op", "options", "message"),
    [
        ("GRU", {"linear_before_reset": 0}, "resets before it multiplies"),
        ("LSTM", {"clip": 3.0}, "clip"),
        ("LSTM", {"input_forget": 1}, "input_forget"),
        ("RNN", {"activations": ["Sigmoid"]}, "Sigmoid"),
        ("LSTM", {"lengths": True}, "lengths"),
        ("LSTM", {"peepholes": True}, "peepholes"),
    ],
)
def test_what_is_not_covered_is_refused(op, options, message, tmp_path):
    m = Model(x=(1, 1, INPUTS))
    gates = GATES[op] * UNITS
    weights = [m.constant(normal(1, gates, n)) for n in (INPUTS, UNITS)]
    extra = []
    if options.pop("lengths", False):
        extra = ["", m.constant([1], np.int32)]
    if options.pop("peepholes", False):
        extra = ["", "", "", "", m.constant(normal(1, 3 * UNITS))]
    m.op(op, "x", *weights, *extra, hidden_size=UNITS, **options)
    with pytest.raises(ExportError, match=message):
        generate(m.proto(), tmp_path)
