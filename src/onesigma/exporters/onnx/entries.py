"""A graph of ATen ops as ONNX. Importing this package fills the table; it needs ``onnx``."""

from onesigma.exporters.onnx import arithmetic, layers, shapes
from onesigma.exporters.onnx.writer import TABLE, UnwritableError, write

__all__ = ["TABLE", "UnwritableError", "arithmetic", "layers", "shapes", "write"]
