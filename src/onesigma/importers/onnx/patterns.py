"""Exporters write some layers as several ops; here they become one again.

    x · sigmoid(x)  →  Swish          MatMul, Add  →  Linear          … see ``_PATTERNS``

One op has one rule, exact where a product of values that share all their noise is not, and one name
to put a dropout after. A pattern is written as the ops are nested; a small letter stands for any
value, a capital one for a constant, and a number for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any

import numpy as np
from torch import Tensor

from onesigma.importers.onnx.graph import Array, Graph, Node

Values = Mapping[str, Tensor]
Bound = dict[str, str]

_COMMUTATIVE = {"Add", "Mul"}
_ALIASES = {"average": ("ReduceMean", "GlobalAveragePool")}


@dataclass(frozen=True)
class _Match:
    bound: Bound = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class _Pattern:
    """``ops`` become one ``op`` on the values named in ``inputs``, if ``fits`` agrees."""

    ops: Any
    op: str
    inputs: str
    attributes: Callable[[_Match, _Fusing], dict[str, Any]] = lambda match, fusing: {}
    fits: Callable[[_Match, _Fusing], bool] = lambda match, fusing: True


class _Fusing:
    """A graph while its patterns are being replaced."""

    def __init__(self, graph: Graph, values: Values, sites: frozenset[str]) -> None:
        self.graph, self.values, self.sites = graph, values, sites
        self.nodes = list(graph.nodes)
        self.constants = dict(graph.constants)
        self._index()

    def _index(self) -> None:
        self.makers = {name: node for node in self.nodes for name in node.outputs if name}

    def replace(self, pattern: _Pattern) -> None:
        for root in list(self.nodes):
            found = next(self._found(pattern, root), None)
            if found is None:
                continue
            attributes = pattern.attributes(found, self)
            inputs = tuple(found.bound[letter] for letter in pattern.inputs)
            new = Node(root.name, pattern.op, inputs, root.outputs, attributes)
            gone = [node for node in found.nodes if node is not root]
            self.nodes = [new if n is root else n for n in self.nodes if n not in gone]
            self._index()

    def drop(self, idle: Callable[[Node, Values], bool]) -> None:
        """Take out nodes that return their first input, and let others have that instead."""
        instead: dict[str, str] = {}
        kept = []
        for node in self.nodes:
            node = replace(node, inputs=tuple(instead.get(name, name) for name in node.inputs))
            named = node.name in self.sites or node.outputs[0] == self.graph.output
            if idle(node, self.values) and not named:
                instead[node.outputs[0]] = node.inputs[0]
            else:
                kept.append(node)
        self.nodes = kept
        self._index()

    def _found(self, pattern: _Pattern, root: Node) -> Iterator[_Match]:
        if self.makers.get(root.outputs[0]) is root:  # else it is part of a pattern by now
            for match in self._matches(pattern.ops, root.outputs[0], _Match()):
                if self._is_closed(match, root) and pattern.fits(match, self):
                    yield match

    def _is_closed(self, match: _Match, root: Node) -> bool:
        """Nobody else sees what is inside, and no dropout is to be put there."""
        inside = {name for node in match.nodes if node is not root for name in node.outputs}
        outside = (name for node in self.nodes if node not in match.nodes for name in node.inputs)
        seen = inside & {self.graph.output, *outside}
        return not seen and not any(n.name in self.sites for n in match.nodes if n is not root)

    def _matches(self, pattern: Any, name: str, match: _Match) -> Iterator[_Match]:
        if isinstance(pattern, float):
            if self._is_number(name, pattern):
                yield match
        elif isinstance(pattern, str):
            constant = name in self.constants
            if match.bound.get(pattern, name) == name and pattern.isupper() == constant:
                yield replace(match, bound=match.bound | {pattern: name})
        else:
            yield from self._matches_op(pattern, name, match)

    def _matches_op(self, pattern: Any, name: str, match: _Match) -> Iterator[_Match]:
        op, *parts = pattern
        node = self.makers.get(name)
        if node is None or node.op not in _ALIASES.get(op, (op,)):
            return
        if len(node.inputs) != len(parts) and op != "average":  # of which axes may be an input
            return
        grown = replace(match, nodes=(*match.nodes, node))
        orders = permutations(parts) if op in _COMMUTATIVE else [tuple(parts)]
        for order in orders:
            yield from self._matches_all(order, node.inputs, grown)

    def _matches_all(
        self, parts: Sequence[Any], names: Sequence[str], match: _Match
    ) -> Iterator[_Match]:
        if not parts:
            yield match
            return
        for first in self._matches(parts[0], names[0], match):
            yield from self._matches_all(parts[1:], names[1:], first)

    def _is_number(self, name: str, number: float) -> bool:
        value = self.constants.get(name)
        return (
            value is not None
            and value.size == 1
            and math.isclose(value.item(), number, rel_tol=1e-5)
        )

    def constant(self, match: _Match, letter: str) -> Array:
        return self.constants[match.bound[letter]]

    def flat(self, name: str) -> tuple[int, ...] | None:
        """Add ``name:flat``, the constant as a vector; returns its shape, None for no constant."""
        if name not in self.constants:
            return None
        self.constants[f"{name}:flat"] = self.constants[name].reshape(-1)
        return self.constants[f"{name}:flat"].shape


def fuse(graph: Graph, values: Values, sites: frozenset[str] = frozenset()) -> Graph:
    """The graph with patterns replaced, but for those with a site (a node's name) inside.

    ``values`` are the tensors of the graph, of which shapes and dtypes are asked.
    """
    fusing = _Fusing(graph, values, sites)
    fusing.drop(_does_nothing)
    for pattern in _PATTERNS:
        fusing.replace(pattern)
    _make_linear(fusing)
    return graph.with_nodes(fusing.nodes, fusing.constants)


def _does_nothing(node: Node, values: Values) -> bool:
    if node.op == "Identity":
        return True
    if node.op != "Cast" or node.inputs[0] not in values:
        return False
    return values[node.inputs[0]].dtype == values[node.outputs[0]].dtype


def _averages_last(match: _Match, fusing: _Fusing) -> bool:
    """Whether the means are over the last dimension, and scale and bias lie along it."""
    for node in match.nodes:
        if node.op in _ALIASES["average"]:
            before = fusing.values[node.inputs[0]].shape
            if fusing.values[node.outputs[0]].shape != (*before[:-1], 1):
                return False
    size = fusing.values[match.bound["x"]].shape[-1]
    shapes = [fusing.constant(match, letter).shape for letter in "WB"]
    along = all(shape and shape[-1] == size == math.prod(shape) for shape in shapes)
    return along and fusing.constant(match, "E").size == 1


def _layer_norm(match: _Match, fusing: _Fusing) -> dict[str, Any]:
    for letter in "WB":
        fusing.flat(match.bound[letter])
        match.bound[letter] += ":flat"
    return {"axis": -1, "epsilon": fusing.constant(match, "E").item()}


def _layer_norms() -> Iterator[_Pattern]:
    centred = ("Sub", "x", ("average", "x"))
    for square in (("Pow", centred, 2.0), ("Mul", centred, centred)):
        std = ("Sqrt", ("Add", ("average", square), "E"))
        plain = ("Add", ("Mul", ("Div", centred, std), "W"), "B")
        gain = ("Mul", ("Reciprocal", std), "W")  # as TensorFlow writes it
        shifted = ("Add", ("Mul", ("Neg", ("average", "x")), gain), "B")
        for ops in (plain, ("Add", ("Mul", "x", gain), shifted)):
            yield _Pattern(ops, "LayerNormalization", "xWB", _layer_norm, _averages_last)


def _gelus() -> Iterator[_Pattern]:
    for inner in (("Div", "x", math.sqrt(2)), ("Mul", "x", math.sqrt(0.5))):
        twice = ("Add", ("Erf", inner), 1.0)
        for factors in product(("x", 0.5, twice), repeat=3):
            if len(set(map(str, factors))) == 3:
                yield _Pattern(("Mul", ("Mul", factors[0], factors[1]), factors[2]), "Gelu", "x")


_RELU6 = ("Clip", ("Add", "x", 3.0), 0.0, 6.0)
_PATTERNS = (
    _Pattern(("Mul", "x", ("Sigmoid", "x")), "Swish", "x"),
    _Pattern(("Mul", "x", ("Tanh", ("Softplus", "x"))), "Mish", "x"),
    _Pattern(("Where", ("Greater", "x", 20.0), "x", ("Softplus", "x")), "Softplus", "x"),
    _Pattern(("Mul", "x", ("HardSigmoid", "x")), "HardSwish", "x", fits=lambda m, f: _is_sixth(m)),
    _Pattern(("Mul", "x", ("Mul", _RELU6, 1 / 6)), "HardSwish", "x"),
    _Pattern(("Mul", "x", ("Div", _RELU6, 6.0)), "HardSwish", "x"),
    _Pattern(("Mul", ("Mul", "x", _RELU6), 1 / 6), "HardSwish", "x"),
    _Pattern(("Div", ("Mul", "x", _RELU6), 6.0), "HardSwish", "x"),
    *_gelus(),
    *_layer_norms(),
)


def _is_sixth(match: _Match) -> bool:
    (inner,) = (node for node in match.nodes if node.op == "HardSigmoid")
    return math.isclose(inner.attributes.get("alpha", 0.2), 1 / 6, rel_tol=1e-5)


def _make_linear(fusing: _Fusing) -> None:
    """A product with a constant matrix, and the bias after it."""
    fusing.nodes = [_linear(node, fusing) or node for node in fusing.nodes]
    fusing._index()
    fusing.replace(
        _Pattern(
            ("Add", ("Linear", "x", "W"), "B"),
            "Linear",
            "xWB",
            fits=lambda m, f: f.constant(m, "B").shape == f.constant(m, "W").shape[:1],
        )
    )


def _linear(node: Node, fusing: _Fusing) -> Node | None:
    if node.op not in ("Gemm", "MatMul"):
        return None
    x, matrix, *bias = node.inputs
    options = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0} | node.attributes
    weight = fusing.constants.get(matrix)
    if weight is None or weight.ndim != 2 or options["transA"]:
        return None
    if not options["alpha"] == options["beta"] == 1:
        return None
    if not options["transB"]:
        matrix += ":rows"
        fusing.constants[matrix] = np.ascontiguousarray(weight.T)
    if any(bias) and fusing.flat(bias[0]) != (len(fusing.constants[matrix]),):
        return None
    names = (x, matrix, *(f"{name}:flat" for name in bias if name))
    return replace(node, op="Linear", inputs=names, attributes={})
