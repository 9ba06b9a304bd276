"""``read_onnx``: from a file to a network that ``convert`` takes; the order of the passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from onesigma.errors import FileError, UnsupportedOp
from onesigma.importers.onnx.check import ROWS, require_agreement
from onesigma.importers.onnx.dropout_sites import (
    Dropout,
    dropout_in_file,
    dropout_named,
    no_dropout,
)
from onesigma.importers.onnx.file import read_model
from onesigma.importers.onnx.fold import fold, outline
from onesigma.importers.onnx.graph import Graph, parse
from onesigma.importers.onnx.module import OnnxModule
from onesigma.importers.onnx.ops import NUMBERS, OPS
from onesigma.importers.onnx.patterns import fuse


def read_onnx(
    path: str | Path,
    *,
    dropout: Mapping[str, float] | None = None,
    channel_dropout: Mapping[str, float] | None = None,
) -> OnnxModule:
    """Read a classifier from an ONNX file, as PyTorch, tf2onnx and Keras write them.

    The network is compared with ONNX Runtime each time it is read. The file is not trusted: no
    file outside its folder is opened, and no memory taken that is out of proportion.

    Args:
        path: the ``.onnx`` file; weights in files of their own must lie in its folder.
        dropout: where the network had dropout in training, and at which rate: a node's name, a
            pattern of names ("block*/relu") or an op ("every Relu") → rate. It adds to the
            Dropout nodes of the file, of which most files have none. ``{}`` for none at all, for
            use with ``convert(…, input_std=…)``.
        channel_dropout: the same for dropout of whole channels, the second dimension there
            (PyTorch's Dropout1d to 3d, Keras' SpatialDropout).

    Returns:
        A module in eval mode that takes and returns what the file does, dropout in its place.

    Raises:
        FileError: truncated, of an unknown version, inconsistent, data missing or out of bounds.
        UnsupportedOp: ops that are not read; the message lists them all.
        NoRandomness: no Dropout in the file and none named; the message lists where it may be.
        InputError: a name in ``dropout`` fits no node.
    """
    reading = Reading.of(Path(path))
    sites = reading.sites(dropout or {}, channel_dropout or {})
    if not sites and dropout is None:
        raise no_dropout(reading.fused, reading.values)
    module = OnnxModule(reading.fused_around(sites), sites).eval()
    require_agreement(module, reading.model, reading.graph.file)
    return module


@dataclass(frozen=True)
class Reading:
    """A file that was read: its protobuf, its graph, the same with layers put together, values."""

    model: Any
    graph: Graph
    fused: Graph
    values: dict[str, Tensor]

    @staticmethod
    def of(path: Path) -> Reading:
        model = read_model(path)
        graph = parse(model, path.name)
        require_known_ops(graph)
        _check(model, path.name)
        _stop_training(model)
        graph = fold(graph)
        values = outline(graph, graph.batch or ROWS)
        return Reading(model, graph, fuse(graph, values), values)

    def sites(
        self, dropout: Mapping[str, float], channel_dropout: Mapping[str, float]
    ) -> dict[str, Dropout]:
        """By node, what is dropped after it: as the file says, then as the user does."""
        known = (self.graph, self.fused, self.values)
        channels = dropout_named(*known, channel_dropout, channels=True)
        return dropout_in_file(self.graph) | dropout_named(*known, dropout) | channels

    def fused_around(self, sites: Mapping[str, Dropout]) -> Graph:
        """The graph with layers put together that have no dropout inside."""
        return fuse(self.graph, self.values, frozenset(sites))


def is_known(op: str) -> bool:
    return op == "Constant" or op in OPS or op in NUMBERS


def require_known_ops(graph: Graph) -> None:
    unknown = [node for node in graph.nodes if not is_known(node.op)]
    if unknown:
        raise UnsupportedOp(
            "\n  ".join(
                [f"{graph.file} holds {len(unknown)} op(s) that are not read:"]
                + [str(node) for node in unknown]
            )
            + "\nConvolutional, dense and temporal classifiers in float32 are. Quantise after "
            "converting; recurrent layers and attention have no rules."
        )


def _stop_training(model: Any) -> None:
    """Let dropout do nothing, so that runtimes give the answer to compare with."""
    for node in model.graph.node:
        if node.op_type == "Dropout":
            del node.input[2:]


def _check(model: Any, file: str) -> None:
    """What onnx itself has to say: attributes of the right kind, ops that the opset has."""
    from onnx.checker import check_model

    try:
        check_model(model)
    except Exception as error:
        raise FileError(f"{file} is no valid ONNX: {error}") from error
