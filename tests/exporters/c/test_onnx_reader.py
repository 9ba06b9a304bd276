"""Every op that the generator knows, against ONNX Runtime.

A program holds many ops, because compiling takes most of the time.
"""

import re
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import Model, assert_agrees, needs_gcc  # noqa: E402

from onesigma.errors import ExportError  # noqa: E402
from onesigma.exporters.c import generate  # noqa: E402
from onesigma.exporters.c.elementwise import ELEMENTWISE  # noqa: E402
from onesigma.exporters.c.onnx_reader import READERS  # noqa: E402

RANDOM = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


UNARY = (
    *("Abs", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
    *("HardSwish",),
    *("Identity", "LeakyRelu", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid"),
    *("Sign", "Sin", "Softplus", "Softsign", "Tanh", "ThresholdedRelu"),
)
CASTS = ("Truth", "Truncate", "UnTruth")  # what a Cast becomes
BINARY = (
    *("Add", "Div", "Max", "Min", "Mul", "PRelu", "Sub", "Sum"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
)


@needs_gcc
def test_elementwise(tmp_path):
    m = Model(x=(1, 3, 7), y=(1, 3, 7))
    for kind in UNARY:
        m.op(kind, "x", **({"alpha": 0.7} if kind in ("Elu", "LeakyRelu", "Celu") else {}))
    for kind in BINARY:
        m.op(kind, "x", "y")
        m.op(kind, "x", m.constant(normal(3, 1)))
    positive = m.op("Abs", "x", output=False)
    m.op("Log", m.op("Add", positive, m.constant(0.1), output=False))
    m.op("Sqrt", positive)
    for exponent in (2.0, 0.5, -1.0, 1.7):
        m.op("Pow", positive, m.constant(exponent))
    m.op("Pow", m.constant(2.0), "x")
    m.op("Clip", "x", m.constant(-0.5))
    m.op("Clip", "x", "", m.constant(0.5))
    m.op("Clip", "x", m.constant(-0.5), m.constant(0.5))
    assert_agrees(m, tmp_path)


@needs_gcc
def test_truth_values(tmp_path):
    m = Model(x=(1, 3, 7), y=(1, 3, 7))
    a, b = m.op("Greater", "x", "y"), m.op("Less", "x", m.constant(0.3))
    for kind in ("And", "Or", "Xor"):
        m.op(kind, a, b)
    m.op("Where", m.op("Not", a), "x", m.constant(normal(7)))
    m.op("Where", m.op("Equal", "x", "x"), "y", "x")
    m.op("Cast", a, to=onnx.TensorProto.FLOAT)
    m.op("Cast", "x", to=onnx.TensorProto.BOOL)
    m.op("Cast", "x", to=onnx.TensorProto.INT64)
    m.op("IsNaN", m.op("Sqrt", "x", output=False))
    m.op("IsInf", m.op("Exp", m.op("Mul", "x", m.constant(1e3), output=False), output=False))
    m.op("Where", m.constant([True, False, True, True, False, True, True], np.bool_), "x", "y")
    m.op("ArgMax", "x", axis=1, keepdims=0)
    m.op("ArgMax", "x", axis=-1)
    assert_agrees(m, tmp_path)


@needs_gcc
def test_reductions(tmp_path):
    m = Model(x=(1, 3, 4, 5))
    for kind in ("Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L2"):
        m.op(f"Reduce{kind}", "x", m.sizes(-1))
    for axes in ((1,), (1, 3), (2,), (0, 1), (1, 2, 3)):
        m.op("ReduceSum", "x", m.sizes(*axes), keepdims=len(axes) % 2)
    m.op("ReduceMax", "x")
    m.op("ReduceSum", "x", m.sizes(0))  # of one element each
    # A sum of what another sum of the same loop needs, and a result that is used in its loop.
    centred = m.op("Sub", "x", m.op("ReduceMean", "x", m.sizes(1), output=False))
    m.op("ReduceMean", m.op("Mul", centred, centred, output=False), m.sizes(1), keepdims=0)
    for axis in (1, 2, -1):
        m.op("Softmax", "x", axis=axis)
        m.op("LogSoftmax", "x", axis=axis)
    m.op("GlobalAveragePool", "x")
    m.op("GlobalMaxPool", "x")
    scales = [m.constant(np.abs(normal(3)) + 0.1) for _ in range(4)]
    m.op("BatchNormalization", "x", *scales, epsilon=0.01)
    m.op("LayerNormalization", "x", m.constant(normal(4, 5)), m.constant(normal(4, 5)), axis=2)
    m.op("LayerNormalization", "x", m.constant(normal(5)))
    assert_agrees(m, tmp_path)


@needs_gcc
def test_moving_elements(tmp_path):
    m = Model(x=(1, 3, 4, 5))
    y = m.op("Mul", "x", m.constant(2.0), output=False)
    moved = m.op("Transpose", y, perm=[0, 2, 3, 1])
    m.op("Reshape", moved, m.sizes(0, -1))  # no longer a view
    m.op("Add", m.op("Reshape", y, m.sizes(1, 60), output=False), m.constant(normal(60)))
    m.op("Flatten", y, axis=2)
    m.op("Unsqueeze", y, m.sizes(0, -1))
    m.op("Squeeze", y)
    m.op("Expand", m.op("ReduceMax", y, m.sizes(1), output=False), m.sizes(2, 3, 1, 5))
    m.op("Slice", y, m.sizes(1, 0), m.sizes(3, 2**40), m.sizes(2, 3), m.sizes(1, 2))
    m.op("Slice", y, m.sizes(-1), m.sizes(-(2**40)), m.sizes(3), m.sizes(-2))
    for i in (0, -1):
        m.op("Gather", y, m.constant(i, np.int64), axis=2)
    m.op("Gather", y, m.constant([[0, 2], [1, 1]], np.int64), axis=3)
    m.op("Gather", y, m.constant([3, 1], np.int64), axis=2)
    m.op("Concat", y, "x", m.op("Relu", y, output=False), m.constant(np.ones((1, 1, 4, 5))), axis=1)
    pads = m.sizes(0, 0, 1, 2, 0, 0, 0, 1)
    m.op("Pad", y, pads, m.constant(0.7))
    for mode in ("edge", "reflect"):
        m.op("Pad", y, pads, mode=mode)
    scales = m.constant([1, 1, 2, 3])
    grid = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    m.op("Resize", y, "", scales, mode="nearest", **grid)
    m.op("Resize", y, "", m.constant([1, 1, 0.5, 1.7]), mode="nearest")
    m.op("Resize", y, "", scales, mode="linear")
    m.op("Resize", y, "", "", m.sizes(1, 3, 6, 10), mode="linear")
    m.op("Dropout", y)
    m.op("Split", y, m.sizes(1, 3), axis=2, results=2)
    m.op("Split", y, axis=3, num_outputs=2, results=2)
    assert_agrees(m, tmp_path)


@needs_gcc
def test_constants_and_sizes_are_computed_beforehand(tmp_path):
    m = Model(x=(1, 4, 6))
    shape = m.op("Shape", "x", output=False)
    half = m.op("Div", m.op("Gather", shape, m.sizes(2), output=False), m.sizes(2), output=False)
    sizes = m.op("Concat", m.sizes(1, -1), half, axis=0, output=False)
    m.op("Reshape", "x", sizes)
    weights = m.constant(normal(6, 6))
    m.op("MatMul", "x", m.op("Mul", weights, weights, output=False))
    m.op("Add", "x", m.op("ConstantOfShape", shape, output=False))
    m.op("Mul", m.constant(3.0), m.constant(normal(2)))  # an output that is a constant
    m.op("Identity", "x")
    text = assert_agrees(m, tmp_path).source.read_text()
    assert "+ 0.0f" not in text


def test_every_op_has_a_test():
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    named = set(re.findall(r"[A-Z]\w+", text))
    tested = named | {f"Reduce{kind}" for kind in named} | set(CASTS)
    assert not {*READERS, *ELEMENTWISE} - tested


@pytest.mark.parametrize("folder", ["new", "old"])
def test_unknown_ops_are_named_and_nothing_is_written(folder, tmp_path):
    m = Model(x=(1, 4, 6))
    m.op("Hardmax", m.op("CumSum", "x", m.constant(1, np.int64)))
    target = tmp_path / folder
    if folder == "old":
        target.mkdir()
        (target / "model.c").write_text("precious")
    with pytest.raises(ExportError, match=r"does not know: CumSum, Hardmax\. Nothing was written"):
        generate(m.proto(), target)
    assert (
        (target / "model.c").read_text() == "precious" if folder == "old" else not target.exists()
    )


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "message"),
    [
        ("Conv", ["x", "x"], {}, "computed weights"),
        ("MaxPool", ["x"], {"kernel_shape": [2], "auto_pad": "SAME_UPPER"}, "auto_pad SAME_UPPER"),
        ("Gelu", ["x"], {"approximate": "tanh"}, "Gelu by tanh"),
        ("ArgMax", ["x"], {"select_last_index": 1}, "last of equals"),
    ],
)
def test_uses_that_are_not_covered(kind, inputs, attributes, message, tmp_path):
    m = Model(x=(1, 4, 4))
    m.op(kind, *inputs, **attributes)
    with pytest.raises(ExportError, match=message):
        generate(m.proto(), tmp_path)
    assert not list(tmp_path.iterdir())
