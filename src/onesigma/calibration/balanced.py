"""Balanced passes: fewer passes of Monte Carlo say as much, because their masks are drawn together.

In a group of k passes each element is dropped k·p times, rounded by chance; in which ones is drawn
for each element. Each pass alone is one of ordinary dropout. But what is linear in the masks
cancels in the average over a group, which so varies as little as that of 1.1 to 4.7 times as many
passes (measured on five trained networks). Two things cost next to nothing and are done as well:
what no dropout reaches is computed once, and what only the last dropout reaches is computed several
times for each pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, fx
from torch.utils.flop_counter import FlopCounterMode

from onesigma.graph.capture import is_site
from onesigma.graph.particles import MASKED
from onesigma.graph.split import has_rows, last_dropout, nodes_behind_noise, split
from onesigma.rules.dropout import RATE_ARGUMENT

_TOGETHER, _LATE = 5, 3  # passes of a group; and for each of them, of the last dropout
_ORDERS = 512  # of passes, to choose from; with each all orders that are turned


class BalancedPasses:
    """Inputs (n, …) in, logits (n, groups · passes, classes) out, one group after the other."""

    def __init__(self, source: fx.GraphModule) -> None:
        balanced = {n.name for n in source.graph.nodes if n.target in MASKED and has_rows(n)}
        last = last_dropout(source.graph)
        late = _LATE if last is not None and last.name in balanced else 1
        self.passes = _TOGETHER * late
        self._certain, self._noisy = split(source, nodes_behind_noise(source.graph))
        _draw_together(self._noisy, balanced, late)

    @torch.no_grad()
    def __call__(self, *inputs: Tensor, groups: int = 1) -> Tensor:
        rows = len(inputs[0])
        known = [x.repeat_interleave(_TOGETHER, 0) for x in self._certain(*inputs)]
        each = [self._noisy(*known)[0] for _ in range(groups)]
        return torch.cat([logits.unflatten(0, (rows, self.passes)) for logits in each], 1)

    @torch.no_grad()
    def noisy_share(self, inputs: Sequence[Tensor]) -> float:
        """What share of the network's multiplications has to be done for every pass."""
        known = self._certain(*inputs)
        every, noisy = FlopCounterMode(display=False), FlopCounterMode(display=False)
        with every:
            self._certain(*inputs)
            with noisy:
                self._noisy(*(x.repeat_interleave(_TOGETHER, 0) for x in known))
        per_pass = noisy.get_total_flops() / _TOGETHER
        certain = every.get_total_flops() - noisy.get_total_flops()
        return per_pass / max(1.0, certain + per_pass)


def _draw_together(noisy: fx.GraphModule, balanced: set[str], late: int) -> None:
    """Switch the dropouts on, those named with balanced masks; several times the last."""
    graph = noisy.graph
    sites = [node for node in graph.nodes if is_site(node)]
    for site in sites:
        x, rate = site.args[0], site.args[RATE_ARGUMENT]
        if site.name not in balanced:
            site.args = (x, rate, True)
            continue
        passes = _TOGETHER
        with graph.inserting_before(site):
            if site is sites[-1] and late > 1:
                x = graph.call_function(torch.repeat_interleave, (x, late, 0))
                passes *= late
            options = (x, rate, passes, MASKED[site.target])
            drawn = graph.call_function(balanced_dropout, options)
        site.replace_all_uses_with(drawn)
        graph.erase_node(site)
    noisy.recompile()


def balanced_dropout(x: Tensor, p: float, passes: int, dims: int | None = None) -> Tensor:
    """Dropout of (n · passes, …), the passes of each input one after the other."""
    if not 0 < p < 1:
        return x if p == 0 else torch.zeros_like(x)
    shape = [len(x) // passes, *x.shape[1:dims], *[1] * (0 if dims is None else x.dim() - dims)]
    masks = _masks(p, passes)
    words = masks[torch.randint(len(masks), shape, dtype=torch.int32)]
    turns = torch.arange(passes, dtype=torch.int16).view(-1, *[1] * (x.dim() - 1))
    kept = (words.unsqueeze(1) >> turns).bitwise_and_(1).to(x)
    together = x.reshape(-1, passes, *x.shape[1:]) * kept.mul_(1 / (1 - p))
    return together.flatten(0, 1)


@cache
def _masks(p: float, passes: int) -> Tensor:
    """Bit j of a mask says whether pass j keeps the element.

    Over the whole table each pass keeps exactly the same share q. A pass that kept a little more
    would scale all activations, which dropout does not.
    """
    generator = torch.Generator().manual_seed(0)
    ranks = torch.rand(_ORDERS, 1, passes, generator=generator).argsort(-1)
    turned = (ranks + torch.arange(passes).view(-1, 1)) % passes
    rounding = (torch.arange(_ORDERS) + 0.5) / _ORDERS
    count = torch.floor(passes * (1 - p) + rounding).view(-1, 1, 1)
    return ((turned < count) * 2 ** torch.arange(passes)).sum(-1).flatten().to(torch.int16)
