"""Does the module compute what the file does? Asked of ONNX Runtime on every reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma.errors import FileError, ModelError
from onesigma.frontends.onnx_module import OnnxModule
from onesigma.targets.agreement import TOLERANCE, checking_runtime, mismatch

ROWS = 3


@torch.no_grad()
def require_agreement(module: OnnxModule, model: Any, file: str) -> None:
    """Compare on random rows; where the file fixes the batch, it gets them in such portions.

    Raises:
        FileError: the runtime cannot run the file, or the module gives other answers.
        ModelError: the file takes one row at a time, and cannot be made to take more.
    """
    batch = module.input_shapes[0][0]
    rows = module.examples(ROWS * (batch or 1))
    portion = batch or len(rows[0])
    parts = [tuple(x[i : i + portion] for x in rows) for i in range(0, len(rows[0]), portion)]
    runtime, answers = _run(model, module, [module.output_name], parts, file)
    try:
        found = module(*rows)
        wanted = torch.cat([torch.as_tensor(answer[0]) for answer in answers])
    except ModelError as error:
        if batch == 1:
            raise ModelError(
                f"{file} takes one row at a time, and a batch of {ROWS} cannot be run: {error} "
                "Export the model with an open batch (dynamic_axes, dynamic_shapes)."
            ) from error
        rows, parts = parts[0], parts[:1]
        found, wanted = module(*rows), torch.as_tensor(answers[0][0])
    off_by = mismatch("output", wanted.numpy(), found)
    if off_by > TOLERANCE:
        first = _first_difference(module, model, parts[0], file)
        raise FileError(
            f"{file} is read wrongly: {first} {runtime} gives other values (off by {off_by:.2g} "
            f"relative at the output, tolerance {TOLERANCE:g}). Nothing was written. Please report "
            "this with the file."
        )


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
        return "some node; in"
    for (name, node), array in zip(nodes.items(), found, strict=True):
        if mismatch(name, np.asarray(array), values[name]) > TOLERANCE:
            return f"at {node}"
    return "in a batch of several rows;"
