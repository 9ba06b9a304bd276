"""Squares that are not stored, weights in eight bits, and what these cost."""

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import Model, exported, needs_gcc, random_inputs

from onesigma.errors import InputError
from onesigma.exporters.c import generate
from onesigma.exporters.c.weights import round_weights
from onesigma.lab import c_verify as verify


def test_squared_weights_are_not_stored(tmp_path):
    model = exported()
    weights = sum(np.prod(t.dims) for t in model.graph.initializer if t.name.endswith("weight"))
    draws = 64 * 3
    assert generate(model, tmp_path).flash < 4 * (weights + draws + 100)


@needs_gcc
def test_int8_weights(tmp_path):
    """The C is that of the rounded model, and the cost that was reported is what it is."""
    model = exported()
    x = torch.randn(16, 2, 12, generator=torch.Generator().manual_seed(1)).numpy()
    small = generate(model, tmp_path, int8=True, examples=[x])
    assert small.flash < 0.65 * generate(model, tmp_path / "float").flash  # the draws stay
    reference, cost = round_weights(model, [x], [(1, 2, 12)])
    assert cost == small.int8
    assert 1e-5 < cost.change < 0.02
    assert cost.labels == 0
    assert "int8 weights, on 16 inputs: probs change by at most" in str(small)
    samples = [{"input": x[i : i + 1]} for i in range(3)]
    ran = verify.run(small, samples, flags=verify.SANITIZERS)
    assert verify.largest_mismatch(reference, ran, samples) < 1e-4


@needs_gcc
def test_int8_of_other_layers(tmp_path):
    m = Model(x=(1, 4, 9), y=(1, 6, 8))
    random = np.random.default_rng(0)
    m.op("ConvTranspose", "x", m.constant(random.standard_normal((4, 6, 3))), strides=[2])
    m.op("Gemm", m.op("Flatten", "x", output=False), m.constant(random.standard_normal((36, 5))))
    weight = m.constant(random.standard_normal((7, 8)))
    m.op("MatMul", "y", m.op("Transpose", weight, perm=[1, 0], output=False))
    proto, samples = m.proto(), random_inputs(m)
    reference, _ = round_weights(proto, None, [(1, 4, 9), (1, 6, 8)])
    ran = verify.run(generate(proto, tmp_path, int8=True), samples)
    assert verify.largest_mismatch(reference, ran, samples) < 1e-5


def test_examples_must_be_one_batch_per_input(tmp_path):
    with pytest.raises(InputError, match="takes 1 inputs, not 2"):
        generate(exported(), tmp_path / "x", int8=True, examples=[np.zeros((1, 2, 12))] * 2)
    assert not (tmp_path / "x").exists()
