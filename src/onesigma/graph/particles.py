"""Particles: a few rows with fixed masks stand for each input, in place of the noise of dropout.

    x (n, …)  →  (n · k, …), the k rows of an input one after the other

Each dropout multiplies by masks that are stored in the network. Any op can follow, because what it
is given are ordinary rows: recurrent layers and attention keep their fused kernels. This is
sampling, stratified and with fixed masks. Of the k rows of an input each element is dropped in d,
and divided by its kept share, (k − d) / k. So what is linear in the masks cancels in the average of
the rows. The variance of an element over the rows is d / (k − d) of its square; d is one of two
numbers, by chance such that on average this is p / q, as under dropout.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.errors import UnsupportedOp
from onesigma.graph.capture import is_site, rate_of, shared_copy
from onesigma.graph.locate import describe
from onesigma.graph.split import last_dropout, nodes_behind

aten = torch.ops.aten
# Dimensions of which each index has a mask of its own; None for all.
MASKED: dict[Any, int | None] = {aten.dropout.default: None, aten.feature_dropout.default: 2}


def spread(
    source: fx.GraphModule, count: int, *, seed: int = 0, keep: fx.Node | None = None, late: int = 1
) -> fx.GraphModule:
    """The network on the same weights with ``count`` rows for each input, its dropout fixed.

    ``keep`` is a site that stays what it is. Behind the dropout that all noise passes through, if
    there is one, there are ``late`` times as many rows.

    Raises:
        UnsupportedOp: it drops something that has no row for each input.
    """
    module = shared_copy(source)
    kept = None if keep is None else keep.name
    sites = [n for n in module.graph.nodes if is_site(n) and rate_of(n)]
    drawn: list[fx.Node] = [site for site in sites if site.name != kept]
    spreader = _Spreader(module, nodes_behind(module.graph, drawn), count, seed)
    last = last_dropout(module.graph)
    for node in list(module.graph.nodes):
        if node in drawn:
            if node == last and late > 1:
                spreader.multiply(node, late)
            spreader.fix(node)
        elif node in spreader.behind or node.op == "output":
            spreader.repeat_inputs(node)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def balanced_masks(p: float, count: int, shape: list[int], generator: torch.Generator) -> Tensor:
    """(count, *shape): 0, or one over the share in which the element is kept.

    In which ones is drawn for each element by itself: sums over elements vary as under dropout.
    """
    size = torch.Size(shape).numel()
    places = torch.rand(size, count, generator=generator).argsort(-1)
    wanted, less = p / (1 - p), min(int(count * p + 1e-6), count - 2)
    some, more = less / (count - less), (less + 1) / (count - less - 1)
    share = (wanted - some) / (more - some)
    left = count - less - (torch.rand(size, 1, generator=generator) < share).int()
    return ((places < left) * (count / left)).T.reshape(count, *shape)


class _Spreader:
    """Rewrites a graph in place; ``behind`` are the nodes that have a row for each particle."""

    def __init__(self, module: fx.GraphModule, behind: set[fx.Node], count: int, seed: int) -> None:
        self.behind, self.count = behind, count
        self._module, self._graph = module, module.graph
        self._generator = torch.Generator().manual_seed(seed)
        self._repeated: dict[fx.Node, fx.Node] = {}
        first = self._graph.find_nodes(op="placeholder")[0]
        self._batch = first.meta["val"].shape[0].node.expr

    def repeat_inputs(self, node: fx.Node) -> None:
        """Give the node a row for each particle of what no noise has reached."""
        for each in node.all_input_nodes:
            if each in self.behind or each in self._repeated.values() or not self._rows(each):
                continue
            if each not in self._repeated:
                with self._graph.inserting_after(each):
                    self._repeated[each] = self._widen(each)
            node.replace_input_with(each, self._repeated[each])

    def multiply(self, site: fx.Node, times: int) -> None:
        """Give a dropout, and all that follows it, so many times as many rows."""
        (before,), rows = site.all_input_nodes, self._rows(site)
        if before in self.behind and rows is not None:
            dim, each = rows
            with self._graph.inserting_after(before):
                more = self._repeat(before, dim, each * self.count, times)
            site.replace_input_with(before, more)
            self.behind.add(more)
        self.count *= times

    def fix(self, site: fx.Node) -> None:
        """Stored masks in the place of a dropout."""
        rows = self._rows(site)
        if rows is None or site.target not in MASKED:
            raise UnsupportedOp(
                f"{describe(site)}: particles need an ordinary dropout of a row for each input."
            )
        dim, times = rows
        name = f"masks_{site.name}"
        self._module.register_buffer(name, self._masks(site, dim, times))
        certain = not self.behind.intersection(site.all_input_nodes)
        if certain and times > 1:
            self.repeat_inputs(site)
        with self._graph.inserting_before(site):
            if certain and times == 1:  # the masks themselves repeat it
                apart = self._call(aten.unsqueeze.default, site.args[0], dim + 1)
            else:
                apart = self._call(aten.unflatten.int, site.args[0], dim, [-1, self.count * times])
            masked = self._call(aten.mul.Tensor, apart, self._graph.get_attr(name))
            joined = self._call(aten.flatten.using_ints, masked, dim, dim + 1)
        joined.meta = dict(site.meta)
        site.replace_all_uses_with(joined)
        self._graph.erase_node(site)
        self.behind.add(joined)

    def _masks(self, site: fx.Node, dim: int, times: int) -> Tensor:
        """Of the particles of one input: 1 along ``dim``, and behind it a size for particles."""
        rate, value = rate_of(site), site.meta["val"]
        if self.count * (1 - rate) < 1 - 1e-6:
            raise UnsupportedOp(
                f"{describe(site)}: {self.count} particles are too few to drop {rate:g}; take "
                f"{math.ceil(1 / (1 - rate) - 1e-6)} or more."
            )
        each, own = [times, *value.shape[:dim], *value.shape[dim + 1 :]], MASKED[site.target]
        if own is not None:
            each = [size if index < own else 1 for index, size in enumerate(each)]
        if not all(isinstance(size, int) for size in each):
            raise UnsupportedOp(f"{describe(site)}: particles need sizes that are fixed.")
        masks = balanced_masks(rate, self.count, each, self._generator)
        return masks.flatten(0, 1).movedim(0, dim).unsqueeze(dim).to(value.dtype).contiguous()

    def _rows(self, node: fx.Node) -> tuple[int, int] | None:
        """The dimension that follows the batch, and how many times the batch it is."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return 0, self._times(value) or 0
        if not isinstance(value, Tensor):
            return None
        found = [(dim, self._times(size)) for dim, size in enumerate(value.shape)]
        rows = [(dim, times) for dim, times in found if times is not None]
        if len(rows) > 1:
            raise UnsupportedOp(f"{describe(node)}: particles need one dimension for the inputs.")
        return rows[0] if rows else None

    def _times(self, size: Any) -> int | None:
        if not isinstance(size, torch.SymInt):
            return None
        times = size.node.expr / self._batch
        if not times.is_Integer:
            raise UnsupportedOp(f"{size}: particles need sizes in proportion to the batch.")
        return int(times)

    def _widen(self, node: fx.Node) -> fx.Node:
        if isinstance(node.meta["val"], torch.SymInt):
            return self._graph.call_function(operator.mul, (node, self.count))
        rows = self._rows(node)
        assert rows is not None
        return self._repeat(node, *rows, self.count)

    def _repeat(self, node: fx.Node, dim: int, times: int, count: int) -> fx.Node:
        """Each run of so many rows along the dimension, one after the other so often."""
        rank = node.meta["val"].dim()
        apart = self._call(aten.unflatten.int, node, dim, [-1, times])
        more = self._after(apart, aten.unsqueeze.default, dim + 1)
        sizes = [*[-1] * (dim + 1), count, *[-1] * (rank - dim)]
        wide = self._after(more, aten.expand.default, sizes)
        return self._after(wide, aten.flatten.using_ints, dim, dim + 2)

    def _after(self, node: fx.Node, target: Any, *args: Any) -> fx.Node:
        with self._graph.inserting_after(node):
            return self._call(target, node, *args)

    def _call(self, target: Any, *args: Any) -> fx.Node:
        return self._graph.call_function(target, args)
