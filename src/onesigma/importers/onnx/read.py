"""``read_onnx``: from a file to a network that ``convert`` takes; the order of the passes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma.arguments import typed
from onesigma.errors import FileError, ModelError, OnesigmaError, UnsupportedOp
from onesigma.importers.onnx.dropout_sites import Dropout, Rates, find_sites, no_dropout
from onesigma.importers.onnx.module import OnnxModule
from onesigma.importers.onnx.ops import OPS
from onesigma.importers.onnx.parse import Node, OnnxGraph, parse, read_model
from onesigma.importers.onnx.quantised import QUANTISED, ROUNDING, in_real_numbers, without_rounding
from onesigma.importers.onnx.rewrite import fold, fuse, trace_shapes
from onesigma.runtime.comparison import TOLERANCE, checking_runtime, mismatch

ROWS = 3  # of random inputs, for the comparison
# Of the largest answer, where values are rounded: one between two levels may go either way.
_ROUNDED_TOLERANCE = 0.05
_SHOWN = 3


@typed
def read_onnx(
    path: str | Path, *, dropout: Rates | None = None, channel_dropout: Rates | None = None
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
    model = read_model(Path(path))
    reading = Reading.of(model, parse(model, Path(path).name))
    sites = reading.sites(dropout, channel_dropout)
    if not sites and dropout is None:
        raise no_dropout(reading.fused, reading.values)
    module = OnnxModule(fuse(reading.graph, reading.values, sites), sites).eval()
    module.notes = reading.notes
    # A quantised file is compared as it rounds; what is handed out does not.
    checked = OnnxModule(reading.rounded).eval() if reading.notes else module
    require_agreement(checked, model, reading.graph.file)
    module.takes_positive = checked.takes_positive
    return module


@dataclass(frozen=True)
class Reading:
    """The graph of a file, the same with layers put together, and its tensors without values.

    ``rounded`` is the graph as a quantised file rounds, ``notes`` what was done to such a one.
    """

    graph: OnnxGraph
    fused: OnnxGraph
    values: dict[str, Tensor]
    rounded: OnnxGraph
    notes: tuple[str, ...]

    @staticmethod
    def of(model: Any, graph: OnnxGraph) -> Reading:
        """Check the ops, and rewrite the graph. Dropout in ``model`` is made to do nothing."""
        _require_known_ops(graph)
        _check_validity(model, graph.file)
        for node in model.graph.node:
            if node.op_type == "Dropout":  # runtimes then give the answer to compare with
                del node.input[2:]
        rounded = fold(in_real_numbers(fold(graph)))
        graph, notes = without_rounding(rounded)
        values = trace_shapes(graph, graph.batch or ROWS)
        return Reading(graph, fuse(graph, values), values, rounded, notes)

    def sites(self, dropout: Rates | None, channel_dropout: Rates | None) -> dict[str, Dropout]:
        """By node, what is dropped after it."""
        return find_sites(self.graph, self.fused, self.values, dropout, channel_dropout)


def unknown_ops(graph: OnnxGraph) -> list[Node]:
    return [node for node in graph.nodes if node.op not in OPS and node.op not in QUANTISED]


def _require_known_ops(graph: OnnxGraph) -> None:
    """Refuse all ops at once that are not read: each op on one line, however many nodes have it."""
    names: dict[str, list[str]] = {}
    for node in unknown_ops(graph):
        names.setdefault(node.op, []).append(f"'{node.name}'")
    if names:
        lines = [
            f"{op}, {len(each)} node(s): {', '.join(each[:_SHOWN])}{', …' * (len(each) > _SHOWN)}"
            for op, each in names.items()
        ]
        title = f"{graph.file} holds {len(names)} op(s) that are not read:"
        advice = (
            "Convolutional, dense and recurrent classifiers are. Another opset or another exporter "
            "may write them in ops that are read: docs/onnx.md."
        )
        raise UnsupportedOp("\n  ".join([title, *lines]) + f"\n{advice}")


def _check_validity(model: Any, file: str) -> None:
    """Ask onnx: names made once and before their use, ops of the opset, attributes that fit."""
    from onnx.checker import check_model

    try:
        check_model(model)
    except Exception as error:
        raise FileError(f"{file} is no valid ONNX, export the model again: {error}") from error


@torch.no_grad()
def require_agreement(module: OnnxModule, model: Any, file: str) -> None:
    """Compare on random rows; where the file fixes the batch, it gets them in such portions.

    Raises:
        FileError: the runtime cannot run the file, or the module gives other answers.
        ModelError: the file takes one row at a time and no more, or rows influence each other.
    """
    batch = module.input_shapes[0][0]
    portion = batch or ROWS
    for module.takes_positive in (False, True):  # a logarithm at the beginning, say, takes these
        rows = module.examples(ROWS * (batch or 1))
        parts = [tuple(x[i : i + portion] for x in rows) for i in range(0, len(rows[0]), portion)]
        runtime, found = _run(model, module, [module.output_name], parts, file)
        answers = [outputs[0] for outputs in found]
        if np.isfinite(answers).all():
            break
    else:
        raise ModelError(f"{file} answers random inputs with NaN or infinity.")
    off_by, allowed = _difference(module, answers[0], module(*parts[0]))
    if off_by > allowed:
        raise FileError(
            f"{file} is read wrongly: {_first_difference(module, model, parts[0], file)} {runtime} "
            f"gives other values (off by {off_by:.2g} relative at the output, tolerance "
            f"{allowed:g}). Nothing was written. Please report this with the file."
        )
    if batch is not None:
        _require_independent_rows(module, rows, answers, file)


def _difference(module: OnnxModule, answer: Any, found: Tensor) -> tuple[float, float]:
    """How far off, and how far is allowed."""
    if not _rounds(module):
        return mismatch("output", answer, found.numpy()), TOLERANCE
    if answer.shape != tuple(found.shape):
        return float("inf"), _ROUNDED_TOLERANCE
    return float(np.abs(answer - found.numpy()).max() / np.abs(answer).max()), _ROUNDED_TOLERANCE


def _rounds(module: OnnxModule) -> bool:
    return any(step.node.op in ROUNDING for step in module.steps())


def _require_independent_rows(
    module: OnnxModule, rows: tuple[Tensor, ...], answers: list[Any], file: str
) -> None:
    """Whether a batch that the file fixes may be another: all portions at once give the same."""
    advice = "Export the model with an open batch (dynamic_axes, dynamic_shapes)."
    try:
        found = module(*rows)
    except OnesigmaError as error:
        if len(rows[0]) > ROWS:
            return  # it stays fixed: ``convert`` finds that out and says so
        raise ModelError(f"{file} takes one row at a time: {error} {advice}") from error
    off_by, allowed = _difference(module, np.concatenate(answers), found)
    if off_by > allowed:
        raise ModelError(f"{file}: the rows of its batch influence each other. {advice}")


def _run(
    model: Any, module: OnnxModule, outputs: list[str], parts: list[tuple[Tensor, ...]], file: str
) -> tuple[str, list[list[Any]]]:
    """The name of the runtime, and the file's outputs for each part of the rows."""
    # onnxruntime 1.31 has no precise kernel where activations are int8 and not uint8.
    for precise in (True, False) if _rounds(module) else (False,):
        runtime, start = checking_runtime(precise=precise)
        try:
            session = start(model.SerializeToString())
            feeds = [dict(zip(module.input_names, map(np.asarray, p), strict=True)) for p in parts]
            return runtime, [session.run(outputs, feed) for feed in feeds]
        except Exception as error:  # each failure of onnxruntime is a class of its own
            failure = error
    raise FileError(f"{runtime} cannot run {file}: {failure}") from failure


def _first_difference(module: OnnxModule, model: Any, inputs: tuple[Tensor, ...], file: str) -> str:
    """The first node that differs, found by making all its values outputs of the file."""
    import onnx

    if _rounds(module):  # its values are integers in the file
        return "at some node"
    values = module.values(*inputs)
    made = [step.node for step in module.steps()]
    nodes = {n.outputs[0]: n for n in made if isinstance(values[n.outputs[0]], Tensor)}
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in nodes)
    try:
        _, (found,) = _run(exposed, module, list(nodes), [inputs], file)
    except FileError:  # what a runtime accepts as an output is its own affair
        return "at some node"
    for (name, node), array in zip(nodes.items(), found, strict=True):
        if mismatch(name, np.asarray(array), values[name].numpy()) > TOLERANCE:
            return f"at {node}"
    return "at the output"
