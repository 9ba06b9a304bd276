"""C for microcontrollers, from an ONNX model: read, share squares, plan, emit. Needs ``onnx``."""

from pathlib import Path

from onesigma.exporters.c.generator import Generated, generate

# Start-up code and linker script of an emulated Cortex-M4, to run what is generated on.
BOARD = Path(__file__).with_name("cortex_m4")

__all__ = ["BOARD", "Generated", "generate"]
