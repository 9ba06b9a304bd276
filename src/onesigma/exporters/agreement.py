"""Does an ONNX graph give what PyTorch gives? Asked on every export."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from onesigma.converted import Converted
from onesigma.errors import ExportError, OnesigmaError
from onesigma.exporters.answering import Answering, tensors_of

if TYPE_CHECKING:
    from onnx import ModelProto

TOLERANCE = 1e-4
# A value much smaller than its neighbours is the rounded difference of larger ones: it is held to
# the tolerance at this share of the largest one. Entropies are rounded at the scale of one nat.
_FLOOR = 1e-2
# Sums of very many terms round worse than the tolerance in PyTorch itself; not beyond this.
_MOST_ROUNDING = 1e-3
_NATS = ("entropy", "aleatoric", "epistemic")


def mismatch(name: str, found: Any, expected: Tensor) -> float:
    """The largest error of one output, relative to its value or to the floor; ∞ for a NaN."""
    wanted = expected.detach().cpu().numpy()
    if found.shape != wanted.shape:
        return float("inf")
    if wanted.dtype == np.bool_:
        return 0.0 if bool((found == wanted).all()) else float("inf")
    wanted = wanted.astype(np.float64)
    size = np.abs(wanted)
    scale = max(size.max(initial=0), 1.0 if name in _NATS else np.finfo(np.float32).tiny)
    # Infinities that agree are no error; their difference would be NaN.
    with np.errstate(invalid="ignore"):
        error = np.where(found == wanted, 0.0, np.abs(found - wanted) / (size + _FLOOR * scale))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0))


def _rounding(name: str, value: Tensor, model: Any, inputs: tuple[Tensor, ...]) -> float:
    """How far two roundings of this output may lie apart: twice PyTorch's own error in float32."""
    try:
        precise = deepcopy(model).double()(
            *(x.double() if x.is_floating_point() else x for x in inputs)
        )
        truth = tensors_of(precise)[name]
    except (RuntimeError, KeyError, OnesigmaError):  # no such output, or not in float64
        return 0.0
    return min(_MOST_ROUNDING, 2 * mismatch(name, value.cpu().numpy(), truth))


class Agreement(NamedTuple):
    """The largest relative error of any output, and the runtime that was asked."""

    error: float
    runtime: str


@torch.no_grad()
def compare(
    model: ModelProto, converted: Converted, answering: Answering, plain: nn.Module | None
) -> Agreement:
    """Run the ONNX model and compare all its outputs with PyTorch, on all of the examples and one.

    Raises:
        ExportError: the graph does not run, or is further off than the tolerance.
    """
    runtime, start = checking_runtime()
    examples = answering.examples
    batches = [examples, tuple(x[:1] for x in examples)] if answering.dynamic else [examples]
    session, worst = None, 0.0
    for inputs in batches:
        expected = tensors_of(converted(*inputs))
        if plain is not None:
            expected["plain output"] = plain(*inputs)
        feed = {name: x.cpu().numpy() for name, x in zip(answering.inputs, inputs, strict=True)}
        try:
            session = session or start(model.SerializeToString())
            found = session.run(answering.output_names, feed)
        except Exception as error:  # each failure of onnxruntime is a class of its own
            raise ExportError(f"{runtime} cannot run the exported graph: {error}") from error
        for (name, value), array in zip(expected.items(), found, strict=True):
            off_by = mismatch(name, array, value)
            if off_by > TOLERANCE and off_by > _rounding(name, value, converted, inputs):
                raise ExportError(
                    f"The exported graph disagrees with PyTorch: output '{name}' is off by "
                    f"{off_by:.2g} relative in {runtime} (tolerance {TOLERANCE:g}, batch of "
                    f"{len(inputs[0])}). Nothing was written. Try another opset, or give "
                    "example_input of the data's own scale."
                )
            worst = max(worst, off_by)
    return Agreement(worst, runtime)


def checking_runtime() -> tuple[str, Callable[[bytes], Any]]:
    """onnxruntime where installed, else onnx's own reference: its name, and how to start it."""
    if find_spec("onnxruntime") is None:
        evaluator = import_module("onnx.reference").ReferenceEvaluator
        return f"onnx.reference {version('onnx')}", evaluator
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # warnings are about its own optimiser, and errors are raised
    start = partial(
        onnxruntime.InferenceSession, sess_options=options, providers=["CPUExecutionProvider"]
    )
    return f"onnxruntime {version('onnxruntime')}", start
