"""The network of a file as a module: its names, its dropout, what it cannot compute."""

import pytest
import torch
from onnx_files import classifier, model, node, numbers, read

import onesigma
from onesigma.errors import UnsupportedOp


def test_any_name_will_do(tmp_path):
    """Names that modules have already, or that PyTorch forbids; also in a saved model."""
    nodes, weights, made = [], {}, "x"
    for name in ("forward", "weights", "a..b", "."):
        nodes += [
            node("Gemm", [made, name], [f"{name} h"], name=name),
            node("Relu", [f"{name} h"], [f"{name} r"], name=f"{name}.inner"),
            node("Gemm", [f"{name} r", f"{name}.w"], [f"{name} o"], name=f"{name}.w"),
        ]
        weights |= {name: numbers(5, 4), f"{name}.w": numbers(4, 5)}
        made = f"{name} o"
    module = read(
        tmp_path,
        model(nodes, {"x": ["n", 5]}, weights, outputs=[made]),
        dropout={"every Relu": 0.5},
    )
    converted = onesigma.convert(module, torch.randn(2, 5))
    onesigma.save(converted, tmp_path / "m.safetensors")
    again = onesigma.load(tmp_path / "m.safetensors")
    x = torch.randn(3, 5)
    assert torch.equal(again(x).var, converted(x).var)


def test_dropout_acts_in_training_only(tmp_path):
    module = read(tmp_path, classifier(), dropout={"relu1": 0.5})
    x = torch.randn(4, 6)
    assert not module.training
    assert torch.equal(module(x), module(x))
    torch.manual_seed(0)
    assert not torch.equal(module.train()(x), module(x))


def test_channels_drop_as_a_whole(tmp_path):
    nodes = [
        node("Sigmoid", ["x"], ["a"], name="act"),
        node("GlobalAveragePool", ["a"], ["p"]),
        node("Flatten", ["p"], ["out"]),
    ]
    module = read(tmp_path, model(nodes, {"x": ["n", 5, 7]}), channel_dropout={"act": 0.5})
    torch.manual_seed(0)
    dropped = module.train().values(torch.rand(40, 5, 7))["a"] == 0
    assert torch.equal(dropped.any(-1), dropped.all(-1))
    assert 0.35 < dropped.float().mean() < 0.65
    report = onesigma.convert(module.eval(), torch.randn(2, 5, 7)).report
    assert report.sites[0].op == "aten.feature_dropout"


def test_second_outputs_are_not_computed(tmp_path):
    pool = node("MaxPool", ["x"], ["p", "indices"], kernel_shape=[2])
    cast = node("Cast", ["indices"], ["out"], to=1, name="cast")
    with pytest.raises(UnsupportedOp, match=r"node 'cast' .* needs 'indices', a second"):
        read(tmp_path, model([pool, cast], {"x": ["n", 2, 6]}))
