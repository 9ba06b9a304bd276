"""What the writer does besides asking the table: names, constants, outputs."""

import numpy as np
import pytest
import torch
from torch import fx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onesigma.exporters.onnx import Interface  # noqa: E402
from onesigma.exporters.onnx.writer import write  # noqa: E402

aten = torch.ops.aten
X = torch.linspace(-3, 3, 24).reshape(4, 6)


def test_equal_nodes_are_written_once_and_small_constants_computed():
    graph = fx.Graph()
    x, scale, weight = graph.placeholder("x"), graph.get_attr("scale"), graph.get_attr("weight")
    constant = graph.call_function(aten.mul.Tensor, (scale, 2.0))
    square = graph.call_function(aten.mul.Tensor, (weight, weight))
    a, b = (graph.call_function(aten.mul.Tensor, (x, constant)) for _ in range(2))
    product = graph.call_function(aten.linear.default, (x, square))
    graph.output((graph.call_function(aten.add.Tensor, (a, b)), product))
    attributes = {"scale": torch.tensor([2.0]), "weight": torch.rand(400, 6)}
    interface = Interface(18, ["weight"], ["y", "z"], dynamic=True)
    model = write(fx.GraphModule(attributes, graph), (X,), interface)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds == ["Mul", "Mul", "Gemm", "Add"]
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    assert [a.tolist() for a in stored.values() if a.size == 1] == [[4.0]]
    assert stored["weight:"].shape == (400, 6)  # its own name is the input's


def test_one_value_may_be_two_outputs_and_an_input_one():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(aten.exp.default, (x,))
    graph.output((y, x, y))
    interface = Interface(18, ["x"], ["a", "b", "c"], dynamic=True)
    model = write(fx.GraphModule({}, graph), (X,), interface)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    a, b, c = session.run(["a", "b", "c"], {"x": X.numpy()})
    np.testing.assert_allclose(a, X.exp().numpy(), rtol=1e-6)
    assert (a == c).all()
    assert (b == X.numpy()).all()
