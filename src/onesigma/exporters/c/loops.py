"""Fused loops as C: loads, one line per op, stores; what does not change is moved outwards.

Also the file that all renderers write into, and two structured ops of a few lines each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from onesigma.exporters.c.elementwise import REDUCTIONS, expression, literal
from onesigma.exporters.c.nodes import Array, Node, Shape, Storage, Value
from onesigma.exporters.c.plan import Loop

_INDENT = "    "


@dataclass
class File:
    """The C file as it grows: constant tables, functions, and where each storage lies."""

    places: Mapping[Storage, str]
    int8: bool = False
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

    def function(self, name: str, text: str) -> str:
        """Make sure that a static function is in the file; returns its name."""
        self.functions.setdefault(name, text)
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


def fill(template: str, **parts: object) -> str:
    """A template with its @names@ replaced (C is full of braces).

    A name alone on its line takes a list of lines, which are indented as it is.
    """
    lines = []
    for line in template.split("\n"):
        mark = re.fullmatch(r"( *)@(\w+)@", line)
        part = parts[mark[2]] if mark else None
        if mark and isinstance(part, list):
            lines += [f"{mark[1]}{each}".rstrip() for each in part]
        else:
            lines.append(re.sub(r"@(\w+)@", lambda match: str(parts[match[1]]), line))
    return "\n".join(lines)


def render_take(node: Node, file: File) -> list[str]:
    """y[a, i, b] = x[a, places[i], b]."""
    (x,), (y,) = node.reads, node.writes
    axis, places = node.attributes["axis"], node.attributes["places"]
    inner, table = prod(x.shape[axis + 1 :]), file.table(places, "uint16")
    return [
        f"const float *x = {file.pointer(x)};",
        f"float *y = {file.pointer(y)};",
        f"for (int a = 0; a < {prod(x.shape[:axis])}; ++a, x += {x.shape[axis] * inner})",
        f"    for (int i = 0; i < {len(places)}; ++i)",
        f"        for (int b = 0; b < {inner}; ++b)",
        f"            *y++ = x[{table}[i] * {inner} + b];",
    ]


def render_argmax(node: Node, file: File) -> list[str]:
    """The place of the largest along the last dimension, the first of equals."""
    (x,), (y,) = node.reads, node.writes
    n = x.shape[-1]
    return [
        f"const float *x = {file.pointer(x)};",
        f"float *y = {file.pointer(y)};",
        f"for (int a = 0; a < {y.size}; ++a, x += {n}) {{",
        "    int best = 0;",
        f"    for (int i = 1; i < {n}; ++i)",
        "        best = x[i] > x[best] ? i : best;",
        "    y[a] = (float)best;",
        "}",
    ]


def render_loop(loop: Loop, file: File) -> list[str]:
    """The lines of the loop, and of what must be set before it."""
    flat = (0,) * len(loop.shape)
    elementwise = [node for node in loop.nodes if node.kind not in REDUCTIONS]
    stored = [v for node in elementwise for v in node.writes if v.storage not in loop.local]
    steps = {value: value.steps or flat for value in (*loop.reads, *stored)}
    sums = {node: _sum_steps(node) for node in loop.nodes if node.kind in REDUCTIONS}
    every = [*steps.values(), *sums.values()]
    # Dimensions that every value runs through as if they were one are made one.
    pairs = range(len(loop.shape) - 1)
    joined = [i for i in pairs if all(s[i] == s[i + 1] * loop.shape[i + 1] for s in every)]
    sizes = list(loop.shape)
    for i in joined:
        sizes[i + 1] *= sizes[i]

    def merge(step: Shape | list[int]) -> Shape:
        return tuple(s for i, s in enumerate(step) if i not in joined)

    accumulators = [_Sum(node, merge(step), f"s{i}") for i, (node, step) in enumerate(sums.items())]
    merged = {value: merge(step) for value, step in steps.items()}
    return _Writer(loop, file, merge(sizes), merged, accumulators).lines()


def _sum_steps(node: Node) -> Shape:
    """The steps of a reduction's result along the dimensions of the loop."""
    dims = zip(node.reads[0].shape, node.writes[0].strides, strict=True)
    axes = node.attributes["axes"]
    return tuple(0 if i in axes else step for i, (n, step) in enumerate(dims) if n > 1)


def _depth(steps: Shape) -> int:
    """Within how many loops a value changes."""
    return max((i + 1 for i, step in enumerate(steps) if step), default=0)


@dataclass
class _Sum:
    """A reduction: its node, the steps of its result, and the C name of its accumulator."""

    node: Node
    steps: Shape
    name: str

    @property
    def depth(self) -> int:
        """Within how many loops its accumulator lives: those inside of them are summed over."""
        return _depth(self.steps)

    @property
    def again(self) -> bool:
        """Whether it comes back to an element after having left it."""
        return 0 in self.steps[: self.depth]


@dataclass
class _Writer:
    loop: Loop
    file: File
    shape: Shape
    steps: dict[Value, Shape]
    sums: list[_Sum]
    _loaded: dict[Value, tuple[str, int]] = field(default_factory=dict)  # C name, depth
    _computed: dict[Storage, tuple[str, int]] = field(default_factory=dict)
    _rows: list[list[str]] = field(default_factory=list)  # lines by depth
    _stores: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        self._rows = [[] for _ in range(len(self.shape) + 1)]
        for node in self.loop.nodes:
            self._add(node)
        self._rows[-1] += self._stores  # last: one may overwrite what another line reads
        starts = []
        for each in self.sums:
            if each.again:  # set all of a result that the loop comes back to
                (result,), (start, _) = each.node.writes, REDUCTIONS[each.node.kind]
                starts.append(f"for (int i = 0; i < {result.size}; ++i)")
                starts.append(f"{_INDENT}{self.file.base(result.storage)}[i] = {start};")
        return starts + self._nest(0)

    def _add(self, node: Node) -> None:
        operands = [self._operand(value) for value in node.reads]
        if node.kind in REDUCTIONS:
            name = next(each.name for each in self.sums if each.node is node)
            update = REDUCTIONS[node.kind][1].format(name, operands[0][0])
            self._rows[-1].append(f"{name} = {update};")
            return
        (value,) = node.writes
        depth = max((depth for _, depth in operands), default=0)
        text = expression(node.kind, [name for name, _ in operands], node.attributes)
        name = f"t{sum(map(len, self._rows))}"
        self._rows[depth].append(f"const {'int' if value.truth else 'float'} {name} = {text};")
        self._computed[value.storage] = (name, depth)
        if value.storage not in self.loop.local:
            text = f"(float){name}" if value.truth else name
            self._stores.append(f"{self._element(value, self.steps[value])} = {text};")

    def _operand(self, value: Value) -> tuple[str, int]:
        """A C name for an element, and how deep it changes."""
        if value.number is not None:
            number = value.number
            return (str(int(number != 0)) if value.truth else literal(number)), 0
        if value.storage in self._computed:
            return self._computed[value.storage]
        if value not in self._loaded:
            name, depth = f"x{len(self._loaded)}", _depth(self.steps[value])
            element = self._element(value, self.steps[value])
            load = f"int {name} = {element} != 0.0f" if value.truth else f"float {name} = {element}"
            self._rows[depth].append(f"const {load};")
            self._loaded[value] = (name, depth)
        return self._loaded[value]

    def _element(self, value: Value, steps: Shape) -> str:
        terms = [f"i{k}" if s == 1 else f"i{k} * {s}" for k, s in enumerate(steps) if s]
        if value.offset or not terms:
            terms.append(str(value.offset))
        return f"{self.file.base(value.storage)}[{' + '.join(terms)}]"

    def _nest(self, depth: int) -> list[str]:
        """The loops from this depth on."""
        before, after = [], []
        innermost = depth == len(self.shape)  # a sum that lives here is over outer dimensions alone
        for each in self.sums:
            if each.depth == depth:
                target = self._element(each.node.writes[0], each.steps)
                start, update = REDUCTIONS[each.node.kind]
                before.append(f"float {each.name} = {target if innermost else start};")
                joins = each.again and not innermost
                result = update.format(target, each.name) if joins else each.name
                after.append(f"{target} = {result};")
        body = [*before, *self._rows[depth]]
        if not innermost:
            head = f"for (int i{depth} = 0; i{depth} < {self.shape[depth]}; ++i{depth}) {{"
            body += [head, *(_INDENT + line for line in self._nest(depth + 1)), "}"]
        return body + after
