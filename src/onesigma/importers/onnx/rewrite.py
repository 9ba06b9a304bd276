"""What is done to a graph before it runs: constants are folded, layers in parts become one again.

    x · sigmoid(x)  →  Swish          MatMul, Add  →  Linear          … see ``_PATTERNS``

One op has one rule, exact where a product of values that share all their noise is not, and one name
to put a dropout after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma.errors import ModelError
from onesigma.importers.onnx.module import OnnxModule, apply
from onesigma.importers.onnx.ops import MAX_ELEMENTS, OPS, as_tensor
from onesigma.importers.onnx.parse import Array, Node, OnnxGraph
from onesigma.importers.onnx.recurrent import FIRST_WEIGHT, torch_weights

Values = Mapping[str, Tensor]


def fold(graph: OnnxGraph) -> OnnxGraph:
    """The graph without the nodes whose inputs are all constants: these are computed here.

    Ops that are not known stay as they are.
    """
    constants, kept = dict(graph.constants), []
    for node in graph.nodes:
        if node.op in OPS and all(name in constants for name in node.inputs if name):
            values = [constants.get(name) for name in node.inputs]
            constants |= zip(node.outputs, _compute(node, graph.opset, values), strict=False)
        else:
            kept.append(node)
    if graph.output in constants:
        raise ModelError(f"{graph.file}: its output does not depend on its input.")
    return _open_batch(graph.with_nodes(kept, constants))


def _compute(node: Node, opset: int, values: list[Array | None]) -> list[Array]:
    op = OPS[node.op]
    if not op.takes_numbers:
        # First without memory, to see how much of it this would take.
        weightless = [
            v if v is None or op.keeps_numbers(i, v) else as_tensor(v, "meta")
            for i, v in enumerate(values)
        ]
        _require_small(node, apply(node, opset, weightless))
    return [np.asarray(result) for result in apply(node, opset, values)]


def _require_small(node: Node, results: tuple[Any, ...]) -> None:
    """Refuse what no network needs and this machine may not have the memory for."""
    for result in results:
        if isinstance(result, Tensor) and result.numel() > MAX_ELEMENTS:
            raise ModelError(f"{node} makes a tensor of shape {tuple(result.shape)}: too large.")


def _open_batch(graph: OnnxGraph) -> OnnxGraph:
    """Where the file fixes the batch, so do its Reshapes; let them take any.

    A first size that is the batch becomes −1, what is left, or 0, as it was. For that batch nothing
    changes; for others the comparison with ONNX Runtime tells whether the rows stay what they are.
    """
    if graph.batch is None:
        return graph
    constants, nodes = dict(graph.constants), []
    for node in graph.nodes:
        shape = constants.get(node.inputs[1]) if node.op == "Reshape" else None
        sizes = [] if shape is None else [int(n) for n in shape.reshape(-1)]
        if len(sizes) > 1 and sizes[0] == graph.batch and 0 not in sizes:
            name = f"{node.inputs[1]}:open"
            constants[name] = np.array([0 if -1 in sizes else -1, *sizes[1:]])
            node = replace(node, inputs=(node.inputs[0], name), attributes={})
        nodes.append(node)
    return graph.with_nodes(nodes, constants)


@torch.no_grad()
def trace_shapes(graph: OnnxGraph, batch: int) -> dict[str, Tensor]:
    """Every tensor of the graph, its shape and dtype known and no memory taken for any.

    Raises:
        ModelError: a node cannot be computed, or would make a tensor out of all proportion.
    """
    module = OnnxModule(graph).to("meta")
    values = module.values(*(x.to("meta") for x in module.examples(batch)))
    for step in module.steps():
        _require_small(step.node, tuple(values.get(name) for name in step.node.outputs))
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def fuse(graph: OnnxGraph, values: Values, sites: Container[str] = ()) -> OnnxGraph:
    """The graph with patterns replaced, except those with a site (a node's name) inside.

    ``values`` are the tensors of the graph; only their shapes and dtypes are used.
    """
    rewriting = _Rewriting(graph, values, sites)
    rewriting.drop_idle()
    for pattern in _PATTERNS:
        rewriting.replace(pattern)
    rewriting.set_nodes([_make_linear(node, rewriting) for node in rewriting.nodes])
    rewriting.set_nodes([_sort_gates(node, rewriting) for node in rewriting.nodes])
    rewriting.replace(_BIAS)
    return graph.with_nodes(rewriting.nodes, rewriting.constants)


@dataclass(frozen=True)
class _Match:
    """Which value each letter of a pattern stands for, and the nodes inside."""

    bound: dict[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class _Pattern:
    """``ops`` become one ``op`` on the values named in ``inputs``.

    The ops are nested; a small letter stands for any value, a capital one for a constant, and a
    number for itself. ``attributes`` returns those of ``op``, or None where it does not fit.
    """

    ops: Any
    op: str
    inputs: str = "x"
    attributes: Callable[[_Match, _Rewriting], dict[str, Any] | None] = lambda match, graph: {}


_COMMUTATIVE = ("Add", "Mul")
_ALIASES = {"average": ("ReduceMean", "GlobalAveragePool")}


class _Rewriting:
    """A graph while its patterns are being replaced."""

    def __init__(self, graph: OnnxGraph, values: Values, sites: Container[str]) -> None:
        self.graph, self.values, self.sites = graph, values, sites
        self.constants = dict(graph.constants)
        self.set_nodes(list(graph.nodes))

    def set_nodes(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.makers = {name: node for node in nodes for name in node.outputs if name}

    def drop_idle(self) -> None:
        """Take out nodes that return their input as it is, and let others have that instead."""
        instead: dict[str, str] = {}
        kept = []
        for node in self.nodes:
            node = replace(node, inputs=tuple(instead.get(name, name) for name in node.inputs))
            named = node.name in self.sites or node.outputs[0] == self.graph.output
            if not named and self._is_idle(node):
                instead[node.outputs[0]] = node.inputs[0]
            else:
                kept.append(node)
        self.set_nodes(kept)

    def _is_idle(self, node: Node) -> bool:
        if node.op != "Cast" or node.inputs[0] not in self.values:
            return node.op == "Identity"
        return self.values[node.inputs[0]].dtype == self.values[node.outputs[0]].dtype

    def replace(self, pattern: _Pattern) -> None:
        for root in list(self.nodes):
            if self.makers.get(root.outputs[0]) is not root:
                continue  # it is part of a pattern by now
            for match in self._matches(pattern.ops, root.outputs[0], _Match()):
                inside = [node for node in match.nodes if node is not root]
                closed = self._is_closed(inside, root)
                attributes = pattern.attributes(match, self) if closed else None
                if attributes is not None:
                    inputs = tuple(match.bound[letter] for letter in pattern.inputs)
                    new = Node(root.name, pattern.op, inputs, root.outputs, attributes)
                    kept = [node for node in self.nodes if node not in inside]
                    self.set_nodes([new if node is root else node for node in kept])
                    break

    def _is_closed(self, inside: list[Node], root: Node) -> bool:
        """Nobody else sees what is inside, and no dropout is to be put there."""
        made = {name for node in inside for name in node.outputs}
        others = [node for node in self.nodes if node not in inside and node is not root]
        seen = made & {self.graph.output, *(name for node in others for name in node.inputs)}
        return not seen and not any(node.name in self.sites for node in inside)

    def _matches(self, pattern: Any, name: str, match: _Match) -> list[_Match]:
        """The ways in which the value fits the pattern, added to what is matched already."""
        if isinstance(pattern, float):
            value = self.constants.get(name, np.empty(0))
            fits = value.size == 1 and math.isclose(value.item(), pattern, rel_tol=1e-5)
            return [match] if fits else []
        if isinstance(pattern, str):
            fits = pattern.isupper() == (name in self.constants)
            fits = fits and match.bound.get(pattern, name) == name
            return [replace(match, bound=match.bound | {pattern: name})] if fits else []
        op, *parts = pattern
        node = self.makers.get(name)
        if node is None or node.op not in _ALIASES.get(op, (op,)):
            return []
        if len(node.inputs) != len(parts) and op != "average":  # of which axes may be an input
            return []
        found: list[_Match] = []
        for order in permutations(parts) if op in _COMMUTATIVE else [parts]:
            ways = [replace(match, nodes=(*match.nodes, node))]
            for part, given in zip(order, node.inputs, strict=False):
                ways = [more for way in ways for more in self._matches(part, given, way)]
            found += ways
        return found

    def constant(self, match: _Match, letter: str) -> Array:
        return self.constants[match.bound[letter]]

    def flatten(self, name: str) -> str:
        """Add the constant as a vector; returns its name."""
        self.constants[f"{name}:flat"] = self.constants[name].reshape(-1)
        return f"{name}:flat"


def _layer_norm(match: _Match, graph: _Rewriting) -> dict[str, Any] | None:
    """If the means are over the last dimension, and scale and bias lie along it."""
    for node in match.nodes:
        if node.op in _ALIASES["average"]:
            before = graph.values[node.inputs[0]].shape
            if graph.values[node.outputs[0]].shape != (*before[:-1], 1):
                return None
    size = graph.values[match.bound["x"]].shape[-1]
    shapes = [graph.constant(match, letter).shape for letter in "WB"]
    epsilon = graph.constant(match, "E")
    along = all(shape and shape[-1] == size == math.prod(shape) for shape in shapes)
    if not along or epsilon.size != 1:
        return None
    match.bound.update({letter: graph.flatten(match.bound[letter]) for letter in "WB"})
    return {"axis": -1, "epsilon": epsilon.item()}


def _layer_norms() -> Iterator[_Pattern]:
    centred = ("Sub", "x", ("average", "x"))
    for square in (("Pow", centred, 2.0), ("Mul", centred, centred)):
        std = ("Sqrt", ("Add", ("average", square), "E"))
        plain = ("Add", ("Mul", ("Div", centred, std), "W"), "B")
        gain = ("Mul", ("Reciprocal", std), "W")  # as TensorFlow writes it
        shifted = ("Add", ("Mul", ("Neg", ("average", "x")), gain), "B")
        for ops in (plain, ("Add", ("Mul", "x", gain), shifted)):
            yield _Pattern(ops, "LayerNormalization", "xWB", _layer_norm)


def _gelus() -> Iterator[_Pattern]:
    for inner in (("Div", "x", math.sqrt(2)), ("Mul", "x", math.sqrt(0.5))):
        twice = ("Add", ("Erf", inner), 1.0)
        for a, b, c in (("x", 0.5, twice), ("x", twice, 0.5), (0.5, twice, "x")):
            yield _Pattern(("Mul", ("Mul", a, b), c), "Gelu")


def _hard_swish(match: _Match, graph: _Rewriting) -> dict[str, Any] | None:
    (inner,) = (node for node in match.nodes if node.op == "HardSigmoid")
    usual = math.isclose(inner.attributes.get("alpha", 0.2), 1 / 6, rel_tol=1e-5)
    return {} if usual else None


def _scale_weight(match: _Match, graph: _Rewriting) -> dict[str, Any] | None:
    """If the scale is one number, or one for each output of the layer."""
    layer = next(node for node in match.nodes if node.op != "Mul")
    weight, scale = graph.constant(match, "W"), graph.constant(match, "S")
    rank, last = graph.values[layer.outputs[0]].dim(), layer.op == "MatMul"
    shape = [*[1] * (rank - scale.ndim), *scale.shape]
    outputs = weight.shape[-1 if last else 0]
    if len(shape) > rank or shape.pop(-1 if last else 1) not in (1, outputs) or {*shape} - {1}:
        return None
    along = scale.reshape(-1) if last else scale.reshape(-1, *[1] * (weight.ndim - 1))
    match.bound["W"] += f":{match.bound['S']}"
    graph.constants[match.bound["W"]] = weight * along
    return dict(layer.attributes)


_RELU6 = ("Clip", ("Add", "x", 3.0), 0.0, 6.0)
_PATTERNS = (
    # As dynamic quantisation writes a layer, its scale after it.
    _Pattern(("Mul", ("MatMul", "x", "W"), "S"), "MatMul", "xW", _scale_weight),
    _Pattern(("Mul", ("Conv", "x", "W"), "S"), "Conv", "xW", _scale_weight),
    _Pattern(("Mul", "x", ("Sigmoid", "x")), "Swish"),
    _Pattern(("Mul", "x", ("Tanh", ("Softplus", "x"))), "Mish"),
    _Pattern(("Where", ("Greater", "x", 20.0), "x", ("Softplus", "x")), "Softplus"),
    _Pattern(("Mul", "x", ("HardSigmoid", "x")), "HardSwish", attributes=_hard_swish),
    _Pattern(("Mul", "x", ("Mul", _RELU6, 1 / 6)), "HardSwish"),
    _Pattern(("Mul", "x", ("Div", _RELU6, 6.0)), "HardSwish"),
    _Pattern(("Mul", ("Mul", "x", _RELU6), 1 / 6), "HardSwish"),
    _Pattern(("Div", ("Mul", "x", _RELU6), 6.0), "HardSwish"),
    *_gelus(),
    *_layer_norms(),
)


def _add_bias(match: _Match, graph: _Rewriting) -> dict[str, Any] | None:
    fits = graph.constant(match, "B").shape == graph.constant(match, "W").shape[:1]
    return {} if fits else None


_BIAS = _Pattern(("Add", ("Linear", "x", "W"), "B"), "Linear", "xWB", _add_bias)


def _make_linear(node: Node, graph: _Rewriting) -> Node:
    """A product with a constant matrix as a Linear; any other node as it is."""
    if node.op not in ("Gemm", "MatMul"):
        return node
    x, matrix, bias = (*node.inputs, "")[:3]
    weight, given = graph.constants.get(matrix), node.attributes
    scaled = (given.get("alpha", 1), given.get("beta", 1)) != (1, 1)
    if weight is None or weight.ndim != 2 or scaled or given.get("transA"):
        return node
    if not given.get("transB"):
        matrix += ":rows"
        weight = graph.constants[matrix] = np.ascontiguousarray(weight.T)
    shape = np.shape(graph.constants.get(bias, ()))
    if bias and shape not in ((len(weight),), (1, len(weight))):
        return node
    inputs = (x, matrix, graph.flatten(bias)) if bias else (x, matrix)
    return replace(node, op="Linear", inputs=inputs, attributes={})


def _sort_gates(node: Node, graph: _Rewriting) -> Node:
    """A recurrent layer with its weights as PyTorch has them; any other node as it is."""
    given = (*node.inputs, "", "")[1:4]
    fixed = all(name in graph.constants for name in given if name)
    if node.op not in FIRST_WEIGHT or not fixed or not all(given[:2]):
        return node
    weights = torch_weights(node.op, *(graph.constants.get(name) for name in given))
    names = [f"{given[0]}:{place}" for place in range(len(weights))]
    graph.constants |= zip(names, weights, strict=True)
    others = ("", "", "", *node.inputs[4:], *[""] * FIRST_WEIGHT[node.op])
    return replace(node, inputs=(node.inputs[0], *others[: FIRST_WEIGHT[node.op] - 1], *names))
