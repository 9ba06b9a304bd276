"""A graph of ATen ops as ONNX. Importing this package fills the table; it needs ``onnx``."""

from onesigma.targets.onnx_writer import arithmetic, layers, shapes
from onesigma.targets.onnx_writer.writer import TABLE, UnwritableError, write

__all__ = ["TABLE", "UnwritableError", "arithmetic", "layers", "shapes", "write"]
