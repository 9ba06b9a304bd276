"""LSTM, GRU and RNN nodes: read as PyTorch's layers, against ONNX Runtime; and back again."""

import numpy as np
import onnx
import pytest
import torch
from onnx_files import assert_agreement, model, node, numbers, read, run
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma.errors import UnsupportedOp
from onesigma.exporters.onnx import Interface
from onesigma.exporters.onnx.writer import write
from onesigma.graph.capture import export, plain_module

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, INPUTS, UNITS = 5, 4, 6
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def weights_for(op: str, count: int, biases: bool = True) -> dict[str, np.ndarray]:
    gates = GATES[op] * UNITS
    made = {"w": 0.5 * numbers(count, gates, INPUTS), "r": 0.5 * numbers(count, gates, UNITS)}
    return made | ({"b": 0.5 * numbers(count, 2 * gates)} if biases else {})


def one_layer(op: str, direction: str = "forward", *, states: bool = False, biases: bool = True,
              last: str = "flat", **options):  # fmt: skip
    """Steps first, one layer, and its states behind each other in rows."""
    count = DIRECTIONS[direction]
    weights = weights_for(op, count, biases)
    given = ["h", "c"][: 2 if op == "LSTM" else 1] if states else []
    inputs = ["steps", "w", "r", "b" if biases else "", *(["", *given] if states else [])]
    options |= {"linear_before_reset": 1} if op == "GRU" else {}
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    nodes = [
        node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        node(op, inputs, outputs, name="layer", hidden_size=UNITS, direction=direction, **options),
        node("Transpose", ["y"], ["rows"], perm=[2, 0, 1, 3]),
        node("Flatten", ["rows"], ["flat"]),
        *(node("Transpose", [name], [f"{name}_rows"], perm=[1, 0, 2]) for name in outputs[1:]),
        *(node("Flatten", [f"{name}_rows"], [f"{name}_flat"]) for name in outputs[1:]),
        node("Concat", ["flat", *(f"{name}_flat" for name in outputs[1:])], ["out"], axis=1),
    ]
    if states:
        nodes = [
            node("Slice", ["x", "zero", "two", "one"], ["few"]),
            node("Transpose", ["few"], ["turned"], perm=[1, 0, 2]),
            node("Slice", ["turned", "zero", "count", "zero"], ["narrow"]),
            node("MatMul", ["narrow", "wide"], ["h"]),
            node("Tanh", ["h"], ["c"]),
            *nodes,
        ]
        sizes = {"zero": 0, "one": 1, "two": 2, "count": count}
        weights |= {name: np.array([n]) for name, n in sizes.items()}
        weights["wide"] = numbers(INPUTS, UNITS)
    return model(nodes, {"x": ["batch", STEPS, INPUTS]}, weights)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("states", [False, True])
def test_layers(op, direction, states, tmp_path):
    module = read(tmp_path, one_layer(op, direction, states=states, biases=not states))
    for batch in (1, 3, 8):
        assert_agreement(module, tmp_path / "m.onnx", numbers(batch, STEPS, INPUTS, seed=batch))


def test_relu(tmp_path):
    both = ["Relu", "Relu"]
    module = read(tmp_path, one_layer("RNN", "bidirectional", activations=both))
    assert_agreement(module, tmp_path / "m.onnx", numbers(3, STEPS, INPUTS))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_what_we_write_is_read_back_with_the_same_weights(kind, tmp_path):
    """Not only the answers: the weights are weights again, in PyTorch's order."""
    torch.manual_seed(0)
    layer = kind(INPUTS, UNITS, 2, bidirectional=True, batch_first=True).eval()
    x = torch.randn(2, STEPS, INPUTS)
    graph = plain_module(export(_First(layer), (x,), dynamic=True))
    written = write(graph, (x,), Interface(18, ["x"], ["out"], dynamic=True))
    module = read(tmp_path, written)
    assert_agreement(module, tmp_path / "m.onnx", numbers(3, STEPS, INPUTS))
    captured = plain_module(export(module, (x,), dynamic=True)).graph
    layers = [n for n in captured.nodes if str(n.target).startswith(f"aten.{layer.mode.lower()}")]
    assert len(layers) == 2
    found = {id(n) for each in layers for n in each.args[2]}
    assert len(found) == len(layer._flat_weights)
    assert all(n.op == "get_attr" for each in layers for n in each.args[2])
    stored = sorted(tuple(p.shape) for p in module.parameters())
    assert stored == sorted(tuple(w.shape) for w in layer._flat_weights)


class _First(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def test_a_file_is_fitted(tmp_path):
    """Dropout of the sequence between an LSTM and a GRU, named by the user."""
    weights = {f"{name}1": w for name, w in weights_for("LSTM", 1).items()}
    again = {f"{name}2": w for name, w in weights_for("GRU", 1).items()}
    again["w2"] = 0.5 * numbers(1, 3 * UNITS, UNITS)
    nodes = [
        node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        node("LSTM", ["steps", "w1", "r1", "b1"], ["y"], name="first", hidden_size=UNITS),
        node("Squeeze", ["y", "axis"], ["h"]),
        node("GRU", ["h", "w2", "r2", "b2"], ["", "last"], hidden_size=UNITS,
             linear_before_reset=1),
        node("Squeeze", ["last", "first_axis"], ["row"]),
        node("MatMul", ["row", "head"], ["out"]),
    ]  # fmt: skip
    sizes = {"axis": np.array([1]), "first_axis": np.array([0])}
    weights |= {**again, **sizes, "head": numbers(UNITS, 3)}
    proto = model(nodes, {"x": ["batch", STEPS, INPUTS]}, weights)
    module = read(tmp_path, proto, dropout={"first": 0.4})
    x = torch.from_numpy(numbers(60, STEPS, INPUTS, seed=3))
    with short_fit():
        ready = onesigma.fit(module, x, worth=1)
    spread = onesigma.mc_dropout(module, passes=200, seed=0)(x).var
    assert float(spread.min()) > 0
    exported = onesigma.export(ready, tmp_path / "out.onnx", example_input=x[:8])
    ops = [each.op_type for each in onnx.load(exported.path).graph.node]
    assert {"LSTM", "GRU"} <= set(ops)
    found = run(exported.path, x[:5].numpy())["probs"]
    with torch.no_grad():
        np.testing.assert_allclose(found, ready(x[:5]).probs.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("op", "options", "message"),
    [
        ("LSTM", {"clip": 1.0}, "with clip"),
        ("LSTM", {"input_forget": 1}, "with input_forget"),
        ("GRU", {"linear_before_reset": 0}, "linear_before_reset=0"),
        ("RNN", {"activations": ["Sigmoid"]}, "with activations"),
        ("LSTM", {"activations": ["Tanh", "Tanh", "Tanh"]}, "with activations"),
    ],
)
def test_uses_that_are_not_supported_name_the_node(op, options, message, tmp_path):
    proto = one_layer(op)
    layer = next(each for each in proto.graph.node if each.name == "layer")
    kept = [a for a in layer.attribute if a.name not in options]
    del layer.attribute[:]
    layer.attribute.extend(
        [*kept, *(onnx.helper.make_attribute(*pair) for pair in options.items())]
    )
    with pytest.raises(UnsupportedOp, match=rf"node 'layer' \({op}\): .*{message}.* not supported"):
        read(tmp_path, proto)
