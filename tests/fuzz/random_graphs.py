"""Random graphs in which values share noise: broadcasts, copies, one value used twice.

They are built of ATen ops one by one, on a real input, so that a graph takes milliseconds and not
the second that a capture takes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor, fx, nn

aten = torch.ops.aten
MOST = 48  # elements of a value, so that 20,000 passes of a graph are quick
Value = fx.Node


class Builder:
    """A graph under construction: each op is run as it is added, on one row."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.draw = torch.Generator().manual_seed(seed)
        self.graph = fx.Graph()
        self.root = nn.Module()
        self.x = self.normal(1, 4, 3)
        start = self.graph.placeholder("x")
        start.meta["val"] = self.x
        self.values = [start]

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.draw)

    def weight(self, *shape: int, scale: float = 1.0) -> Value:
        name = f"w{len(list(self.root.parameters()))}"
        parameter = nn.Parameter(scale * self.normal(*shape), requires_grad=False)
        self.root.register_parameter(name, parameter)
        node = self.graph.get_attr(name)
        node.meta["val"] = parameter
        return node

    def call(self, op: Callable[..., Any], *args: Any) -> Value:
        node = self.graph.call_function(op, args)
        node.meta["val"] = op(*fx.node.map_arg(args, lambda n: n.meta["val"]))
        return node

    def module(self) -> fx.GraphModule:
        """Ends in one or all of the values, with a last layer or without."""
        chosen = self.values[-1:] if self.random.random() < 0.7 else self.values[-2:]
        flat = [self.call(aten.flatten.using_ints, value, 1) for value in chosen]
        last = flat[0] if len(flat) == 1 else self.call(aten.cat.default, flat, 1)
        if self.random.random() < 0.6:
            last = self.call(aten.linear.default, last, self.weight(3, size(last)[1], scale=0.4))
        self.graph.output((last,))
        return fx.GraphModule(self.root, self.graph)


def size(value: Value) -> torch.Size:
    return value.meta["val"].shape


def broadcast(a: Value, b: Value) -> bool:
    return all(n == m or 1 in (n, m) for n, m in zip(size(a), size(b), strict=True))


Op = Callable[[Builder, Value], Value | None]


def dropout(b: Builder, h: Value) -> Value:
    op = b.random.choice([aten.dropout.default] * 4 + [aten.feature_dropout.default])
    return b.call(op, h, b.random.choice([0.2, 0.3, 0.5]), False)


def linear(b: Builder, h: Value) -> Value:
    n = size(h)[2]
    out = b.random.choice([1, 2, n])
    return b.call(aten.linear.default, h, b.weight(out, n, scale=n**-0.5), b.weight(out))


def conv(b: Builder, h: Value) -> Value:
    n, kernel = size(h)[1], b.random.choice([1, 3])
    out = b.random.choice([1, 2, n])
    weight = b.weight(out, n, kernel, scale=(n * kernel) ** -0.5)
    return b.call(aten.conv1d.default, h, weight, None, [1], [kernel // 2])


def depthwise(b: Builder, h: Value) -> Value:
    n = size(h)[1]
    return b.call(aten.conv1d.default, h, b.weight(n, 1, 3, scale=0.6), None, [1], [1], [1], n)


def scale(b: Builder, h: Value) -> Value:
    shape = b.random.choice([(1,), (size(h)[2],), (size(h)[1], 1), tuple(size(h)[1:])])
    op = b.random.choice([aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor])
    return b.call(op, h, b.weight(*shape))


def widen(b: Builder, h: Value) -> Value:
    """A constant that is larger than the value: the value is broadcast."""
    shape = (1, *(3 if n == 1 else n for n in size(h)[1:]))
    return b.call(b.random.choice([aten.mul.Tensor, aten.add.Tensor]), h, b.weight(*shape))


def bend(b: Builder, h: Value) -> Value:
    names = ["relu", "tanh", "sigmoid", "abs", "leaky_relu", "gelu", "square"]
    return b.call(getattr(aten, b.random.choice(names)).default, h)


def combine(b: Builder, h: Value) -> Value:
    names = ["add", "sub", "mul", "maximum", "minimum", "add"]
    name = b.random.choice(names)
    op = getattr(getattr(aten, name), "default" if name.endswith("imum") else "Tensor")
    other = b.random.choice([v for v in b.values if broadcast(v, h)])
    return b.call(op, *b.random.sample([h, other], 2))


def choose(b: Builder, h: Value) -> Value:
    other = b.random.choice([v for v in b.values if broadcast(v, h)])
    mask = b.call(aten.gt.Scalar, b.weight(*size(h)[1:]), 0.0)
    return b.call(aten.where.self, mask, h, other)


def join(b: Builder, h: Value) -> Value:
    dim = b.random.choice([1, 2])
    rest = 3 - dim
    other = b.random.choice([v for v in b.values if size(v)[rest] == size(h)[rest]])
    return b.call(aten.cat.default, [h, other], dim)


def pad(b: Builder, h: Value) -> Value:
    mode = b.random.choice(["constant", "reflect", "replicate", "circular"])
    return b.call(aten.pad.default, h, [1, 0] if size(h)[2] > 1 else [0, 0], mode)


def move(b: Builder, h: Value) -> Value:
    dim = b.random.choice([1, 2])
    n = size(h)[dim]
    return b.random.choice(
        [
            lambda: b.call(aten.transpose.int, h, 1, 2),
            lambda: b.call(aten.flip.default, h, [dim]),
            lambda: b.call(aten.roll.default, h, [1], [dim]),
            lambda: b.call(aten.slice.Tensor, h, dim, 0, max(1, n - 1)),
            lambda: b.call(aten.unsqueeze.default, b.call(aten.select.int, h, dim, 0), dim),
            lambda: b.call(aten.reshape.default, h, [-1, size(h)[2], size(h)[1]]),
        ]
    )()


def pick(b: Builder, h: Value) -> Value:
    """A gather, which may copy."""
    dim = b.random.choice([1, 2])
    picked = [b.random.randrange(size(h)[dim]) for _ in range(b.random.choice([2, 3]))]
    name = f"i{len(b.values)}"
    b.root.register_buffer(name, torch.tensor(picked))
    index = b.graph.get_attr(name)
    index.meta["val"] = torch.tensor(picked)
    return b.call(aten.index_select.default, h, dim, index)


def copies(b: Builder, h: Value) -> Value:
    dim = b.random.choice([1, 2])
    times = [1, 1, 1]
    times[dim] = 2
    if size(h)[dim] == 1 and b.random.random() < 0.5:
        return b.call(aten.expand.default, h, [2 if d == dim else -1 for d in range(3)])
    return b.call(aten.repeat.default, h, times)


def reduce(b: Builder, h: Value) -> Value:
    op = b.random.choice([aten.mean.dim, aten.sum.dim_IntList, aten.amax.default])
    return b.call(op, h, [b.random.choice([1, 2])], True)


def pool(b: Builder, h: Value) -> Value | None:
    if size(h)[2] < 2:
        return None
    op = b.random.choice([aten.avg_pool1d.default, aten.max_pool1d.default])
    return b.call(op, h, [2], [b.random.choice([1, 2])])


def products(b: Builder, h: Value) -> Value:
    other = b.random.choice([v for v in b.values if size(v)[2] == size(h)[2]])
    return b.call(aten.bmm.default, h, b.call(aten.transpose.int, other, 1, 2))


OPS: tuple[Op, ...] = (
    *(dropout, linear, conv, depthwise, scale, widen, bend, combine, combine, combine),
    *(choose, join, join, pad, move, move, pick, copies, reduce, pool, products),
)


def random_graph(seed: int) -> tuple[fx.GraphModule, Tensor]:
    """A graph with dropout, and one row of input."""
    b = Builder(seed)
    if b.random.random() < 0.5:
        b.values.append(scale(b, b.values[-1]))
    b.values.append(dropout(b, b.values[-1]))
    for _ in range(b.random.randint(1, 5)):
        made = b.random.choice(OPS)(b, b.random.choice(b.values[-3:]))
        if made is not None and size(made).numel() <= MOST:
            b.values.append(made)
    return b.module(), b.x
