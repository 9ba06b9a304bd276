"""Does an ONNX graph give what PyTorch gives? Asked on every export."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from onesigma.errors import ExportError, OnesigmaError
from onesigma.exporters.answering import Answering
from onesigma.runtime.comparison import TOLERANCE, checking_runtime, mismatch

if TYPE_CHECKING:
    from onnx import ModelProto

# Sums of very many terms round worse than the tolerance in PyTorch itself; not beyond this.
_MOST_ROUNDING = 1e-3


def _rounding(name: str, value: Tensor, model: Any, inputs: tuple[Tensor, ...]) -> float:
    """How far two roundings of this output may lie apart: twice PyTorch's own error in float32."""
    try:
        precise = deepcopy(model).double()(
            *(x.double() if x.is_floating_point() else x for x in inputs)
        )
        truth = precise.arrays()[name]
    except (RuntimeError, KeyError, OnesigmaError):  # no such output, or not in float64
        return 0.0
    return min(_MOST_ROUNDING, 2 * mismatch(name, value.cpu().numpy(), truth.cpu().numpy()))


class Agreement(NamedTuple):
    """The largest relative error of any output, and the runtime that was asked."""

    error: float
    runtime: str


@torch.no_grad()
def compare(
    model: ModelProto, converted: nn.Module, answering: Answering, plain: nn.Module | None
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
        expected = converted(*inputs).arrays()
        if plain is not None:
            expected["plain output"] = plain(*inputs)
        feed = {name: x.cpu().numpy() for name, x in zip(answering.inputs, inputs, strict=True)}
        try:
            session = session or start(model.SerializeToString())
            found = session.run(answering.output_names, feed)
        except Exception as error:  # each failure of onnxruntime is a class of its own
            raise ExportError(f"{runtime} cannot run the exported graph: {error}") from error
        for (name, value), array in zip(expected.items(), found, strict=True):
            off_by = mismatch(name, array, value.cpu().numpy())
            if off_by > TOLERANCE and off_by > _rounding(name, value, converted, inputs):
                raise ExportError(
                    f"The exported graph disagrees with PyTorch: output '{name}' is off by "
                    f"{off_by:.2g} relative in {runtime} (tolerance {TOLERANCE:g}, batch of "
                    f"{len(inputs[0])}). Nothing was written. Try another opset, or give "
                    "example_input of the data's own scale."
                )
            worst = max(worst, off_by)
    return Agreement(worst, runtime)
