"""Prepare: the passes that come before propagation, for conversion and for Monte Carlo alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from onesigma.errors import CaptureError
from onesigma.graph.capture import Captured, capture, is_captured
from onesigma.graph.expand import compose, expand
from onesigma.graph.functionalize import functionalize
from onesigma.graph.inline import inline
from onesigma.graph.locate import output_of
from onesigma.graph.own import OwnNetwork
from onesigma.graph.reorder import pool_first
from onesigma.graph.same import answers_alike
from onesigma.graph.strip import refuse_final_sigmoid, strip_softmax


@dataclass(frozen=True)
class Prepared:
    """A flat graph without in-place ops that returns logits.

    ``own`` is the network itself; None if what was given is a captured graph already.
    """

    graph: fx.GraphModule
    own: OwnNetwork | None
    examples: tuple[Tensor, ...]
    input_names: tuple[str, ...]
    dynamic_batch: bool
    class_dim: int
    notes: tuple[str, ...]


def prepare(
    model: nn.Module,
    example_input: Any,
    task: str,
    class_dim: int | None,
    *,
    prior: bool = False,
    output: str | int | None = None,
) -> Prepared:
    """From a model to its graph; for classification without the final softmax."""
    captured = capture(model, example_input, output)
    try:
        return _rewritten(captured, task, class_dim, prior=prior)
    except CaptureError:
        if not captured.in_training:
            raise
    # In training it computes something else: what only that shows is told in a note.
    captured = capture(model, example_input, output, show_hidden=False)
    return _rewritten(captured, task, class_dim, prior=prior)


def _rewritten(captured: Captured, task: str, class_dim: int | None, *, prior: bool) -> Prepared:
    graph, notes = captured.graph, list(captured.notes)
    inline(graph)
    expand(graph)
    functionalize(graph)
    last = output_of(graph) if task == "classification" else None
    compose(graph, prior=prior, keep=last)
    pool_first(graph)
    dynamic = answers_alike(captured) and captured.dynamic_batch
    if not dynamic:
        size = len(captured.examples[0])
        notes.append(f"the model fixes its batch: converted for a batch of {size} only")
    stripped = None
    if task == "classification":
        refuse_final_sigmoid(graph)
        stripped = strip_softmax(graph)
    if stripped:
        softmax_dim, note = stripped
        class_dim = softmax_dim if class_dim is None else class_dim
        notes.append(note)
    own = OwnNetwork(captured.model, stripped is not None, captured.rows_apart)
    return Prepared(
        graph,
        None if is_captured(captured.model) else own,
        captured.examples,
        captured.input_names,
        dynamic,
        1 if class_dim is None else class_dim,
        tuple(notes),
    )
