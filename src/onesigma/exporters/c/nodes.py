"""The language between ONNX and C: where numbers lie, how they are viewed, what is done to them.

A ``Storage`` is memory. A ``Value`` views a storage through strides, so that reshapes, transposes,
slices and broadcasts cost nothing. A ``Node`` reads values and writes others. All shapes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onesigma.errors import ExportError

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


def require(condition: object, what: str) -> None:
    """Refuse a use of an op that would come out wrong."""
    if not condition:
        raise ExportError(f"The C generator does not know {what}.")


# The number that leaves the other operand as it is, and whether it may stand first.
_NEUTRAL = {"Add": (0.0, True), "Sub": (0.0, False), "Mul": (1.0, True), "Div": (1.0, False)}
_TRUTHS = {"Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "And", "Or", "Xor", "Not"}
_TRUTHS |= {"IsNaN", "IsInf"}
_KINDS = {"Dequantize": "float", "Quantize": "uint8_t", "Requantize": "uint8_t"}


@dataclass(eq=False)
class Storage:
    """Some numbers: an input of the model, a constant (``data``), or else a part of the arena."""

    name: str
    shape: Shape
    data: Array | None = None
    given: bool = False
    kind: str = "float"  # in C; ``uint8_t`` are the codes of 8-bit values, ``sum32`` sums of them

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def floats(self) -> int:
        """Its size in memory, in floats."""
        return -(-self.size // 4) if self.kind == "uint8_t" else self.size

    @property
    def computed(self) -> bool:
        """Whether a node writes it."""
        return self.data is None and not self.given

    def view(self, *, truth: bool = False) -> Value:
        """The whole storage as an array."""
        return Value(self, self.shape, _dense_strides(self.shape), truth=truth)


@dataclass(frozen=True)
class Value:
    """A storage as an array. Truth values are stored as floats, too: 0 and 1."""

    storage: Storage
    shape: Shape
    strides: Shape
    offset: int = 0
    truth: bool = False

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def long_dims(self) -> Shape:
        """The shape without dimensions of one."""
        return tuple(n for n in self.shape if n > 1)

    @property
    def steps(self) -> Shape:
        """The strides without those of dimensions of one."""
        return tuple(step for n, step in zip(self.shape, self.strides, strict=True) if n > 1)

    @property
    def number(self) -> float | None:
        """The number, if this is a constant that is the same everywhere."""
        data = self.storage.data
        if data is None or data.size == 0 or any(self.steps):
            return None
        return float(data.flat[self.offset])

    @property
    def dense(self) -> bool:
        """Whether its elements follow one another."""
        return self.steps == replace(self, strides=_dense_strides(self.shape)).steps

    @property
    def whole(self) -> bool:
        """Whether it is all of its storage, in order."""
        return self.dense and self.offset == 0 and self.size == self.storage.size

    def reshape(self, shape: Sequence[int]) -> Value | None:
        """The same elements in another shape, or None if they would have to be moved."""
        if self.dense:
            return replace(self, shape=tuple(shape), strides=_dense_strides(shape))
        if tuple(n for n in shape if n > 1) != self.long_dims:
            return None
        steps = iter(self.steps)
        strides = tuple(next(steps) if n > 1 else 0 for n in shape)
        return replace(self, shape=tuple(shape), strides=strides)

    def transpose(self, order: Sequence[int]) -> Value:
        shape, strides = (tuple(sizes[i] for i in order) for sizes in (self.shape, self.strides))
        return replace(self, shape=shape, strides=strides)

    def slice(self, axis: int, start: int, count: int, step: int = 1) -> Value:
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis]
        shape[axis], strides[axis] = count, strides[axis] * step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def slide(self, axis: int, count: int, step: int, size: int, dilation: int) -> Value:
        """Windows of ``size`` along an axis; their inside is a new last dimension."""
        windows, inside = self.slice(axis, 0, count, step), self.strides[axis] * dilation
        return replace(windows, shape=(*windows.shape, size), strides=(*windows.strides, inside))

    def broadcast(self, shape: Shape) -> Value:
        missing = len(shape) - len(self.shape)
        pairs = zip(self.shape, self.strides, strict=True)
        strides = (0,) * missing + tuple(0 if n == 1 else step for n, step in pairs)
        return replace(self, shape=shape, strides=strides)


def _dense_strides(shape: Sequence[int]) -> Shape:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


@dataclass(frozen=True)
class Window:
    """What moves over an input: numbers per dimension; ``pads`` are all before, then all after."""

    kernel: Shape
    strides: Shape
    pads: Shape
    dilations: Shape

    @property
    def reach(self) -> Shape:
        """How far it extends over the input."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def counts(self, sizes: Sequence[int], *, ceil: bool = False) -> list[int]:
        """In how many places it stands along each dimension."""
        counts = []
        for i, (size, step) in enumerate(zip(sizes, self.strides, strict=True)):
            before, after = self.pads[i], self.pads[i + len(sizes)]
            room = size + before + after - self.reach[i]
            count = (-(-room // step) if ceil else room // step) + 1
            # A window that would begin behind the input and its first padding is left out.
            counts.append(count - (ceil and (count - 1) * step >= size + before))
        return counts


@dataclass(eq=False)
class Node:
    """One operation. ``writes`` are new storages, or parts of one that other nodes write, too.

    ``attributes`` are numbers for an elementwise op, ``axes`` for a reduction, and for a layer
    ``weight`` (filters, taps), ``bias``, ``window`` and what the weights stand for: ``factor`` of
    each filter times the weights to the ``power``.
    """

    kind: str
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    lanes: Sequence[Node] = ()  # layers with the same weights, which are one step


@dataclass
class Graph:
    """Nodes in an order in which they can run; inputs and outputs by name, C types of outputs."""

    nodes: list[Node]
    inputs: dict[str, Value]
    outputs: dict[str, Value]
    types: dict[str, str]


class Level(NamedTuple):
    """What 8-bit codes stand for: scale · (code − zero)."""

    scale: float
    zero: int

    def values(self, codes: Array) -> Array:
        return (codes - self.zero).astype(np.float32) * np.float32(self.scale)

    def code(self, value: float) -> int:
        return int(np.clip(np.rint(np.float32(value) / np.float32(self.scale)) + self.zero, 0, 255))


class Codes(NamedTuple):
    """Codes of 8-bit values, and what they stand for."""

    value: Value
    level: Level


class Made(NamedTuple):
    """How a value was read: the op, its operands, and a way to read it again from others."""

    op: str
    operands: Sequence[Any]
    attributes: dict[str, Any]
    again: Callable[[Sequence[Any]], Sequence[Any]]
    place: int  # among the op's results


class Builder:
    """Appends nodes: none twice, none that changes nothing. Methods return what the node writes."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Node] = []
        self.name = ""  # of the ONNX op that is being read, for comments and messages
        # What was padded with zeros, and how: a convolution pads by itself.
        self.unpadded: dict[Value, tuple[Value, dict[int, tuple[int, int]]]] = {}
        self.made: dict[Value, Made] = {}  # by which op
        self.codes: dict[Storage, Codes] = {}  # of what was dequantised
        self.steps: list[Array] = []  # of weights
        self._made: dict[Any, Value] = {}
        self._constants: dict[Any, Value] = {}

    def constant(self, array: Array | float) -> Value:
        """A constant; an array of equal numbers, however large, is one number."""
        array = np.asarray(array)
        data, truth = np.array(array, dtype=np.float32, order="C"), array.dtype == np.bool_
        if data.size and data.shape and bool((data == data.flat[0]).all()):
            return self.constant(array.flat[0]).broadcast(data.shape)
        key = (data.shape, data.tobytes(), truth)
        if key not in self._constants:
            self._constants[key] = Storage("constant", data.shape, data).view(truth=truth)
        return self._constants[key]

    def value(self, x: Value | Array | float) -> Value:
        return x if isinstance(x, Value) else self.constant(x)

    def new(self, shape: Sequence[int], *, truth: bool = False, like: Value | None = None) -> Value:
        """A new storage, for nodes to write; of floats, or of the kind of another value."""
        kind = "float" if like is None else like.storage.kind
        return Storage(self.name, tuple(shape), kind=kind).view(truth=truth)

    def add(
        self, kind: str, x: Sequence[Value], shape: Shape, *, truth: bool = False, **attributes: Any
    ) -> Value:
        """A node that writes a new storage, unless there is one like it."""
        if 0 in shape:  # nothing to do
            return self.constant(np.empty(shape))
        key = (kind, *x, shape, *((name, _key(value)) for name, value in attributes.items()))
        if key not in self._made:
            self._made[key] = Storage(self.name, shape, kind=_c_kind(kind, x)).view(truth=truth)
            self.nodes.append(Node(kind, tuple(x), (self._made[key],), attributes, self.name))
        return self._made[key]

    def elementwise(self, kind: str, *operands: Value | Array | float, **numbers: Any) -> Value:
        """One op on each element; the operands are broadcast."""
        values = [self.value(x) for x in operands]
        shape = tuple(np.broadcast_shapes(*(x.shape for x in values)))
        unchanged = _unchanged(kind, values, shape)
        if unchanged is not None:
            return unchanged
        # A reshape between two elementwise ops would keep them in separate loops. So compute in the
        # shape in which the operands are stored, and reshape the result instead.
        stored = _common_shape(values, shape)
        wide = [_stretch(x, shape, stored) for x in values]
        truth = kind in _TRUTHS or (kind in ("Where", "Identity") and values[-1].truth)
        result = self.add(kind, wide, stored or shape, truth=truth, **numbers)
        return result.reshape(shape) or result

    def reduce(self, kind: str, x: Value, axes: Sequence[int], *, keepdims: bool = True) -> Value:
        axes = [axis % len(x.shape) for axis in axes] or list(range(len(x.shape)))
        kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        codes = self.codes.get(x.storage)
        if kind == "ReduceSum" and codes is not None and x.whole:  # sum codes: they are not stored
            total = self.reduce(kind, self.reshape(codes.value, x.shape), axes, keepdims=keepdims)
            level = {"scale": codes.level.scale, "zero": x.size // total.size * codes.level.zero}
            return self.elementwise("Dequantize", total, **level)
        result = x if kept == x.shape else self.add(kind, [x], kept, axes=tuple(axes))
        if keepdims:
            return result
        return self.reshape(result, [n for i, n in enumerate(x.shape) if i not in axes])

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        view = x.reshape(shape) or self.dense(x).reshape(shape)
        assert view is not None
        return view

    def dense(self, x: Value) -> Value:
        """The same elements one after another; they are copied only if they are not."""
        if x.dense and x.number is None:
            return x
        return self.copy(x, self.new(x.shape, truth=x.truth, like=x))

    def copy(self, x: Value, target: Value) -> Value:
        """Write x into a part of a storage, over what was written there before."""
        if target.size:
            source = x.broadcast(target.shape)
            self.nodes.append(Node("Identity", (source,), (target,), {}, self.name))
        return target

    def join(self, parts: Sequence[Value], axis: int = 0) -> Value:
        """One after another along an axis. The loop that computes a part writes it to its place."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(x.shape[axis] for x in parts)
        result, start = self.new(shape, truth=parts[0].truth, like=parts[0]), 0
        for x in parts:
            self.copy(x, result.slice(axis, start, x.shape[axis]))
            start += x.shape[axis]
        return result


def _c_kind(kind: str, x: Sequence[Value]) -> str:
    """The C type that a node writes: mostly the one that it reads."""
    if kind == "ReduceSum" and x[0].storage.kind != "float":
        return "sum32"
    return _KINDS.get(kind, x[-1].storage.kind)


def _key(value: Any) -> Any:
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


def _unchanged(kind: str, values: Sequence[Value], shape: Shape) -> Value | None:
    """The operand that an op would only copy, or None."""
    if kind == "Identity" and values[0].shape == shape:
        return values[0]
    if kind not in _NEUTRAL:
        return None
    number, either = _NEUTRAL[kind]
    first, second = values
    if second.number == number and first.shape == shape:
        return first
    return second if either and first.number == number and second.shape == shape else None


def _stretch(x: Value, shape: Shape, stored: Shape | None) -> Value:
    if stored is None:
        return x.broadcast(shape)
    if x.number is None:
        return x.storage.view(truth=x.truth)
    return replace(x, shape=(), strides=()).broadcast(stored)


def _common_shape(values: Sequence[Value], shape: Shape) -> Shape | None:
    """The one shape in which all operands that are not numbers are stored, whole."""
    arrays = [x for x in values if x.number is None]
    if not all(x.whole and x.size == prod(shape) for x in arrays):
        return None
    shapes = {x.storage.shape for x in arrays}
    return shapes.pop() if len(shapes) == 1 else None
