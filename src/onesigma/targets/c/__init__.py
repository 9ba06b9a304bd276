"""C for microcontrollers, from an exported ONNX file. It needs ``onnx``."""

from onesigma.targets.c.generate import Generated, generate

__all__ = ["Generated", "generate"]
