"""Does the module compute what the file does? Asked of ONNX Runtime on every reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma.errors import FileError, ModelError, OnesigmaError
from onesigma.importers.onnx.module import OnnxModule
from onesigma.runtime.comparison import TOLERANCE, checking_runtime, mismatch

ROWS = 3


@torch.no_grad()
def require_agreement(module: OnnxModule, model: Any, file: str) -> None:
    """Compare on random rows; where the file fixes the batch, it gets them in such portions.

    Raises:
        FileError: the runtime cannot run the file, or the module gives other answers.
        ModelError: the file takes one row at a time and no more, or rows influence each other.
    """
    batch = module.input_shapes[0][0]
    rows, parts, runtime, answers = _answered(module, model, file)
    if not np.isfinite(answers).all():  # a logarithm at the beginning, say
        module.takes_positive = True
        rows, parts, runtime, answers = _answered(module, model, file)
    if not np.isfinite(answers).all():
        raise ModelError(f"{file} answers random inputs with NaN or infinity.")
    off_by = mismatch("output", answers[0], module(*parts[0]))
    if off_by > TOLERANCE:
        raise FileError(
            f"{file} is read wrongly: {_first_difference(module, model, parts[0], file)} {runtime} "
            f"gives other values (off by {off_by:.2g} relative at the output, tolerance "
            f"{TOLERANCE:g}). Nothing was written. Please report this with the file."
        )
    if batch is not None:
        _require_independent_rows(module, rows, answers, file)


def _answered(
    module: OnnxModule, model: Any, file: str
) -> tuple[tuple[Tensor, ...], list[tuple[Tensor, ...]], str, list[Any]]:
    """Random rows, in portions as the file takes them, who ran it, and the answers to each."""
    batch = module.input_shapes[0][0]
    rows = module.examples(ROWS * (batch or 1))
    portion = batch or ROWS
    parts = [tuple(x[i : i + portion] for x in rows) for i in range(0, len(rows[0]), portion)]
    runtime, answers = _run(model, module, [module.output_name], parts, file)
    return rows, parts, runtime, [answer[0] for answer in answers]


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
    if mismatch("output", np.concatenate(answers), found) > TOLERANCE:
        raise ModelError(f"{file}: the rows of its batch influence each other. {advice}")


def _run(
    model: Any, module: OnnxModule, outputs: list[str], parts: list[tuple[Tensor, ...]], file: str
) -> tuple[str, list[list[Any]]]:
    runtime, start = checking_runtime()
    try:
        session = start(model.SerializeToString())
        feeds = [dict(zip(module.input_names, map(np.asarray, p), strict=True)) for p in parts]
        return runtime, [session.run(outputs, feed) for feed in feeds]
    except Exception as error:  # each failure of onnxruntime is a class of its own
        raise FileError(f"{runtime} cannot run {file}: {error}") from error


def _first_difference(module: OnnxModule, model: Any, inputs: tuple[Tensor, ...], file: str) -> str:
    """The first node that differs, found by making all its values outputs of the file."""
    import onnx

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
        if mismatch(name, np.asarray(array), values[name]) > TOLERANCE:
            return f"at {node}"
    return "at the output"
