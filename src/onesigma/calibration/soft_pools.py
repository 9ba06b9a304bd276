"""Soft pools: max pools of a student that know of the noise in what they are given.

    out = max(max pool(x), mean pool(x) + A u + b)

The mean of a maximum is above the maximum of the means, the more so the closer the values of a
window are to each other: in slow or saturated signals much more than in others. No weights of the
layers around it can say that. For two values whose difference varies by s it is, with a two-point
distribution in the place of the normal one, max(max, mean + s / 2). This s comes from what earlier
dropouts drop: u are averages of that around each window. A is fitted to a few passes of Monte
Carlo, and then learns with all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma.baselines.mc_dropout import seeded, with_dropout_on
from onesigma.engine import Engine, watching
from onesigma.graph.capture import is_site, rate_of
from onesigma.graph.split import nodes_behind

aten = torch.ops.aten
_AROUND = {1: 3, 2: 1}  # positions on each side of a window that u is averaged over, by dimensions
_MEANS: dict[int, Any] = {1: aten.avg_pool1d.default, 2: aten.avg_pool2d.default}
_MIXES: dict[int, Any] = {1: aten.conv1d.default, 2: aten.conv2d.default}
_POOLS = {aten.max_pool1d.default: 1, aten.max_pool2d.default: 2}
_PLAIN_ARGUMENTS = 4  # what is pooled, kernel, stride, padding: no dilation, no ceiling
_ROWS, _PASSES, _AT_ONCE = 300, 12, 16  # to fit A on
_MOST, _RIDGE = 12_000, 1e-2  # windows to fit A on


def soften_pools(
    layers: fx.GraphModule, source: fx.GraphModule, inputs: Sequence[Tensor], seed: int
) -> set[fx.Node]:
    """Rewrite the max pools of ``layers`` that noise reaches, in place; returns the new nodes.

    ``layers`` are those of ``source`` without its dropout, by the same names.
    """
    read = _read_by_pools(source)
    if not read:
        return set()
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(inputs[0]), generator=generator)[:_ROWS]
    seen = _Seen(source, read)
    with seeded(seed, 0, inputs[0].device):
        for part in torch.split(rows, _AT_ONCE):
            seen.look([x[part] for x in inputs])
    nodes = {node.name: node for node in layers.graph.nodes}
    made = set[fx.Node]()
    for pool, dropped in read.items():
        weight = _fit(*seen.pairs(pool, generator))
        made |= _soften(layers, nodes[pool.name], [nodes[h.name] for h in dropped], weight)
    layers.recompile()
    return made


def has_noisy_pools(source: fx.GraphModule) -> bool:
    """Whether there is a max pool that ``soften_pools`` would rewrite."""
    return bool(_read_by_pools(source))


def _read_by_pools(source: fx.GraphModule) -> dict[fx.Node, list[fx.Node]]:
    """For each max pool, what earlier dropouts drop that can be brought to its windows."""
    sites = [node for node in source.graph.nodes if is_site(node) and rate_of(node)]
    behind = {site: nodes_behind(source.graph, [site]) for site in sites}
    found = {}
    for pool in source.graph.nodes:
        dims = _POOLS.get(pool.target)
        if dims is None or len(pool.args) > _PLAIN_ARGUMENTS:
            continue
        dropped = [site.all_input_nodes[0] for site in sites if pool in behind[site]]
        dropped = [h for h in dict.fromkeys(dropped) if _fits(h, pool, dims)]
        if dropped:
            found[pool] = dropped
    return found


def _fits(h: fx.Node, pool: fx.Node, dims: int) -> bool:
    sizes, windows = h.meta["val"].shape[2:], pool.meta["val"].shape[2:]
    return len(sizes) == dims == len(windows) and all(
        isinstance(size, int) and size // count >= 1 and size // (size // count) == count
        for size, count in zip(sizes, windows, strict=True)
    )


def _window(pool: fx.Node) -> tuple[Any, ...]:
    """That of a max pool, for a mean pool that counts no padding."""
    given: list[Any] = [*pool.args[1:]]
    kernel, stride, padding = given + [(), 0][len(given) - 1 :]
    return kernel, stride or kernel, padding, False, False


def _around(h: Any, windows: Sequence[int]) -> tuple[Any, ...]:
    """Kernel, stride and padding of the mean pool of h that has a value for each window."""
    stride = [size // count for size, count in zip(h.shape[2:], windows, strict=True)]
    reach = _AROUND[len(stride)]
    return [n + 2 * reach for n in stride], stride, [reach] * len(stride), False, False


class _Seen:
    """What Monte Carlo shows at each pool: u, and how much the values of a window vary."""

    def __init__(self, source: fx.GraphModule, read: dict[fx.Node, list[fx.Node]]) -> None:
        self._read = read
        given = {pool.all_input_nodes[0] for pool in read}
        self._source, self._noisy = source, with_dropout_on(source)
        self._dropped = {h.name for each in read.values() for h in each}
        self._given = {node.name for node in given}
        self._pairs: dict[fx.Node, list[tuple[Tensor, Tensor]]] = {pool: [] for pool in read}

    @torch.no_grad()
    def look(self, inputs: Sequence[Tensor]) -> None:
        rows = len(inputs[0])
        plain = _values(self._source, self._dropped, inputs)
        repeated = [x.repeat_interleave(_PASSES, 0) for x in inputs]
        noisy = _values(self._noisy, self._given, repeated)
        for pool, pairs in self._pairs.items():
            passes = noisy[pool.all_input_nodes[0].name]
            passes = passes.reshape(rows, _PASSES, *passes.shape[1:])
            apart = (passes - passes.mean(1, keepdim=True)).flatten(0, 1)
            dims = apart.dim() - 2
            mean, window = _MEANS[dims], _window(pool)
            var = mean(apart.square(), *window) - mean(apart, *window).square()
            width = var.reshape(rows, _PASSES, *var.shape[1:]).sum(1) / (_PASSES - 1)
            near = [
                _MEANS[dims](h, *_around(h, width.shape[2:]))
                for h in (plain[node.name] for node in self._read[pool])
            ]
            pairs.append((torch.cat(near, 1), width.clamp(min=0).sqrt()))

    def pairs(self, pool: fx.Node, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Of some windows: (n, channels of u), (n, channels)."""
        parts = zip(*self._pairs[pool], strict=True)
        u, width = (torch.cat(part).movedim(1, -1).flatten(0, -2) for part in parts)
        some = torch.randperm(len(u), generator=generator)[:_MOST]
        return u[some], width[some]


def _values(module: fx.GraphModule, names: set[str], inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """What some nodes give for these inputs."""
    kept: dict[str, Tensor] = {}

    def keep(node: fx.Node, value: Any) -> None:
        if node.name in names:
            kept[node.name] = value

    Engine(module, {}, observer=watching(keep)).run(*inputs)
    return kept


def _fit(u: Tensor, width: Tensor) -> Tensor:
    """A (channels, channels of u): least squares of the relative error, with a ridge."""
    weight = 1 / (width + 0.1 * width.mean(0) + 1e-12)
    found = []
    for channel in range(width.shape[1]):
        x = u * weight[:, channel, None]
        size = x.square().mean(0).sqrt() + 1e-9
        x = x / size
        both = x.T @ x / len(x) + _RIDGE * torch.eye(x.shape[1]).to(x)
        wanted = x.T @ (width * weight)[:, channel] / len(x)
        found.append(torch.linalg.solve(both, wanted) / size)
    return torch.stack(found)


def _soften(
    layers: fx.GraphModule, pool: fx.Node, dropped: list[fx.Node], weight: Tensor
) -> set[fx.Node]:
    """max pool → max(max pool, mean pool + A u + b), A and b as weights of the layers."""
    graph, value = layers.graph, pool.meta["val"]
    dims = value.dim() - 2
    made = set[fx.Node]()

    def call(target: Any, shape: Any, *args: Any) -> fx.Node:
        node = graph.call_function(target, args)
        node.meta["val"] = shape
        made.add(node)
        return node

    def weights(name: str, content: Tensor) -> fx.Node:
        setattr(layers, f"{pool.name}_{name}", nn.Parameter(content, requires_grad=False))
        return graph.get_attr(f"{pool.name}_{name}")

    with graph.inserting_before(pool.next):
        near = []
        for h in dropped:
            window = _around(h.meta["val"], value.shape[2:])
            near.append(call(_MEANS[dims], _MEANS[dims](h.meta["val"], *window), h, *window))
        u = near[0]
        if len(near) > 1:
            u = call(aten.cat.default, torch.cat([n.meta["val"] for n in near], 1), near, 1)
        own = weight.reshape(*weight.shape, *[1] * dims).contiguous()
        bias = weights("bias", torch.zeros_like(weight[:, 0]))
        width = call(_MIXES[dims], value, u, weights("width", own), bias)
        middle = call(_MEANS[dims], value, pool.args[0], *_window(pool))
        above = call(aten.add.Tensor, value, middle, width)
        soft = call(aten.maximum.default, value, pool, above)
    pool.replace_all_uses_with(soft, delete_user_cb=lambda user: user is not soft)
    return made
