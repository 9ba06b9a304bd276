"""Monte-Carlo dropout (Gal & Ghahramani 2016): the reference that one pass is measured against.

It runs on the same captured graph as conversion, with only the dropout sites switched to training:
functional dropout is found, BatchNorm stays in eval, and the original model is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from onesigma import head
from onesigma.converted import Converted, check_inputs
from onesigma.errors import InputError, NoRandomness
from onesigma.passes.capture import is_site, shared_copy
from onesigma.passes.prepare import prepare
from onesigma.prediction import Prediction
from onesigma.rules.dropout import CLASSIC, RATE_ARGUMENT


def mc_dropout(
    model: nn.Module,
    passes: int = 30,
    *,
    form: str = "repeat",
    seed: int | None = 0,
    task: str = "classification",
    class_dim: int | None = None,
    max_rows: int = 4096,
) -> McDropout:
    """Monte-Carlo dropout of a model, with the same ``Prediction`` as a converted one.

    Args:
        model: the original network, or a converted one (then its original is run).
        passes: how many forward passes with dropout on.
        form: "repeat" runs the passes as one large batch, the fast way; "loop" one by one.
        seed: the masks' seed, so that the same input gives the same answer; None for fresh masks.
        task: "classification" or "regression".
        class_dim: dimension of the classes; 1, or that of the model's final softmax.
        max_rows: with "repeat", at most so many rows at once, to bound memory.
    """
    if passes < 1:
        raise InputError(f"passes={passes}: at least one pass is needed.")
    if form not in ("repeat", "loop"):
        raise InputError(f"form={form!r}: choose 'repeat' or 'loop'.")
    if task not in ("classification", "regression"):
        raise InputError(f"task={task!r}: choose 'classification' or 'regression'.")
    if max_rows < 1:
        raise InputError(f"max_rows={max_rows}: at least one row must fit.")
    return McDropout(model, passes, form, seed, task, class_dim, max_rows)


@dataclass
class McDropout:
    """See ``mc_dropout``. The graph is captured at the first call, from the input it gets."""

    model: nn.Module
    passes: int
    form: str
    seed: int | None
    task: str
    class_dim: int | None
    max_rows: int
    _graph: fx.GraphModule | None = None
    _shapes: tuple[tuple[int | None, ...], ...] = ()
    _dtypes: tuple[torch.dtype, ...] = ()

    def __call__(self, *inputs: Tensor) -> Prediction:
        """Mean and variance over the passes; their softmax averaged."""
        totals = _Totals()
        for logits in self.samples(*inputs):
            totals.add(logits, self.task, self.class_dim or 0)
        return totals.prediction(self.class_dim or 0)

    @torch.no_grad()
    def samples(self, *inputs: Tensor) -> Iterator[Tensor]:
        """The logits of the passes, in chunks of shape (passes in chunk, batch, …)."""
        graph = self._capture(inputs)
        checked = check_inputs(inputs, self._shapes, self._dtypes)
        batch = len(checked[0])
        together = max(1, self.max_rows // max(1, batch)) if self._repeats() else 1
        for start in range(0, self.passes, together):
            count = min(together, self.passes - start)
            repeated = [x.repeat(count, *[1] * (x.dim() - 1)) for x in checked]
            # Seeded anew for each chunk: the caller's own draws between chunks are left alone.
            with seeded(self.seed, start, checked[0].device):
                logits = graph(*repeated)[0]
            yield logits.reshape(count, batch, *logits.shape[1:])

    def _repeats(self) -> bool:
        return self.form == "repeat" and self._shapes[0][0] is None

    def _capture(self, inputs: tuple[Tensor, ...]) -> fx.GraphModule:
        if self._graph is not None:
            return self._graph
        dropout = "inverted"
        if isinstance(self.model, Converted):
            source, settings = self.model.source, self.model.settings
            dropout = settings.dropout
            self.class_dim, self.task = settings.class_dim, settings.task
            self._shapes = settings.input_shapes
            self._dtypes = tuple(getattr(torch, name) for name in settings.input_dtypes)
        else:
            prepared = prepare(self.model, inputs, self.task, self.class_dim)
            source, self.class_dim = prepared.graph, prepared.class_dim
            batch = None if prepared.dynamic_batch else len(prepared.examples[0])
            self._shapes = tuple((batch, *x.shape[1:]) for x in prepared.examples)
            self._dtypes = tuple(x.dtype for x in prepared.examples)
        self._graph = with_dropout_on(source, dropout)
        return self._graph


def with_dropout_on(source: fx.GraphModule, dropout: str = "inverted") -> fx.GraphModule:
    """The same graph on the same weights, its dropout sites in training mode and nothing else."""
    stochastic = shared_copy(source)
    sites = [node for node in stochastic.graph.nodes if is_site(node)]
    if not sites:
        raise NoRandomness(
            "The model has no dropout that acts in eval mode: every Monte-Carlo pass would be the "
            "same. Write dropout as nn.Dropout or F.dropout(x, p, self.training)."
        )
    for node in sites:
        node.args = (*node.args[: RATE_ARGUMENT + 1], True)
        if dropout == "classic" and node.target in CLASSIC:
            _unscale(stochastic.graph, node)
    stochastic.recompile()
    return stochastic


def _unscale(graph: fx.Graph, site: fx.Node) -> None:
    """Classic dropout does not divide by q: take torch's division back."""
    with graph.inserting_after(site):
        keep = 1 - float(site.args[RATE_ARGUMENT])  # type: ignore[arg-type]
        unscaled = graph.call_function(torch.ops.aten.mul.Tensor, (site, keep))
    site.replace_all_uses_with(unscaled, delete_user_cb=lambda user: user is not unscaled)


class _Totals:
    """Running sums over passes, in float64: memory does not grow with the number of passes."""

    def __init__(self) -> None:
        self.passes = 0
        self.sums: list[Tensor] = []

    def add(self, logits: Tensor, task: str, class_dim: int) -> None:
        values = logits.double()
        terms = [values, values.square()]
        if task == "classification":
            # One dim more than the logits: the passes come first.
            dim = class_dim + 1 if class_dim >= 0 else class_dim
            log_probs = torch.log_softmax(values.movedim(dim, -1), -1)
            probs = log_probs.exp()
            terms += [probs, -(probs * log_probs).sum(-1)]
        sums = [term.sum(0) for term in terms]
        self.sums = [a + b for a, b in zip(self.sums, sums, strict=True)] if self.sums else sums
        self.passes += len(logits)
        self.dtype = logits.dtype

    def prediction(self, class_dim: int) -> Prediction:
        mean, square, *rest = (total / self.passes for total in self.sums)
        unbiased = self.passes / max(1, self.passes - 1)
        var = (square - mean.square()).clamp(min=0) * unbiased
        doubt = head.doubt(rest[0], rest[1], class_dim) if rest else ()
        values = (value.to(self.dtype) for value in (mean, var, *doubt))
        return Prediction(*values, class_dim=class_dim)


@contextmanager
def seeded(seed: int | None, start: int, device: torch.device) -> Iterator[None]:
    """Seed torch for the passes from ``start`` on, and leave its state as it was before."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed((seed * 1_000_003 + start) % 2**63)
        yield
