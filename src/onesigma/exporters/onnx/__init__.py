"""ONNX files out: by a table of our own or, for ops that it lacks, by PyTorch's exporter."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interface:
    """What a writer is asked for.

    Attributes:
        opset: version of the ONNX operators.
        inputs, outputs: their names in the file, in order.
        dynamic: whether the batch is left open.
    """

    opset: int
    inputs: Sequence[str]
    outputs: Sequence[str]
    dynamic: bool
