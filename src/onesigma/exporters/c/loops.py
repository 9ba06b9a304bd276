"""A fused loop as C: loads, one line per op, stores; what does not change is moved outwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onesigma.exporters.c.elementwise import REDUCTIONS, expression, literal
from onesigma.exporters.c.fuse import Loop
from onesigma.exporters.c.values import Node, Shape, Storage, Value

INDENT = "    "


class Memory(Protocol):
    """Knows where storages lie."""

    def base(self, storage: Storage) -> str:
        """The C name of the storage's first float."""


def render_loop(loop: Loop, memory: Memory) -> list[str]:
    """The lines of the loop, and of what must be set before it."""
    steps = {value: _steps(value, loop) for value in (*loop.reads, *_written(loop))}
    sums = [_Sum(node, _sum_steps(node, loop)) for node in loop.nodes if node.kind in REDUCTIONS]
    shape, steps, sums = _merged(loop.shape, steps, sums)
    return _Writer(loop, memory, shape, steps, sums).lines()


def _written(loop: Loop) -> list[Value]:
    elementwise = [node for node in loop.nodes if node.kind not in REDUCTIONS]
    values = [value for node in elementwise for value in node.writes]
    return [value for value in values if value.storage not in loop.local]


@dataclass
class _Sum:
    """A reduction: its node, and the steps of its result along the loop's dimensions."""

    node: Node
    steps: Shape

    @property
    def result(self) -> Value:
        return self.node.writes[0]

    @property
    def depth(self) -> int:
        """Within how many loops its accumulator lives: those inside of them are summed over."""
        return max((i + 1 for i, step in enumerate(self.steps) if step), default=0)

    @property
    def again(self) -> bool:
        """Whether it comes back to an element after having left it."""
        return any(step == 0 for step in self.steps[: self.depth])


def _steps(value: Value, loop: Loop) -> Shape:
    pairs = zip(value.shape, value.strides, strict=True)
    steps = tuple(step for n, step in pairs if n > 1)
    return steps or (0,) * len(loop.shape)


def _sum_steps(node: Node, loop: Loop) -> Shape:
    result, axes = node.writes[0], node.attributes["axes"]
    dims = zip(node.reads[0].shape, result.strides, strict=True)
    return tuple(0 if i in axes else step for i, (n, step) in enumerate(dims) if n > 1)


def _merged(
    shape: Shape, steps: dict[Value, Shape], sums: Sequence[_Sum]
) -> tuple[Shape, dict[Value, Shape], list[_Sum]]:
    """Dimensions that every value runs through as if they were one, made one."""
    every = [*steps.values(), *(each.steps for each in sums)]
    joined = [
        i
        for i in range(len(shape) - 1)
        if all(step[i] == step[i + 1] * shape[i + 1] for step in every)
    ]

    def kept(step: Shape) -> Shape:
        return tuple(s for i, s in enumerate(step) if i not in joined)

    sizes = list(shape)
    for i in joined:
        sizes[i + 1] *= sizes[i]
    merged = {value: kept(step) for value, step in steps.items()}
    return kept(tuple(sizes)), merged, [_Sum(each.node, kept(each.steps)) for each in sums]


@dataclass
class _Writer:
    loop: Loop
    memory: Memory
    shape: Shape
    steps: dict[Value, Shape]
    sums: list[_Sum]
    _names: dict[Value, tuple[str, int]] = field(default_factory=dict)  # C name, depth
    _stored: dict[Storage, tuple[str, int]] = field(default_factory=dict)
    _rows: list[list[str]] = field(default_factory=list)  # lines by depth
    _stores: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        self._rows = [[] for _ in range(len(self.shape) + 1)]
        for node in self.loop.nodes:
            self._add(node)
        self._rows[-1] += self._stores  # last: one may overwrite what another line reads
        inits = [line for each in self.sums if each.again for line in self._start(each)]
        return inits + self._nest(0)

    def _add(self, node: Node) -> None:
        operands = [self._operand(value) for value in node.reads]
        if node.kind in REDUCTIONS:
            each = next(s for s in self.sums if s.node is node)
            _, update = REDUCTIONS[node.kind]
            name = self._accumulator(each)
            self._rows[-1].append(f"{name} = {update.format(name, operands[0][0])};")
            return
        (value,) = node.writes
        depth = max((depth for _, depth in operands), default=0)
        text = expression(node.kind, [name for name, _ in operands], node.attributes)
        name = f"t{sum(map(len, self._rows))}"
        kind = "int" if value.truth else "float"
        self._rows[depth].append(f"const {kind} {name} = {text};")
        self._stored[value.storage] = (name, depth)
        if value.storage not in self.loop.local:
            text = f"(float){name}" if value.truth else name
            self._stores.append(f"{self._element(value, self.steps[value])} = {text};")

    def _operand(self, value: Value) -> tuple[str, int]:
        """A C name for an element, and how deep it changes."""
        if value.number is not None:
            number = value.number
            return (str(int(number != 0)) if value.truth else literal(number)), 0
        if value.storage in self._stored:
            return self._stored[value.storage]
        if value not in self._names:
            depth = max((i + 1 for i, step in enumerate(self.steps[value]) if step), default=0)
            name = f"x{len(self._names)}"
            element = self._element(value, self.steps[value])
            load = f"const int {name} = {element} != 0.0f;" if value.truth else None
            self._rows[depth].append(load or f"const float {name} = {element};")
            self._names[value] = (name, depth)
        return self._names[value]

    def _element(self, value: Value, steps: Shape) -> str:
        terms = [f"i{k}" if s == 1 else f"i{k} * {s}" for k, s in enumerate(steps) if s]
        if value.offset or not terms:
            terms.append(str(value.offset))
        return f"{self.memory.base(value.storage)}[{' + '.join(terms)}]"

    def _accumulator(self, each: _Sum) -> str:
        return f"s{self.sums.index(each)}"

    def _start(self, each: _Sum) -> list[str]:
        """Set all of a result that the loop comes back to."""
        start, _ = REDUCTIONS[each.node.kind]
        base = self.memory.base(each.result.storage)
        return [f"for (int i = 0; i < {each.result.size}; ++i)", f"{INDENT}{base}[i] = {start};"]

    def _nest(self, depth: int) -> list[str]:
        """The loops from this depth on."""
        before, after = [], []
        for each in self.sums:
            if each.depth == depth:
                name, target = self._accumulator(each), self._element(each.result, each.steps)
                start, update = REDUCTIONS[each.node.kind]
                innermost = depth == len(self.shape)  # the sum is over outer dimensions alone
                before.append(f"float {name} = {target if innermost else start};")
                joins = each.again and not innermost
                after.append(f"{target} = {update.format(target, name) if joins else name};")
        body = [*before, *self._rows[depth]]
        if depth < len(self.shape):
            head = f"for (int i{depth} = 0; i{depth} < {self.shape[depth]}; ++i{depth}) {{"
            body += [head, *(INDENT + line for line in self._nest(depth + 1)), "}"]
        return body + after
