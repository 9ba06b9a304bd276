"""The original network as a graph that returns logits: what every baseline runs.

Captured as conversion captures it: a final softmax is understood, the model is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from onesigma.converted import Converted, check_inputs
from onesigma.errors import InputError
from onesigma.graph.prepare import prepare
from onesigma.importers.keras import as_module


@dataclass(frozen=True)
class Original:
    """The graph, what it takes (a shape's None is any batch) and how its output is read."""

    graph: fx.GraphModule
    task: str
    class_dim: int
    dropout: str
    shapes: tuple[tuple[int | None, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    def check_inputs(self, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        return check_inputs(inputs, self.shapes, self.dtypes)


def original(
    model: nn.Module, inputs: tuple[Tensor, ...], task: str, class_dim: int | None
) -> Original:
    """Capture a network from an input; of a converted one, its original and its settings."""
    if isinstance(model, Converted):
        settings = model.settings
        return Original(
            model.source,
            settings.task,
            settings.class_dim,
            settings.dropout,
            settings.input_shapes,
            tuple(getattr(torch, name) for name in settings.input_dtypes),
        )
    prepared = prepare(as_module(model), inputs, task, class_dim)
    batch = None if prepared.dynamic_batch else len(prepared.examples[0])
    return Original(
        prepared.graph,
        task,
        prepared.class_dim,
        "inverted",
        tuple((batch, *x.shape[1:]) for x in prepared.examples),
        tuple(x.dtype for x in prepared.examples),
    )


def check_task(task: str) -> None:
    if task not in ("classification", "regression"):
        raise InputError(f"task={task!r}: choose 'classification' or 'regression'.")
