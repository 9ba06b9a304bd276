"""Makes the nodes of a graph: no node twice, none that changes nothing, none without a use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onesigma.exporters.c.values import (
    Array,
    Node,
    Shape,
    Storage,
    Value,
    whole,
)

# The number that leaves the other operand as it is, and whether it may stand first.
_NEUTRAL = {"Add": (0.0, True), "Sub": (0.0, False), "Mul": (1.0, True), "Div": (1.0, False)}
TRUTHS = {"Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "And", "Or", "Xor", "Not"}
TRUTHS |= {"IsNaN", "IsInf"}


class Builder:
    """Appends nodes; each method returns the value that the node writes, or one that exists."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.name = ""  # of the ONNX op that is being read, for comments
        # What was padded with zeros, and how: a convolution pads by itself.
        self.unpadded: dict[Value, tuple[Value, dict[int, tuple[int, int]]]] = {}
        self._made: dict[Any, Value] = {}
        self._constants: dict[Any, Value] = {}

    def constant(self, array: Array | float) -> Value:
        """A constant; an array of one number, however large, is that number."""
        array = np.asarray(array)
        data = np.ascontiguousarray(array, dtype=np.float32)
        if data.size and bool((data == data.flat[0]).all()):
            number, shape = data.flat[:1].copy(), data.shape
            single = self._stored(number.reshape(()), array.dtype == np.bool_)
            return single.broadcast(shape)
        return self._stored(data, array.dtype == np.bool_)

    def _stored(self, data: Array, truth: bool) -> Value:
        key = (data.shape, data.tobytes(), truth)
        if key not in self._constants:
            storage = Storage("constant", data.shape, data=data)
            self._constants[key] = whole(storage, truth=truth)
        return self._constants[key]

    def value(self, x: Value | Array | float) -> Value:
        return x if isinstance(x, Value) else self.constant(x)

    def add(
        self,
        kind: str,
        reads: Sequence[Value],
        shape: Shape,
        attributes: dict[str, Any] | None = None,
        *,
        truth: bool = False,
    ) -> Value:
        """A node that writes a new storage, unless there is one like it."""
        if 0 in shape:  # nothing to do
            return self.constant(np.empty(shape))
        attributes = attributes or {}
        key = (kind, *reads, shape, tuple(sorted((k, _key(v)) for k, v in attributes.items())))
        if key not in self._made:
            result = whole(Storage(self.name or kind, shape), truth=truth)
            self.nodes.append(Node(kind, tuple(reads), (result,), attributes, self.name))
            self._made[key] = result
        return self._made[key]

    def elementwise(self, kind: str, *operands: Value | Array | float, **attributes: Any) -> Value:
        """One op on each element, its operands broadcast."""
        values = [self.value(x) for x in operands]
        shape = tuple(np.broadcast_shapes(*(x.shape for x in values)))
        unchanged = _unchanged(kind, values, shape)
        if unchanged is not None:
            return unchanged
        # A reshape between two elementwise ops would keep them in separate loops: computed in the
        # shape in which the operands are stored, the result is reshaped instead.
        stored = _common_shape(values, shape)
        wide = [_stretched(x, shape, stored) for x in values]
        truth = kind in TRUTHS or (kind in ("Where", "Identity") and values[-1].truth)
        result = self.add(kind, wide, stored or shape, attributes, truth=truth)
        return result.reshaped(shape) or result

    def reduced(self, kind: str, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
        axes = [axis % len(x.shape) for axis in axes] or list(range(len(x.shape)))
        kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        alone = kept == x.shape  # nothing is summed
        result = x if alone else self.add(kind, [x], kept, {"axes": tuple(axes)})
        if keepdims:
            return result
        return self.reshape(result, [n for i, n in enumerate(x.shape) if i not in axes])

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        view = x.reshaped(shape) or self.dense(x).reshaped(shape)
        assert view is not None
        return view

    def dense(self, x: Value) -> Value:
        """The same elements one after another: copied only where they are not."""
        return x if x.dense and x.number is None else self.copied(x)

    def copied(self, x: Value) -> Value:
        """The same elements in a storage of their own."""
        copy = whole(Storage(self.name, x.shape), truth=x.truth)
        self.copy(x, copy)
        return copy

    def copy(self, x: Value, target: Value) -> None:
        """Write x into a part of a storage; what was written there before is overwritten."""
        if target.size:
            source = x.broadcast(target.shape)
            self.nodes.append(Node("Identity", (source,), (target,), {}, self.name))


def _key(value: Any) -> Any:
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


def _unchanged(kind: str, values: Sequence[Value], shape: Shape) -> Value | None:
    """The operand that an op would only copy."""
    if kind == "Identity" and values[0].shape == shape:
        return values[0]
    if kind not in _NEUTRAL:
        return None
    number, either = _NEUTRAL[kind]
    first, second = values
    if second.number == number and first.shape == shape:
        return first
    return second if either and first.number == number and second.shape == shape else None


def _stretched(x: Value, shape: Shape, stored: Shape | None) -> Value:
    if stored is None:
        return x.broadcast(shape)
    if x.number is None:
        return whole(x.storage, truth=x.truth)
    return replace(x, shape=(), strides=()).broadcast(stored)


def _common_shape(values: Sequence[Value], shape: Shape) -> Shape | None:
    """The one shape in which all operands that are not numbers are stored, whole."""
    arrays = [x for x in values if x.number is None]
    if not arrays or not all(x.whole and x.size == np.prod(shape) for x in arrays):
        return None
    shapes = {x.storage.shape for x in arrays}
    return shapes.pop() if len(shapes) == 1 else None


def without_unused(nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
    """The nodes that an output depends on."""
    wanted = {value.storage for value in outputs}
    kept = []
    for node in reversed(nodes):
        if any(value.storage in wanted for value in node.writes):
            kept.append(node)
            wanted |= {value.storage for value in node.reads}
    return kept[::-1]
