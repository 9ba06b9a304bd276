"""ONNX: an answering graph as one file of plain standard ops, for any runtime.

The file has a dynamic batch, the model's own input names, one output per field of ``Prediction``,
the original network's own output where that is wanted and, as JSON under the metadata key
``onesigma``, how it was made. Before it is written it is run and compared with PyTorch, every time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from onesigma.errors import ExportError, InputError, PackageError, install
from onesigma.exporters.agreement import Agreement
from onesigma.exporters.answering import Answering
from onesigma.exporters.onnx import Interface, torch_writer
from onesigma.runtime.model import METADATA_KEY, seal
from onesigma.storage.atomic import replacing

if TYPE_CHECKING:
    from onnx import ModelProto

    from onesigma.exporters.int8 import Fidelity

OPSET, OLDEST_OPSET = 18, 17


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees with PyTorch (largest relative error).

    ``int8`` compares the file with that, if its layers are in eight bits.
    """

    path: Path
    opset: int
    nodes: int
    size: int
    checked_by: str
    error: float
    int8: Fidelity | None = None

    def __str__(self) -> str:
        eight = "" if self.int8 is None else f"; {self.int8}"
        return (
            f"{self.path}: opset {self.opset}, {self.nodes} nodes, {self.size / 1e3:.0f} kB; "
            f"within {self.error:.1g} of PyTorch ({self.checked_by}){eight}"
        )


def write_model(
    model: ModelProto, path: Path, opset: int, agreement: Agreement, int8: Fidelity | None = None
) -> Exported:
    """Write the file, whole or not at all."""
    content = seal(model.SerializeToString())
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    nodes = len(model.graph.node)
    return Exported(path, opset, nodes, len(content), agreement.runtime, agreement.error, int8)


def check_target(path: Path, opset: int) -> None:
    """Refuse a file that could not be written, before the work of making it."""
    if path.suffix not in ("", ".onnx"):
        raise InputError(f"{path.name}: name a file that ends in .onnx, or a folder for C.")
    if find_spec("onnx") is None:
        raise PackageError(f"Exporting needs onnx: {install('onnx')}")
    from onnx.defs import onnx_opset_version

    if path.suffix and not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: create it first.")
    if not OLDEST_OPSET <= opset <= onnx_opset_version():
        raise InputError(f"opset={opset}: choose one of {OLDEST_OPSET} to {onnx_opset_version()}.")


def make_model(answering: Answering, opset: int = OPSET) -> ModelProto:
    """The graph in ONNX, with its metadata, checked to hold standard ops of that opset only."""
    from onnx.checker import check_model

    from onesigma.exporters.onnx.ops import UnwritableError
    from onesigma.exporters.onnx.writer import write

    names = Interface(opset, answering.inputs, answering.output_names, answering.dynamic)
    try:
        model: ModelProto = write(answering.graph, answering.examples, names)
    except UnwritableError:
        model = torch_writer.write(answering.graph, answering.examples, names)
    about = json.dumps(answering.metadata, separators=(",", ":"))
    model.metadata_props.add(key=METADATA_KEY, value=about)
    foreign = {f"{node.domain}.{node.op_type}" for node in model.graph.node if node.domain}
    if foreign or model.functions:
        raise ExportError(f"Ops that the file must not contain: {', '.join(sorted(foreign))}.")
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if versions != {"": opset}:
        raise ExportError(f"The graph cannot be written in opset {opset}, only {versions}.")
    try:
        check_model(model, full_check=True)
    except Exception as error:  # protobuf's own classes too, for a file above 2 GB
        raise ExportError(f"The graph is no valid ONNX: {error}") from error
    return model
