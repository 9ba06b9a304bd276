"""Layers with weights, and pools, against ONNX Runtime."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import Model, assert_agrees, needs_gcc, random_inputs

RANDOM = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


CONVOLUTIONS = [  # input, weights, options
    ((6, 9, 11), (8, 6, 3, 3), {}),
    ((6, 9, 11), (7, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((3, 9, 11), (4, 3, 3, 5), {"pads": [2, 0, 1, 3], "strides": [2, 3]}),
    ((4, 8, 8), (6, 4, 3, 2), {"dilations": [2, 3], "pads": [1, 2, 0, 1]}),
    ((4, 8, 8), (6, 2, 3, 3), {"group": 2, "strides": [1, 2], "dilations": [1, 2]}),
    ((6, 8, 8), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    ((6, 5, 7), (9, 6, 1, 1), {}),
    ((6, 5, 7), (1, 6, 1, 1), {}),  # a weighted sum
    ((1, 5, 7), (4, 1, 1, 1), {}),  # one value for all channels
    ((6, 5, 7), (6, 1, 1, 1), {"group": 6}),
    ((3, 12, 12), (5, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),  # rows in a loop
    ((2, 4, 40), (4, 2, 1, 31), {"strides": [1, 2]}),  # taps in a loop
    ((3, 9, 1), (4, 3, 3, 1), {"pads": [1, 0, 1, 0]}),  # upright
    ((5, 30), (8, 5, 5), {"pads": [2, 2], "strides": [2]}),
    ((5, 30), (6, 5, 3), {"dilations": [4]}),
    ((5, 3), (6, 5, 3), {}),  # one column
    # What a strip of several rows, or a tile that is read in place, can get wrong.
    ((3, 11, 5), (6, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),  # rows are joined
    ((2, 9, 9), (4, 2, 2, 2), {"strides": [3, 3]}),  # phases that no tap reads
    ((2, 9, 10), (5, 2, 1, 1), {"strides": [2, 2]}),
    ((2, 5, 4), (4, 2, 3, 3), {"pads": [3, 3, 4, 3]}),  # more zeros than the kernel reaches
    ((2, 7, 6), (4, 2, 3, 3), {"pads": [0, 2, 0, 0], "dilations": [2, 1]}),  # zeros on one side
    ((3, 3, 300), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),  # longer than the sums of a row
    ((3, 530), (6, 3, 4), {}),  # the same, in place
    ((2, 4, 12), (5, 2, 2, 2), {}),  # in place, just wide enough for a tile
    ((2, 3, 10), (5, 2, 2, 2), {}),  # and not
    ((4, 13, 17), (8, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1], "strides": [2, 1]}),
    ((8, 19), (8, 2, 3), {"group": 4, "pads": [2, 0], "dilations": [2]}),  # causal
    ((3, 9, 9), (4, 3, 6, 6), {"pads": [2, 3, 3, 2], "strides": [2, 3], "dilations": [1, 2]}),
]


@needs_gcc
@pytest.mark.parametrize("flags", [[], ["-DVECTORS=16"], ["-DVECTORS=0"]], ids=str)
def test_convolutions(flags, tmp_path):
    """In all forms of the kernels: for this processor, for short vectors, for none."""
    names = {f"x{i}": (1, *shape) for i, (shape, _, _) in enumerate(CONVOLUTIONS)}
    m = Model(**names)
    for name, (_, weight, options) in zip(names, CONVOLUTIONS, strict=True):
        m.op("Conv", name, m.constant(normal(*weight)), m.constant(normal(weight[0])), **options)
        m.op("Conv", name, m.constant(normal(*weight)), **options)
    padded = m.op("Pad", "x0", m.sizes(0, 0, 1, 2, 0, 0, 0, 1), output=False)
    m.op("Conv", padded, m.constant(normal(4, 6, 3, 3)), pads=[1, 0, 0, 0])
    assert_agrees(m, tmp_path, random_inputs(m, 1), flags)


@needs_gcc
def test_other_layers(tmp_path):
    m = Model(x=(1, 6, 9, 8), y=(1, 4, 10), z=(1, 7))
    for options in ({}, {"strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 2]}):
        m.op("ConvTranspose", "x", m.constant(normal(6, 5, 3, 3)), m.constant(normal(5)), **options)
    grouped = {"group": 2, "dilations": [2], "strides": [2]}
    m.op("ConvTranspose", "y", m.constant(normal(4, 3, 3)), **grouped)
    kernel = {"kernel_shape": [3, 2], "strides": [2, 2]}
    for kind in ("MaxPool", "AveragePool"):
        m.op(kind, "x", **kernel)
        m.op(kind, "x", **kernel, pads=[1, 1, 1, 0])
        m.op(kind, "x", **kernel, ceil_mode=1)
    m.op("AveragePool", "x", **kernel, pads=[1, 1, 1, 0], count_include_pad=1)
    m.op("MaxPool", "y", kernel_shape=[3], dilations=[2])
    m.op(
        "Gemm", "z", m.constant(normal(5, 7)), m.constant(normal(5)), transB=1, alpha=2.0, beta=0.5
    )
    m.op("Gemm", "z", m.constant(normal(7, 6)))
    m.op("Gemm", "z", m.constant(normal(7, 6)), m.constant(normal(1)))
    m.op("Gemm", m.op("Reshape", "x", m.sizes(1, 432), output=False), m.constant(normal(432, 7)))
    m.op("MatMul", "y", m.constant(normal(10, 9)))
    m.op("MatMul", m.constant(normal(3, 4)), "y")
    m.op("MatMul", "y", m.op("Transpose", "y", perm=[0, 2, 1], output=False))
    many = m.op("Reshape", "x", m.sizes(1, 54, 8), output=False)
    m.op("MatMul", m.op("Exp", many, output=False), m.constant(normal(8, 3)))  # as sums
    assert_agrees(m, tmp_path)
