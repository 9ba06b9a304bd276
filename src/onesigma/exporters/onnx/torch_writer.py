"""ONNX by PyTorch's own exporter: slow, but it knows the ops that our table lacks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from onesigma.errors import ExportError, PackageError, install
from onesigma.exporters.onnx import Interface
from onesigma.graph import capture

if TYPE_CHECKING:
    import onnx

OLDEST_OPSET = 18


def write(
    graph: fx.GraphModule, examples: tuple[Tensor, ...], interface: Interface
) -> onnx.ModelProto:
    """The graph as ONNX; the dynamic dimension is named ``batch``."""
    if find_spec("onnxscript") is None:
        raise PackageError(
            f"This model needs PyTorch's own exporter, and that needs onnxscript: {install('onnx')}"
        )
    if interface.opset < OLDEST_OPSET:
        raise ExportError(f"This model cannot be written below opset {OLDEST_OPSET}: give that.")
    import onnx_ir

    try:
        program = capture.export(graph, examples, dynamic=interface.dynamic)
        with capture.quiet("torch.onnx"):
            translated = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=interface.opset,
                verbose=False,
                dynamic_shapes=({0: "batch"},) * len(examples) if interface.dynamic else None,
            )
    except Exception as error:  # the exporter raises whatever its parts raise
        raise ExportError(f"PyTorch cannot write this model as ONNX: {error}") from error
    assert translated is not None
    _name(translated.model, (*interface.inputs, *interface.outputs))
    return onnx_ir.to_proto(translated.model)


def _name(model: Any, names: Sequence[str]) -> None:
    """Give inputs and outputs their names, which inner values may have had until now."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass, NameFixPass

    for value, name in zip((*model.graph.inputs, *model.graph.outputs), names, strict=True):
        value.name = name
    # Metadata hold stack traces, with the paths of the user's own files.
    ClearMetadataAndDocStringPass()(model)
    NameFixPass()(model)
