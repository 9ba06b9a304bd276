"""Does an ONNX graph give what PyTorch gives? Asked on every export."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from onesigma.errors import ExportError, OnesigmaError
from onesigma.prediction import Prediction
from onesigma.runtime.comparison import TOLERANCE, checking_runtime, mismatch

# Sums of very many terms round worse than the tolerance in PyTorch itself; not beyond this.
_MOST_ROUNDING = 1e-3


def columns(prediction: Prediction) -> dict[str, Tensor]:
    """The tensors of a prediction by name, in order; those it does not have left out."""
    values = ((f.name, getattr(prediction, f.name)) for f in fields(prediction))
    return {name: value for name, value in values if isinstance(value, Tensor)}


def _rounding(name: str, value: Tensor, model: Any, inputs: tuple[Tensor, ...]) -> float:
    """How far two roundings of this output may lie apart: twice PyTorch's own error in float32."""
    try:
        precise = deepcopy(model).double()(
            *(x.double() if x.is_floating_point() else x for x in inputs)
        )
        truth = columns(precise)[name]
    except (RuntimeError, KeyError, OnesigmaError):  # no such output, or not in float64
        return 0.0
    return min(_MOST_ROUNDING, 2 * mismatch(name, value.cpu().numpy(), truth.cpu().numpy()))


@torch.no_grad()
def largest_mismatch(
    content: bytes,
    model: Any,
    names: list[str],
    batches: list[tuple[Tensor, ...]],
    outputs: Mapping[str, str],
    plain: tuple[str, Any] | None = None,
) -> tuple[float, str]:
    """Run the graph, compare all outputs on all batches; returns the error and who ran it.

    ``outputs`` says what each field is called there, ``plain`` the original network's own output.

    Raises:
        ExportError: the graph does not run, or is further off than the tolerance.
    """
    runtime, start = checking_runtime()
    session, worst = None, 0.0
    for inputs in batches:
        expected = columns(model(*inputs))
        called = [outputs[field] for field in expected]
        if plain is not None:
            called.append(plain[0])
            expected["plain output"] = plain[1](*inputs)
        feed = {name: x.cpu().numpy() for name, x in zip(names, inputs, strict=True)}
        try:
            session = session or start(content)
            found = session.run(called, feed)
        except Exception as error:  # each failure of onnxruntime is a class of its own
            raise ExportError(f"{runtime} cannot run the exported graph: {error}") from error
        for (name, value), array in zip(expected.items(), found, strict=True):
            off_by = mismatch(name, array, value.cpu().numpy())
            if off_by > TOLERANCE and off_by > _rounding(name, value, model, inputs):
                raise ExportError(
                    f"The exported graph disagrees with PyTorch: output '{name}' is off by "
                    f"{off_by:.2g} relative in {runtime} (tolerance {TOLERANCE:g}, batch of "
                    f"{len(inputs[0])}). Nothing was written. Try another opset, or give "
                    "example_input of the data's own scale."
                )
            worst = max(worst, off_by)
    return worst, runtime
