"""Monte-Carlo dropout (Gal & Ghahramani 2016): the reference that one pass is measured against.

It runs the user's own network in training mode, so that it can contradict the capture; BatchNorm
stays in eval, and the model itself is never touched. Where there is only a graph (a saved file, an
exported program, classic dropout), the graph's dropout sites are switched on instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma.arguments import typed
from onesigma.baselines.backbone import Backbone, Totals, backbone
from onesigma.conversion import require_one_of
from onesigma.converted import Converted
from onesigma.errors import InputError, NoRandomness
from onesigma.graph.capture import is_site, rate_of, shared_copy
from onesigma.prediction import Prediction
from onesigma.rules.dropout import CLASSIC, RATE_ARGUMENT


@typed
def mc_dropout(
    model: nn.Module,
    passes: int = 30,
    *,
    form: str = "repeat",
    seed: int | None = 0,
    task: str = "classification",
    class_dim: int | None = None,
    max_rows: int = 4096,
    output: str | int | None = None,
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
        output: which of several outputs is the answer, as for ``convert``.
    """
    if passes < 1:
        raise InputError(f"passes={passes}: at least one pass is needed.")
    require_one_of("form", form, ("repeat", "loop"))
    if max_rows < 1:
        raise InputError(f"max_rows={max_rows}: at least one row must fit.")
    plain = backbone(model, task=task, class_dim=class_dim, output=output)
    return McDropout(plain, passes, form, seed, max_rows)


@dataclass
class McDropout:
    """See ``mc_dropout``. The graph is captured at the first call, from the input it gets."""

    plain: Backbone
    passes: int
    form: str
    seed: int | None
    max_rows: int
    _noisy: tuple[Callable[..., Tensor], bool] | None = None

    def __call__(self, *inputs: Any) -> Prediction:
        """Mean and variance over the passes; their softmax averaged. Inputs by name in a dict."""
        network = self.plain.original(inputs)
        totals = Totals(network.settings.task, network.settings.class_dim)
        for logits in self.samples(*inputs):
            totals.add(logits)
        return totals.prediction()

    @torch.no_grad()
    def samples(self, *inputs: Any) -> Iterator[Tensor]:
        """The logits of the passes, in chunks of shape (passes in chunk, batch, …)."""
        network = self.plain.original(inputs)
        checked = network.check_inputs(inputs)
        run, rows_apart = self._noisy = self._noisy or self._switch_on(network, checked)
        batch = len(checked[0])
        repeats = self.form == "repeat" and rows_apart and network.settings.dynamic_batch
        together = max(1, self.max_rows // max(1, batch)) if repeats else 1
        for start in range(0, self.passes, together):
            count = min(together, self.passes - start)
            repeated = [x.repeat(count, *[1] * (x.dim() - 1)) for x in checked]
            # Seeded anew for each chunk: the caller's own draws between chunks are left alone.
            with seeded(self.seed, start, checked[0].device):
                logits = run(*repeated)
            yield logits.reshape(count, batch, *logits.shape[1:])

    def _switch_on(
        self, network: Converted, inputs: Sequence[Tensor]
    ) -> tuple[Callable[..., Tensor], bool]:
        """Inputs in, logits out, dropout on; and whether each row of a batch draws its own."""
        run = own_network(network, inputs)
        if run is None or network.own is None:
            stochastic = with_dropout_on(network.source, network.settings.dropout)
            return lambda *inputs: stochastic(*inputs)[0], True
        if not any(map(is_site, network.source.graph.nodes)) and _same_twice(run, inputs):
            raise _no_randomness()
        return run, network.own.rows_apart


def own_network(network: Converted, inputs: Sequence[Tensor]) -> Callable[..., Tensor] | None:
    """The user's own network with its noise on: inputs in, logits out. None if there is none."""
    if network.own is None or network.settings.dropout != "inverted":
        return None
    with seeded(0, 0, inputs[0].device):  # to try it must not move the caller's generator
        return network.own.noisy(inputs)


def _same_twice(run: Callable[..., Tensor], inputs: Sequence[Tensor]) -> bool:
    with seeded(0, 0, inputs[0].device):
        return torch.equal(run(*inputs), run(*inputs))


def with_dropout_on(source: fx.GraphModule, dropout: str = "inverted") -> fx.GraphModule:
    """The same graph on the same weights, its dropout sites in training mode and nothing else."""
    stochastic = shared_copy(source)
    sites = [node for node in stochastic.graph.nodes if is_site(node)]
    if not sites:
        raise _no_randomness()
    for node in sites:
        node.args = (*node.args[: RATE_ARGUMENT + 1], True)
        if dropout == "classic" and node.target in CLASSIC:
            _unscale(stochastic.graph, node)
    stochastic.recompile()
    return stochastic


def _no_randomness() -> NoRandomness:
    return NoRandomness(
        "The model has no dropout: every Monte-Carlo pass would be the same. "
        "Write dropout as nn.Dropout or F.dropout(x, p, self.training)."
    )


def _unscale(graph: fx.Graph, site: fx.Node) -> None:
    """Classic dropout does not divide by q: take torch's division back."""
    with graph.inserting_after(site):
        unscaled = graph.call_function(torch.ops.aten.mul.Tensor, (site, 1 - rate_of(site)))
    site.replace_all_uses_with(unscaled, delete_user_cb=lambda user: user is not unscaled)


@contextmanager
def seeded(seed: int | None, start: int, device: torch.device) -> Iterator[None]:
    """Seed torch for the passes from ``start`` on, and leave its state as it was before."""
    if seed is None:
        yield
        return
    # torch.manual_seed also notes where it was called, for each kind of device that is not in use:
    # a millisecond, longer than a pass of a small network.
    seed_all = torch.default_generator.manual_seed if device.type == "cpu" else torch.manual_seed
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        seed_all((seed * 1_000_003 + start) % 2**63)
        yield
