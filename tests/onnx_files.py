"""Small ONNX files for the tests, written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from onesigma.importers.onnx.module import OnnxModule
from onesigma.importers.onnx.read import read_onnx

FLOAT = TensorProto.FLOAT
node = helper.make_node


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def scalar(value: float) -> np.ndarray:
    return np.array(value, dtype=np.float32)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any]],
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    outputs: Sequence[str] = ("out",),
    opset: int = 17,
    dtype: int = FLOAT,
) -> onnx.ModelProto:
    """A model whose first input dimension may be a name; its outputs' shapes are inferred."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    try:
        shapes = onnx.shape_inference.infer_shapes(made)
    except Exception:  # a file that is wrong on purpose
        shapes = made
    for mine, inferred in zip(made.graph.output, shapes.graph.output, strict=True):
        dims = [None] * (len(inferred.type.tensor_type.shape.dim) or 2)
        mine.CopyFrom(helper.make_tensor_value_info(mine.name, FLOAT, dims))
    return made


def write(path: Path, proto: onnx.ModelProto) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def run(path: Path, *inputs: np.ndarray) -> dict[str, np.ndarray]:
    """All outputs by name, in ONNX Runtime itself."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {each.name: x for each, x in zip(session.get_inputs(), inputs, strict=True)}
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def read(folder: Path, proto: onnx.ModelProto, **options: Any) -> OnnxModule:
    """The model as ``read_onnx`` reads it from ``m.onnx`` in that folder; no dropout is needed."""
    return read_onnx(write(folder / "m.onnx", proto), **({"dropout": {}} | options))


def ops(module: OnnxModule) -> list[str]:
    return [step.node.op for step in module.steps()]


def assert_agreement(module: OnnxModule, path: Path, *inputs: np.ndarray) -> None:
    """The module and ONNX Runtime give the same output on these inputs."""
    (wanted,) = run(path, *inputs).values()
    found = module(*map(torch.from_numpy, inputs)).numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def classifier(**options: Any) -> onnx.ModelProto:
    """Two dense layers, as most exporters write them."""
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1", transB=1),
        node("Relu", ["h"], ["a"], name="relu1"),
        node("Gemm", ["a", "w2", "b2"], ["out"], name="fc2", transB=1),
    ]
    weights = {
        "w1": numbers(8, 6),
        "b1": numbers(8, seed=1),
        "w2": numbers(3, 8, seed=2),
        "b2": numbers(3, seed=3),
    }
    return model(nodes, {"x": ["batch", 6]}, weights, **options)
