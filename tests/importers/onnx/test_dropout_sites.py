"""Where dropout is, and how the user says so."""

import numpy as np
import onnx
import pytest
import torch
from onnx_files import ints, model, node, numbers, ops, read, write

import onesigma
from onesigma.errors import InputError, ModelError, NoRandomness
from onesigma.importers.onnx.dropout_sites import Dropout


def network(*, opset=17, dropout=(), ratio=None):
    """Two hidden layers in the style of PyTorch's names, SiLU in parts, a ReLU at the end."""
    nodes = [
        node("Conv", ["x", "w1"], ["c"], name="/block1/conv"),
        node("Relu", ["c"], ["r"], name="/block1/relu"),
        *dropout,
        node("Conv", ["dropped" if dropout else "r", "w2"], ["d"], name="/block2/conv"),
        node("Sigmoid", ["d"], ["s"], name="/block2/act/sigmoid"),
        node("Mul", ["d", "s"], ["silu"], name="/block2/act/mul"),
        node("GlobalAveragePool", ["silu"], ["p"], name="/pool"),
        node("Flatten", ["p"], ["f"], name="/flatten"),
        node("Gemm", ["f", "w3", "b"], ["g"], name="/head", transB=1),
        node("Relu", ["g"], ["out"], name="/last"),
    ]
    weights = {"w1": numbers(4, 2, 3), "w2": numbers(5, 4, 3, seed=1), "w3": numbers(3, 5, seed=2)}
    weights["b"] = numbers(3, seed=3)
    if ratio is not None:
        weights |= {"ratio": np.float32(ratio).reshape(()), "on": np.array(True)}
    return model(nodes, {"x": ["batch", 2, 9]}, weights, opset=opset)


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "net.onnx", network())


def sites(module) -> dict[str, Dropout]:
    return {step.node.name: step.dropout for step in module.steps() if step.dropout is not None}


@pytest.mark.parametrize(
    ("dropout", "expected"),
    [
        ({"/block1/relu": 0.3}, {"/block1/relu": 0.3}),
        ({"r": 0.3}, {"/block1/relu": 0.3}),
        ({"every Relu": 0.3}, {"/block1/relu": 0.3, "/last": 0.3}),
        ({"every Swish": 0.3}, {"/block2/act/mul": 0.3}),
        ({"silu": 0.3}, {"/block2/act/mul": 0.3}),
        ({"/block?/conv": 0.1}, {"/block1/conv": 0.1, "/block2/conv": 0.1}),
        ({"*pool": 0.1, "every Relu": 0.2, "/last": 0.0},
         {"/pool": 0.1, "/block1/relu": 0.2, "/last": 0.0}),
        ({}, {}),
    ],
)  # fmt: skip
def test_names(dropout, expected, path):
    found = sites(onesigma.read_onnx(path, dropout=dropout))
    assert {name: dropped.rate for name, dropped in found.items()} == expected


def test_the_report_calls_sites_as_the_file_does(path):
    module = onesigma.read_onnx(path, dropout={"/pool": 0.1, "every Relu": 0.0})
    report = onesigma.convert(module, torch.randn(2, 2, 9)).report
    assert [(site.module, site.rate, site.source) for site in report.sites] == [
        ("/block1/relu", 0.0, ""),
        ("/pool", 0.1, ""),
        ("/last", 0.0, ""),
    ]
    assert "/block2/act/mul" in [entry.module for entry in report.entries if "silu" in entry.op]


def test_a_site_inside_a_layer_keeps_the_layer_apart(path):
    """SiLU with a dropout between its sigmoid and the product is no SiLU."""
    whole = onesigma.read_onnx(path, dropout={"silu": 0.3})
    apart = onesigma.read_onnx(path, dropout={"/block2/act/sigmoid": 0.3})
    assert "Swish" in ops(whole)
    assert ops(apart)[3:5] == ["Sigmoid", "Mul"]
    assert sites(apart) == {"/block2/act/sigmoid": Dropout(0.3)}


@pytest.mark.parametrize(
    ("dropout", "message"),
    [
        ({"/block1/rleu": 0.3}, r"called '/block1/rleu'\. Did you mean '/block1/relu'"),
        ({"relu": 0.3}, r"no node or value of net.onnx is called 'relu'.*onesigma inspect"),
        ({"nowhere*": 0.3}, "called 'nowhere"),
        ({"every Rleu": 0.3}, "no op 'Rleu' in net.onnx, but 'Conv', 'Flatten'.* 'Swish'"),
        ({"every Sigmoid": 0.3}, "no op 'Sigmoid'"),  # it is part of a Swish
        ({"/block1/relu": 1.5}, r"'/block1/relu': a dropout rate .* not 1\.5"),
        ({"/block1/relu": 1.0}, "below 1"),
        ({"/block1/relu": -0.1}, "at least 0"),
        ({"/block1/relu": float("nan")}, "not nan"),
    ],
)
def test_what_fits_nothing_gets_suggestions(dropout, message, path):
    with pytest.raises(InputError, match=message):
        onesigma.read_onnx(path, dropout=dropout)


def test_sizes_cannot_be_dropped(tmp_path):
    nodes = [
        node("Shape", ["x"], ["s"], name="shape"),
        node("Gather", ["s", "first"], ["n"]),
        node("Concat", ["n", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["out"]),
    ]
    weights = {"first": ints(0), "rest": ints(-1)}
    proto = model(nodes, {"x": ["batch", 2, 3]}, weights)
    with pytest.raises(InputError, match=r"node 'shape' \(Shape\) makes no elements to drop"):
        read(tmp_path, proto, dropout={"shape": 0.5})
    with pytest.raises(InputError, match="makes no channels to drop"):
        read(tmp_path, proto, channel_dropout={"out": 0.5})


def test_without_dropout_the_error_says_why_and_where(path):
    with pytest.raises(NoRandomness) as caught:
        onesigma.read_onnx(path)
    message = str(caught.value)
    assert "holds no Dropout. Exporters leave it out" in message
    assert "--dropout 'every Relu=0.5'" in message
    listed = [line.split() for line in message.splitlines()[4:]]
    assert [line[:2] for line in listed] == [["/block1/relu", "Relu"], ["/block2/act/mul", "Swish"]]
    assert message.splitlines()[4].endswith("(batch, 4, 7)")


def test_without_activations_there_is_nothing_to_list(tmp_path):
    nodes = [node("Gemm", ["x", "w"], ["out"])]
    with pytest.raises(NoRandomness, match="every Relu"):
        read(tmp_path, model(nodes, {"x": ["batch", 4]}, {"w": numbers(4, 3)}), dropout=None)


@pytest.mark.parametrize(
    ("opset", "inputs", "attributes", "rate"),
    [
        (9, [], {"ratio": 0.2}, 0.2),
        (9, [], {}, 0.5),
        (17, ["ratio"], {}, 0.3),
        (17, ["ratio", "on"], {}, 0.3),
        (17, [], {}, 0.5),
        (17, ["", "on"], {"seed": 3}, 0.5),
    ],
)
def test_the_file_says_it_itself(opset, inputs, attributes, rate, tmp_path):
    made = node("Dropout", ["r", *inputs], ["dropped"], name="/drop", **attributes)
    proto = network(opset=opset, dropout=[made], ratio=0.3)
    assert sites(read(tmp_path, proto, dropout=None)) == {"/drop": Dropout(rate)}
    both = read(tmp_path, proto, dropout={"/drop": 0.1, "silu": 0.2})
    assert sites(both) == {"/drop": Dropout(0.1), "/block2/act/mul": Dropout(0.2)}


@pytest.mark.parametrize("ratio", [1.0, -0.5])
def test_a_rate_that_is_none(ratio, tmp_path):
    made = node("Dropout", ["r", "ratio"], ["dropped"], name="/drop")
    with pytest.raises(InputError, match=r"node '/drop' \(Dropout\): a dropout rate"):
        read(tmp_path, network(dropout=[made], ratio=ratio))


def test_a_rate_that_is_several_numbers(tmp_path):
    proto = network(dropout=[node("Dropout", ["r", "ratio"], ["dropped"], name="/drop")], ratio=0.3)
    (ratio,) = (weight for weight in proto.graph.initializer if weight.name == "ratio")
    ratio.CopyFrom(onnx.numpy_helper.from_array(numbers(2), "ratio"))
    with pytest.raises(ModelError, match=r"'/drop' \(Dropout\): its rate is one number, not 2"):
        read(tmp_path, proto)


def test_a_rate_that_is_computed(tmp_path):
    nodes = [
        node("ReduceMean", ["x"], ["m"], keepdims=0),
        node("Sigmoid", ["m"], ["rate"]),
        node("Dropout", ["r", "rate"], ["dropped"], name="/drop"),
    ]
    with pytest.raises(ModelError, match="its rate is computed when it runs"):
        read(tmp_path, network(dropout=nodes))
