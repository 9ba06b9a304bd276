"""ONNX ops as PyTorch functions. Importing this package fills the table."""

from onesigma.frontends.onnx_ops import activations, arithmetic, layers, pools, resize, shapes
from onesigma.frontends.onnx_ops.numbers import NUMBERS
from onesigma.frontends.onnx_ops.table import OPS, OnnxOp, Value

__all__ = [
    "NUMBERS",
    "OPS",
    "OnnxOp",
    "Value",
    "activations",
    "arithmetic",
    "layers",
    "pools",
    "resize",
    "shapes",
]
