"""Ops on codes of 8-bit values, against ONNX Runtime's float ones between the same roundings."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime
import torch
from exporters.c.c_models import Model, converted, needs_gcc, random_inputs

import onesigma
from onesigma.errors import ExportError, InputError
from onesigma.exporters.c import Generated, generate
from onesigma.exporters.c.onnx_reader import read
from onesigma.lab import c_verify as verify
from onesigma.runtime.comparison import checking_runtime

KINDS = [np.uint8, np.int8]
DSP = ("-D__ARM_FEATURE_DSP", "-D__ARM_FEATURE_SIMD32", f"-I{Path(__file__).parent}")
needs_m4 = pytest.mark.skipif(
    verify.TARGETS["cortex-m4"].missing is not None, reason="no emulated Cortex-M4"
)


class Rounded(Model):
    """Rounds inputs and results to codes of 8 bits, of random zeros and about the given scale."""

    def __init__(self, kind: type, **inputs: tuple[int, ...]) -> None:
        super().__init__(**inputs)
        self.kind, self.random = kind, np.random.default_rng(0)
        self.levels: dict[float, tuple[float, int]] = {}
        self.scales: dict[str, float] = {}

    def rounded(self, x: str, scale: float, *, output: bool = False) -> str:
        zero = self.random.integers(90, 160) - (128 if self.kind is np.int8 else 0)
        # No simple ratios of scales, in which many sums lie between two codes.
        new = (scale * self.random.uniform(0.95, 1.05), zero)
        scale, zero = self.levels.setdefault(scale, new)
        level = (self.constant(scale), self.constant(zero, self.kind))
        codes = self.op("QuantizeLinear", x, *level, output=False)
        result = self.op("DequantizeLinear", codes, *level, output=output)
        self.scales[result] = scale
        return result

    def weight(self, *shape: int) -> str:
        codes = self.random.integers(-127, 128, shape)
        codes[0] = 0  # a filter of zeros
        steps = self.random.uniform(0.001, 0.01, shape[0])
        weight = self.constant(codes, np.int8), self.constant(steps)
        return self.op("DequantizeLinear", *weight, axis=0, output=False)

    def bias(self, n: int) -> str:
        return self.constant(self.random.standard_normal(n))


def check(model: Rounded, folder: Path, share: float = 0.01) -> Generated:
    """Codes are ONNX Runtime's, but a few are one off, where a sum lies between two."""
    proto, samples = model.proto(), random_inputs(model)
    generated = generate(proto, folder)
    ran = verify.run(generated, samples, flags=verify.SANITIZERS)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    for sample, found in zip(samples, ran.outputs, strict=True):
        for name, wanted in zip(model.outputs, session.run(model.outputs, sample), strict=True):
            off = np.abs(found[name] - wanted.ravel()) / model.scales[name]
            assert off.max() < 1.01, name
            assert (off > 0.01).mean() <= share, name
            assert len(np.unique(wanted)) > 2, name  # else it would prove nothing
    return generated


def assert_integer(generated: Generated, inputs: int) -> None:
    """Nothing but the inputs is rounded from floats, and no layer has floats."""
    assert generated.source.read_text().count(" = quantised(") == inputs
    assert not any(step.startswith(("Conv:", "Dense:")) for step in generated.steps)


# Channels, filters, groups, sizes, kernel, and options.
CONVOLUTIONS = [
    (6, 9, 1, (7, 10), (3, 3), {"pads": [1, 1, 1, 1]}),
    (3, 4, 1, (9, 8), (3, 2), {"strides": [2, 3], "pads": [0, 1, 2, 0]}),
    (5, 6, 1, (6, 11), (1, 1), {}),
    (16, 8, 1, (4, 4), (1, 1), {"strides": [2, 2]}),
    (4, 10, 2, (5, 7), (2, 3), {"dilations": [1, 2]}),
    (6, 6, 6, (8, 9), (3, 3), {"pads": [1, 1, 1, 1]}),
    (4, 8, 4, (9, 7), (3, 3), {"strides": [2, 2], "pads": [1, 2, 1, 0]}),
    (3, 3, 3, (12, 11), (5, 4), {"dilations": [2, 1], "pads": [2, 3, 2, 3]}),
    (3, 3, 3, (12, 11), (3, 3), {"dilations": [1, 2], "strides": [1, 3]}),
    (1, 6, 1, (12, 10), (10, 4), {"strides": [2, 2], "pads": [4, 1, 5, 1]}),
    (1, 5, 1, (40, 4), (37, 1), {}),
    (4, 5, 1, (48,), (40,), {}),
    (3, 7, 1, (21,), (5,), {"strides": [2], "pads": [2, 2]}),
    (4, 4, 4, (30,), (9,), {"pads": [4, 4]}),
    (2, 2, 2, (6, 6), (3, 3), {"pads": [7, 7, 7, 7]}),
]


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
def test_convolutions(kind, tmp_path):
    sizes = {f"x{i}": (1, each[0], *each[3]) for i, each in enumerate(CONVOLUTIONS)}
    m = Rounded(kind, **sizes)
    for i, (channels, filters, groups, _, kernel, options) in enumerate(CONVOLUTIONS):
        weight = m.weight(filters, channels // groups, *kernel)
        bias = [m.bias(filters)] if i % 2 else []
        x = m.rounded(f"x{i}", 0.03)
        y = m.op("Conv", x, weight, *bias, group=groups, output=False, **options)
        m.rounded(m.op("Relu", y, output=False) if i % 3 else y, 0.2, output=True)
    assert_integer(check(m, tmp_path), len(CONVOLUTIONS))


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs", [1, 6, 7, 16])
def test_linear_layers(kind, inputs, tmp_path):
    m = Rounded(kind, x=(1, 3, inputs))
    rows = m.op("Reshape", m.rounded("x", 0.03), m.sizes(3, inputs), output=False)
    for outputs in (3, 11):
        weight = m.weight(outputs, inputs)
        y = m.op("Gemm", rows, weight, m.bias(outputs), transB=1, output=False)
        m.rounded(y, 0.05, output=True)
    assert_integer(check(m, tmp_path, share=0.02), 1)


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_weights(kind, tmp_path):
    m = Rounded(kind, x=(1, 4, 6, 7), y=(1, 4, 6, 7), z=(1, 4, 1, 1))
    x, y, z = (
        m.rounded(name, scale) for name, scale in zip("xyz", (0.03, 0.02, 0.025), strict=True)
    )
    results = [
        (m.op("Add", x, y, output=False), 0.04),
        (m.op("Relu", m.op("Add", x, z, output=False), output=False), 0.03),
        (m.op("Mul", x, z, output=False), 0.06),
        (m.op("MaxPool", x, kernel_shape=[3, 2], pads=[1, 0, 1, 1], output=False), 0.03),
        (m.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 1], output=False), 0.02),
        (m.op("GlobalAveragePool", x, output=False), 0.01),
        (m.op("ReduceMean", x, m.sizes(2, 3), keepdims=0, output=False), 0.007),
        (m.op("Concat", x, y, axis=1, output=False), 0.03),
        (m.op("Flatten", x, output=False), 0.03),
        (m.op("Transpose", x, perm=[0, 2, 3, 1], output=False), 0.031),
        (m.op("Pad", x, m.sizes(0, 0, 1, 2, 0, 0, 0, 1), output=False), 0.03),
        (m.op("Slice", y, m.sizes(1), m.sizes(5), m.sizes(2), output=False), 0.02),
        (m.op("Gather", x, m.sizes(2, 0, 3), axis=1, output=False), 0.03),
        (m.op("HardSwish", x, output=False), 0.02),
        (m.op("LeakyRelu", x, alpha=0.2, output=False), 0.02),
        (m.op("Clip", x, m.constant(0.0), m.constant(1.0), output=False), 0.01),
        (m.op("Mul", x, m.constant([[[[1.7]]]]), output=False), 0.06),
    ]
    for value, scale in results:
        m.rounded(value, scale, output=True)
    kinds = {node.kind for node in read(m.proto()).nodes}
    assert kinds > {"AddCodes", "MulCodes", "Lookup", "Requantize", "Quantize", "Dequantize"}
    assert_integer(check(m, tmp_path), 3)


@needs_gcc
def test_what_stays_float(tmp_path):
    """Ops that are not known on codes, and factors too large for the integer rounding."""
    m = Rounded(np.uint8, x=(1, 4, 6, 6))
    x = m.rounded("x", 0.03)
    pool = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    m.rounded(m.op("AveragePool", x, output=False, **pool), 0.02, output=True)
    m.rounded(m.op("Softmax", x, axis=1, output=False), 0.004, output=True)
    m.rounded(m.op("Add", x, m.constant(np.arange(6)), output=False), 0.05, output=True)
    m.rounded(m.op("Add", x, "x", output=False), 0.06, output=True)
    m.rounded(m.op("Conv", x, m.weight(4, 4, 1, 1), output=False), 1e-5, output=True)
    generated = check(m, tmp_path, share=0.02)
    assert generated.source.read_text().count(" = quantised(") == 6


def test_codes_of_sixteen_bits_are_refused(tmp_path):
    m = Model(x=(1, 4))
    level = (m.constant(0.1), m.constant(0, np.int16))
    codes = m.op("QuantizeLinear", "x", *level, output=False)
    m.op("DequantizeLinear", codes, *level)
    with pytest.raises(ExportError, match="codes but uint8 and int8"):
        generate(m.proto(), tmp_path)


def everything() -> Rounded:
    """A small network that uses every integer function."""
    m = Rounded(np.uint8, x=(1, 3, 9, 10))
    x = m.rounded("x", 0.03)
    y = m.rounded(m.op("Conv", x, m.weight(9, 3, 3, 3), m.bias(9), output=False), 0.1)
    y = m.rounded(m.op("Conv", y, m.weight(9, 1, 3, 3), group=9, output=False), 0.3)
    y = m.rounded(m.op("Conv", y, m.weight(9, 9, 1, 1), output=False), 0.5)
    flat = m.op("Flatten", y, output=False)
    flat = m.rounded(flat, 0.5)
    m.rounded(m.op("Gemm", flat, m.weight(7, 9 * 5 * 6), transB=1, output=False), 1.0, output=True)
    return m


@needs_gcc
def test_dsp_instructions_change_no_bit(tmp_path):
    """Their functions are those of a header of the tests, written by another route."""
    m = everything()
    generated, samples = generate(m.proto(), tmp_path), random_inputs(m, 4)
    plain, dsp = (verify.run(generated, samples, flags=flags).outputs for flags in ((), DSP))
    np.testing.assert_equal(dsp, plain)


@needs_m4
@needs_gcc
def test_on_a_cortex_m4_no_bit_differs(tmp_path):
    m = everything()
    generated, samples = generate(m.proto(), tmp_path), random_inputs(m, 2)
    wanted = verify.run(generated, samples).outputs
    for flags in ((), ("-U__ARM_FEATURE_DSP", "-U__ARM_FEATURE_SIMD32")):
        ran = verify.run(generated, samples, "cortex-m4", flags=flags)
        np.testing.assert_equal(ran.outputs, wanted)


@needs_gcc
def test_a_network_is_that_of_the_onnx_file(tmp_path):
    model, x = converted(), torch.randn(64, 2, 12, generator=torch.Generator().manual_seed(1))
    options = {"int8": True, "example_input": x}
    file = onesigma.export(model, tmp_path / "m.onnx", **options).path
    made = onesigma.export(model, tmp_path / "c", **options)
    assert "int8 against float on 64 inputs" in str(made)
    assert any(step.startswith("Conv8") for step in made.steps)
    samples = [{"input": x[i : i + 1].numpy()} for i in range(16)]
    ran = verify.run(made, samples, flags=verify.SANITIZERS)
    session = checking_runtime()[1](file.read_bytes())
    for sample, found in zip(samples, ran.outputs, strict=True):
        (wanted,) = session.run(["probs"], sample)
        assert found["probs"].argmax() == wanted.argmax()
        np.testing.assert_allclose(found["probs"], wanted.ravel(), atol=0.01)


def test_codes_take_a_quarter_of_the_memory(tmp_path):
    m = Rounded(np.uint8, x=(1, 4, 32, 32))
    x = m.rounded("x", 0.03)
    y = m.rounded(m.op("Conv", x, m.weight(8, 4, 1, 1), output=False), 0.1)
    m.rounded(m.op("GlobalAveragePool", y, output=False), 0.05, output=True)
    assert generate(m.proto(), tmp_path).arena < 1.5 * (4 + 8) * 32 * 32


def test_int8_needs_examples(tmp_path):
    with pytest.raises(InputError, match="example_input"):
        onesigma.export(converted(), tmp_path / "c", int8=True)
    assert not (tmp_path / "c").exists()
