"""ONNX ops as PyTorch functions. Importing this package fills the table."""

from onesigma.importers.onnx.ops import (
    activations,
    arithmetic,
    layers,
    pools,
    resize,
    shapes,
)
from onesigma.importers.onnx.ops.numbers import NUMBERS
from onesigma.importers.onnx.ops.table import OPS, OnnxOp, Value

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
