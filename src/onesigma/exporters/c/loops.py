"""Fused loops as C: loads, one line per op, stores; what does not change is moved outwards.

Also the file that all renderers write into, and two structured ops of a few lines each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from onesigma.exporters.c.elementwise import REDUCTIONS, expression, literal
from onesigma.exporters.c.nodes import Array, Node, Shape, Storage, Value
from onesigma.exporters.c.plan import Loop
from onesigma.exporters.c.text import fill_piece, piece_lines


@dataclass
class File:
    """The C file as it grows: constant tables, functions, and where each storage lies."""

    places: Mapping[Storage, str]
    functions: dict[str, str] = field(default_factory=dict)
    tables: dict[tuple[str, bytes], tuple[str, Array]] = field(default_factory=dict)
    scratch: str = "arena"  # of the node that is being rendered

    def base(self, storage: Storage) -> str:
        """The C name of the storage's first float."""
        return self.places[storage] if storage.data is None else self.table(storage.data)

    def pointer(self, value: Value) -> str:
        base = self.base(value.storage)
        return f"{base} + {value.offset}" if value.offset else base

    def table(self, array: Array, kind: str = "float32") -> str:
        """The name of a constant table; equal ones are stored once."""
        flat = np.ravel(array).astype(kind)
        name = f"k{len(self.tables)}"
        return self.tables.setdefault((kind, flat.tobytes()), (name, flat))[0]

    def function(self, name: str, piece: str = "", **parts: object) -> str:
        """Make sure that a piece of C is in the file, under its own name or another; returns it."""
        if name not in self.functions:
            self.functions[name] = fill_piece(piece or name, name=name, **parts)
        return name

    def table_lines(self) -> list[str]:
        lines: list[str] = []
        for (kind, _), (name, flat) in self.tables.items():
            real = kind == "float32"
            numbers = [literal(float(x)) if real else str(int(x)) for x in flat]
            lines.append(
                f"static const {'float' if real else f'{kind}_t'} {name}[{len(flat)}] = {{"
            )
            lines += [f"    {', '.join(numbers[i : i + 8])}," for i in range(0, len(numbers), 8)]
            lines.append("};")
        return lines


def render_take(node: Node, file: File) -> list[str]:
    """y[a, i, b] = x[a, places[i], b]."""
    (x,), (y,) = node.reads, node.writes
    axis, places = node.attributes["axis"], node.attributes["places"]
    inner = prod(x.shape[axis + 1 :])
    sizes = {"outer": prod(x.shape[:axis]), "count": len(places), "inner": inner}
    sizes |= {"step": x.shape[axis] * inner}
    table, kind = file.table(places, "uint16"), x.storage.kind
    return piece_lines(
        "take", **sizes, kind=kind, table=table, x=file.pointer(x), y=file.pointer(y)
    )


def render_argmax(node: Node, file: File) -> list[str]:
    """The place of the largest along the last dimension, the first of equals."""
    (x,), (y,) = node.reads, node.writes
    return piece_lines("argmax", n=x.shape[-1], size=y.size, x=file.pointer(x), y=file.pointer(y))


def render_loop(loop: Loop, file: File) -> list[str]:
    """The lines of the loop, and of what must be set before it."""
    flat = (0,) * len(loop.shape)
    steps = {value: value.steps or flat for value in (*loop.reads, *loop.writes)}
    steps |= {n.writes[0]: _sum_steps(n) for n in loop.nodes if n.kind in REDUCTIONS}
    # Dimensions that every value runs through as if they were one are made one.
    sizes, every = list(loop.shape), steps.values()
    pairs = range(len(sizes) - 1)
    joined = [i for i in pairs if all(s[i] == s[i + 1] * sizes[i + 1] for s in every)]
    for i in joined:
        sizes[i + 1] *= sizes[i]

    def merge(step: Sequence[int]) -> Shape:
        return tuple(s for i, s in enumerate(step) if i not in joined)

    merged = {value: merge(step) for value, step in steps.items()}
    return _LoopWriter(loop, file, merge(sizes), merged).lines()


def _sum_steps(node: Node) -> Shape:
    """The steps of a reduction's result along the dimensions of the loop."""
    dims = zip(node.reads[0].shape, node.writes[0].strides, strict=True)
    axes = node.attributes["axes"]
    return tuple(0 if i in axes else step for i, (n, step) in enumerate(dims) if n > 1)


def _local(value: Value) -> str:
    """The type of a variable that holds an element."""
    if value.truth:
        return "int"
    return "float" if value.storage.kind == "float" else "int32_t"


def _start(node: Node) -> str:
    """What a reduction starts at; no code of an 8-bit value is below 0."""
    return REDUCTIONS[node.kind][0] if node.writes[0].storage.kind == "float" else "0"


class _LoopWriter:
    def __init__(self, loop: Loop, file: File, shape: Shape, steps: dict[Value, Shape]) -> None:
        self.loop, self.file, self.shape, self.steps = loop, file, shape, steps
        self.rows: list[list[str]] = [[] for _ in range(len(shape) + 1)]  # lines by depth
        self.stores: list[str] = []
        self.loaded: dict[Value, tuple[str, int]] = {}  # C name, depth
        self.computed: dict[Storage, tuple[str, int]] = {}
        sums = [node for node in loop.nodes if node.kind in REDUCTIONS]
        self.accumulators = {node: f"s{i}" for i, node in enumerate(sums)}

    def lines(self) -> list[str]:
        for node in self.loop.nodes:
            self.add(node)
        self.rows[-1] += self.stores  # last: one may overwrite what another line reads
        starts = []
        for node in self.accumulators:
            if self.returns(node):  # set all of the result
                (result,) = node.writes
                starts.append(f"for (int i = 0; i < {result.size}; ++i)")
                starts.append(f"    {self.file.base(result.storage)}[i] = {_start(node)};")
        return starts + self.nest(0)

    def depth(self, value: Value) -> int:
        """Within how many loops it changes. Those inside of them are what a sum is over."""
        return max((i + 1 for i, step in enumerate(self.steps[value]) if step), default=0)

    def returns(self, node: Node) -> bool:
        """Whether a sum comes back to an element after it has left it."""
        (result,) = node.writes
        return 0 in self.steps[result][: self.depth(result)]

    def add(self, node: Node) -> None:
        (value,), kind = node.writes, node.writes[0].storage.kind
        operands = [self.operand(x, node) for x in node.reads]
        if node.kind in REDUCTIONS:
            name = self.accumulators[node]
            update = REDUCTIONS[node.kind][1].format(name, operands[0][0])
            self.rows[-1].append(f"{name} = {update};")
            return
        depth = max((depth for _, depth in operands), default=0)
        numbers = {
            k: self.file.table(v, "uint8") if isinstance(v, np.ndarray) else v
            for k, v in node.attributes.items()
        }
        text = expression(node.kind, [name for name, _ in operands], numbers)
        name = f"t{sum(map(len, self.rows))}"
        self.rows[depth].append(f"const {_local(value)} {name} = {text};")
        self.computed[value.storage] = (name, depth)
        if value.storage not in self.loop.local:
            cast = "(float)" if value.truth else "" if kind == "float" else f"({kind})"
            self.stores.append(f"{self.element(value)} = {cast}{name};")

    def operand(self, value: Value, node: Node) -> tuple[str, int]:
        """A C name for an element, and how deep it changes."""
        if value.number is not None:
            if node.writes[0].storage.kind != "float":
                return str(int(value.number)), 0
            return (str(int(value.number != 0)) if value.truth else literal(value.number)), 0
        if value.storage in self.computed:
            return self.computed[value.storage]
        if value not in self.loaded:
            name, element = f"x{len(self.loaded)}", self.element(value)
            load = f"{element} != 0.0f" if value.truth else element
            self.loaded[value] = (name, self.depth(value))
            self.rows[self.depth(value)].append(f"const {_local(value)} {name} = {load};")
        return self.loaded[value]

    def element(self, value: Value) -> str:
        steps = enumerate(self.steps[value])
        terms = [f"i{k}" if step == 1 else f"i{k} * {step}" for k, step in steps if step]
        if value.offset or not terms:
            terms.append(str(value.offset))
        return f"{self.file.base(value.storage)}[{' + '.join(terms)}]"

    def nest(self, depth: int) -> list[str]:
        """The loops from this depth on."""
        before, after = [], []
        innermost = depth == len(self.shape)  # a sum that lives here is over outer dimensions alone
        for node, name in self.accumulators.items():
            if self.depth(node.writes[0]) == depth:
                target, update = self.element(node.writes[0]), REDUCTIONS[node.kind][1]
                joins = self.returns(node) and not innermost
                local, start = _local(node.writes[0]), target if innermost else _start(node)
                before.append(f"{local} {name} = {start};")
                after.append(f"{target} = {update.format(target, name) if joins else name};")
        body = [*before, *self.rows[depth]]
        if not innermost:
            head = f"for (int i{depth} = 0; i{depth} < {self.shape[depth]}; ++i{depth}) {{"
            body += [head, *(f"    {line}" for line in self.nest(depth + 1)), "}"]
        return body + after
