"""ONNX models for the C generator, and how its C is compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onesigma
from onesigma.decide.threshold import AbstainRule
from onesigma.exporters.c import Generated, generate
from onesigma.lab import c_verify as verify
from onesigma.runtime.comparison import TOLERANCE

NO_GCC = verify.TARGETS["host"].missing
needs_gcc = pytest.mark.skipif(NO_GCC is not None, reason=f"{NO_GCC}")
RULE = AbstainRule("entropy", 0.9, 0.05, None, 100, 0.8, 0.03)
CLASS_NAMES = ["walk", "run", 'sit "still"']


@cache
def converted() -> onesigma.Converted:
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv1d(2, 6, 3, padding=1), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Conv1d(6, 5, 3, padding=1), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Flatten(), nn.Linear(60, 3)),
    )
    x = torch.randn(4, 2, 12)
    return onesigma.convert(network.eval(), x).with_abstain(RULE)


def as_onnx(model: onesigma.Converted, **options: object) -> onnx.ModelProto:
    with TemporaryDirectory() as folder:
        return onnx.load(onesigma.export(model, Path(folder) / "m.onnx", **options).path)


@cache
def exported() -> onnx.ModelProto:
    return as_onnx(converted(), class_names=CLASS_NAMES)


class Model:
    """Collects nodes; every result is an output of the model."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.inputs = inputs
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.outputs: list[str] = []

    def constant(self, array: object, dtype: type = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def sizes(self, *numbers: int) -> str:
        return self.constant(numbers, np.int64)

    def op(
        self, kind: str, *inputs: str, output: bool = True, results: int = 1, **attributes: object
    ) -> str:
        """Add a node; returns the name of its (first) result."""
        names = [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        if output:
            self.outputs += names
        return names[0]

    def proto(self, batch: str | int = 1) -> onnx.ModelProto:
        values = [
            helper.make_tensor_value_info(k, TensorProto.FLOAT, [batch, *shape[1:]])
            for k, shape in self.inputs.items()
        ]
        graph = helper.make_graph(self.nodes, "ops", values, [], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        known = {value.name: value for value in inferred.graph.value_info}
        model.graph.output.extend(known[name] for name in self.outputs)
        onnx.checker.check_model(model)
        return model


def random_inputs(model: Model, samples: int = 2, scale: float = 1.5) -> list[dict]:
    random = np.random.default_rng(0)
    return [
        {k: (scale * random.standard_normal(s)).astype(np.float32) for k, s in model.inputs.items()}
        for _ in range(samples)
    ]


def assert_agrees(
    model: Model, folder: Path, samples: list[dict] | None = None, flags: Sequence[str] = ()
) -> Generated:
    """Compile with warnings as errors and sanitizers on, run, compare every output."""
    proto, samples = model.proto(), samples or random_inputs(model)
    generated = generate(proto, folder)
    ran = verify.run(generated, samples, flags=[*verify.SANITIZERS, *flags])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for sample, found in zip(samples, ran.outputs, strict=True):
        expected = session.run(model.outputs, sample)
        for name, wanted in zip(model.outputs, expected, strict=True):
            got = found[name].astype(wanted.dtype)
            scale = np.abs(wanted).max() if wanted.dtype == np.float32 else 0
            np.testing.assert_allclose(
                got, wanted.ravel(), rtol=TOLERANCE, atol=1e-6 * scale, err_msg=name
            )
    return generated
