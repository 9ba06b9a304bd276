"""Run Monte-Carlo dropout once and keep, per node, the mean and variance over the passes.

The output is that of the user's own network; the nodes are those of its graph, which has them.

Streaming: memory does not grow with the number of passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from onesigma import head
from onesigma.baselines.mc_dropout import own_network, seeded, with_dropout_on
from onesigma.converted import Converted
from onesigma.engine import Engine, watching

Progress = Callable[[Iterable[int]], Iterable[int]]


def silent(steps: Iterable[int]) -> Iterable[int]:
    """No progress bar."""
    return steps


class RunningMoments:
    """Mean and variance of a stream of tensors, in the stream's own precision.

    Sums of the distances to the first value, in place: two sweeps of memory per value. The first
    value is a draw of the same distribution, so the sums do not cancel.
    """

    def __init__(self) -> None:
        self.count = 0

    def add(self, value: Tensor) -> None:
        if self.count == 0:
            self._first = value.clone()
            self._sum, self._square = torch.zeros_like(value), torch.zeros_like(value)
        distance = value - self._first
        self._sum += distance
        self._square.addcmul_(distance, distance)
        self.count += 1

    @property
    def mean(self) -> Tensor:
        return self._first.double() + self._sum.double() / self.count

    @property
    def var(self) -> Tensor:
        spread = self._square.double() - self._sum.double().square() / self.count
        return spread.clamp(min=0) / max(1, self.count - 1)


class RunningCovariance(RunningMoments):
    """Also the covariance of elements (n, elements), summed over the first ``rows`` inputs."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self._products: Tensor | float = 0.0

    def add(self, value: Tensor) -> None:
        super().add(value)
        distance = (value - self._first)[: self.rows]
        self._products = distance.transpose(0, 1) @ distance + self._products

    @property
    def covariance(self) -> Tensor:
        total = self._sum[: self.rows].double()
        means = total.transpose(0, 1) @ total / self.count
        return (torch.as_tensor(self._products).double() - means) / max(1, self.count - 1)


@dataclass
class Observed:
    """What the passes were like: per node, and the output's probabilities in two halves.

    ``output`` is of the user's own network, ``of_graph`` of its graph; the same if only that is
    there.
    """

    nodes: dict[str, RunningMoments]
    probs: tuple[RunningMoments, RunningMoments]
    aleatoric: RunningMoments
    output: RunningMoments
    of_graph: RunningMoments

    @property
    def reference(self) -> head.Classification:
        """Probabilities and entropies over all passes (classes last)."""
        first, second = self.probs
        total = first.count + second.count
        probs = (first.mean * first.count + second.mean * second.count) / total
        return head.with_entropies(probs, self.aleatoric.mean, -1)


@torch.no_grad()
def observe(
    converted: Converted,
    inputs: Sequence[Tensor],
    nodes: Iterable[str],
    passes: int,
    *,
    seed: int = 0,
    progress: Progress = silent,
    covary: Mapping[str, int] | None = None,
) -> Observed:
    """``passes`` stochastic passes of the original network on ``inputs``.

    ``covary`` names nodes to keep the elements' covariance of, over so many of the inputs.
    """
    stochastic, own = _switch_on(converted, inputs)
    settings, output = converted.settings, RunningMoments()
    observed = Observed(
        {name: RunningMoments() for name in nodes}
        | {name: RunningCovariance(rows) for name, rows in (covary or {}).items()},
        (RunningMoments(), RunningMoments()),
        RunningMoments(),
        output,
        RunningMoments() if own else output,
    )

    def record(node: fx.Node, value: Any) -> None:
        if node.name in observed.nodes and isinstance(value, Tensor):
            observed.nodes[node.name].add(value)

    recorder = Engine(stochastic, {}, observer=watching(record))
    for index in progress(range(passes)):
        with seeded(seed, index, inputs[0].device):
            (logits,) = recorder.run(*_with_prior(converted, inputs))
        if own:
            observed.of_graph.add(logits)
            # From the same seed: where the graph is right, it even drew the same masks.
            with seeded(seed, index, inputs[0].device):
                logits = own(*_with_prior(converted, inputs))
        observed.output.add(logits)
        if settings.task == "classification":
            probs, entropy = head.softmax_and_entropy(logits.double(), settings.class_dim)
            observed.probs[index % 2].add(probs)
            observed.aleatoric.add(entropy)
    return observed


def _switch_on(
    converted: Converted, inputs: Sequence[Tensor]
) -> tuple[fx.GraphModule, Callable[..., Tensor] | None]:
    """The graph and the user's own network, dropout on."""
    sites = converted.report.sites
    if not sites and converted.input_var is not None:
        return converted.source, None  # the input prior is all the noise there is
    own = own_network(converted, inputs)
    if own and not sites:  # all noise is inside of recurrent layers or the like
        return converted.source, own
    return with_dropout_on(converted.source, converted.settings.dropout), own


def _with_prior(converted: Converted, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The input prior is noise too: a fresh draw of it for each pass."""
    var = converted.input_var
    return [x if var is None else x + var.sqrt() * torch.randn_like(x) for x in inputs]
