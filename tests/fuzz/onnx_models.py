"""A network for the fuzz tests, with much in it."""

from __future__ import annotations

import onnx
from onnx_files import ints, model, node, numbers


def convolutional() -> onnx.ModelProto:
    """Layers, shapes computed in the graph, and attributes of every kind, in one small file."""
    nodes = [
        node("Pad", ["x", "pads"], ["p"], name="pad"),
        node("Conv", ["p", "w", "b"], ["c"], name="conv", strides=[1, 2], group=1),
        node("BatchNormalization", ["c", "s", "b", "b", "s"], ["n"], name="norm", epsilon=1e-3),
        node("Clip", ["n", "low", "high"], ["r"], name="clip"),
        node("MaxPool", ["r"], ["m"], name="pool", kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
        node("LeakyRelu", ["m"], ["l"], name="leaky", alpha=0.2),
        node("Concat", ["m", "l"], ["both"], name="join", axis=1),
        node("Slice", ["both", "one", "seven", "one"], ["part"], name="slice"),
        node("Transpose", ["part"], ["t"], name="transpose", perm=[0, 2, 3, 1]),
        node("ReduceMean", ["t"], ["mean"], name="mean", axes=[1], keepdims=0),
        node("Shape", ["mean"], ["shape"], name="shape"),
        node("Gather", ["shape", "zero"], ["rows"], name="rows", axis=0),
        node("Concat", ["rows", "rest"], ["wanted"], name="wanted", axis=0),
        node("Reshape", ["mean", "wanted"], ["flat"], name="flat"),
        node("Dropout", ["flat", "rate"], ["drop"], name="drop"),
        node("Gemm", ["drop", "v", "o"], ["logits"], name="fc", alpha=1.5, transB=1),
        node("Softmax", ["logits"], ["out"], name="softmax", axis=-1),
    ]
    weights = {
        "w": numbers(4, 2, 3, 2), "b": numbers(4), "s": abs(numbers(4, seed=1)) + 0.5,
        "pads": ints(0, 0, 1, 0, 0, 0, 1, 0), "low": numbers(1)[0], "high": numbers(1)[0] + 3,
        "one": ints(1), "seven": ints(7), "zero": ints(0), "rest": ints(-1), "rate": numbers(1)[0],
        "v": numbers(3, 18, seed=2), "o": numbers(3, seed=3),
    }  # fmt: skip
    weights["rate"] = abs(weights["rate"]) * 0 + 0.5
    return model(nodes, {"x": ["batch", 2, 5, 7]}, weights)
