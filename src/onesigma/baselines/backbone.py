"""What every baseline is made of: the original network, run plainly, and sums over several runs.

Captured as conversion captures it: a final softmax is understood, the model is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma import head
from onesigma.converted import Converted, by_place, check_inputs
from onesigma.errors import InputError
from onesigma.graph.own import OwnNetwork
from onesigma.graph.prepare import prepare
from onesigma.importers.keras import as_module
from onesigma.prediction import Prediction


@dataclass(frozen=True)
class Original:
    """The graph, what it takes (a shape's None is any batch) and how its output is read.

    ``own`` is the network itself; None where there is only its graph.
    """

    graph: fx.GraphModule
    own: OwnNetwork | None
    task: str
    class_dim: int
    dropout: str
    shapes: tuple[tuple[int | None, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    names: tuple[str, ...]

    def check_inputs(self, inputs: Sequence[Any]) -> list[Tensor]:
        return check_inputs(by_place(inputs, self.names), self.shapes, self.dtypes)


def original(
    model: nn.Module,
    inputs: Sequence[Any],
    task: str,
    class_dim: int | None,
    output: str | int | None = None,
) -> Original:
    """Capture a network from an input; of a converted one, its original and its settings."""
    if isinstance(model, Converted):
        return original_of(model)
    given = inputs[0] if len(inputs) == 1 else inputs  # the one may be a dict
    prepared = prepare(as_module(model), given, task, class_dim, output=output)
    batch = None if prepared.dynamic_batch else len(prepared.examples[0])
    return Original(
        prepared.graph,
        prepared.own,
        task,
        prepared.class_dim,
        "inverted",
        tuple((batch, *x.shape[1:]) for x in prepared.examples),
        tuple(x.dtype for x in prepared.examples),
        prepared.input_names,
    )


def original_of(converted: Converted) -> Original:
    """What a converted model was made from."""
    settings = converted.settings
    return Original(
        converted.source,
        converted.own,
        settings.task,
        settings.class_dim,
        settings.dropout,
        settings.input_shapes,
        settings.dtypes,
        settings.input_names,
    )


def check_task(task: str) -> None:
    if task not in ("classification", "regression"):
        raise InputError(f"task={task!r}: choose 'classification' or 'regression'.")


def backbone(
    model: nn.Module,
    *,
    task: str = "classification",
    class_dim: int | None = None,
    output: str | int | None = None,
) -> Backbone:
    """The plain network, dropout off, with the same ``Prediction`` as a converted one.

    Its logits have no variance, so all the entropy of its one softmax is aleatoric.

    Args:
        model: the original network, or a converted one (then its original is run).
        task: "classification" or "regression".
        class_dim: dimension of the classes; 1, or that of the model's final softmax.
        output: which of several outputs is the answer, as for ``convert``.
    """
    check_task(task)
    return Backbone(model, task, class_dim, output)


@dataclass
class Backbone:
    """See ``backbone``. The graph is captured at the first call, from the input it gets."""

    model: nn.Module
    task: str
    class_dim: int | None
    output: str | int | None = None
    _original: Original | None = None

    def __call__(self, *inputs: Tensor) -> Prediction:
        """The logits, without variance, and their one softmax."""
        network, logits = self.original(inputs), self.logits(*inputs)
        fields = {"mean": logits, "var": torch.zeros_like(logits)}
        if network.task == "classification":
            fields |= head.classify_certain(logits, network.class_dim)._asdict()
        return Prediction(**fields, class_dim=network.class_dim)

    @torch.no_grad()
    def logits(self, *inputs: Tensor) -> Tensor:
        """What the network says before its softmax, shape (batch, …)."""
        network = self.original(inputs)
        logits: Tensor = network.graph(*network.check_inputs(inputs))[0]
        return logits

    def original(self, inputs: tuple[Tensor, ...]) -> Original:
        if self._original is None:
            self._original = original(self.model, inputs, self.task, self.class_dim, self.output)
        return self._original


class Totals:
    """Running sums, in float64: memory does not grow with the number of passes.

    mean, var   of the logits over the passes; var is the unbiased one, and 0 for one pass
    probs       the average softmax;   epistemic   the mutual information
    """

    def __init__(self, task: str, class_dim: int) -> None:
        self.task = task
        self.class_dim = class_dim
        self.passes = 0
        self.sums: list[Tensor] = []

    def add(self, logits: Tensor) -> None:
        """Take in the logits of some passes, shape (passes, batch, …)."""
        values = logits.double()
        terms = [values, values.square()]
        if self.task == "classification":
            # One dim more than the logits: the passes come first.
            dim = self.class_dim + 1 if self.class_dim >= 0 else self.class_dim
            log_probs = torch.log_softmax(values.movedim(dim, -1), -1)
            probs = log_probs.exp()
            terms += [probs, -(probs * log_probs).sum(-1)]
        sums = [term.sum(0) for term in terms]
        self.sums = [a + b for a, b in zip(self.sums, sums, strict=True)] if self.sums else sums
        self.passes += len(logits)
        self.dtype = logits.dtype

    def prediction(self) -> Prediction:
        mean, square, *rest = (total / self.passes for total in self.sums)
        unbiased = self.passes / max(1, self.passes - 1)
        var = (square - mean.square()).clamp(min=0) * unbiased
        fields = {"mean": mean, "var": var}
        if rest:
            fields |= head.with_entropies(rest[0], rest[1], self.class_dim)._asdict()
        cast = {name: value.to(self.dtype) for name, value in fields.items()}
        return Prediction(**cast, class_dim=self.class_dim)
