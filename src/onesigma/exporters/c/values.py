"""The small language between ONNX and C: where numbers lie, how they are looked at, what is done.

A ``Storage`` is memory; a ``Value`` looks at one through strides, so that reshapes, transposes,
slices and broadcasts cost nothing; a ``Node`` reads values and writes others. All shapes are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(eq=False)
class Storage:
    """Some floats: an input of the model, a constant (``data``), or else a part of the arena."""

    name: str
    shape: Shape
    data: Array | None = None
    given: bool = False

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def computed(self) -> bool:
        """Whether a node writes it."""
        return self.data is None and not self.given


@dataclass(frozen=True)
class Value:
    """A storage as an array. Truth values too are stored as floats, 0 and 1."""

    storage: Storage
    shape: Shape
    strides: Shape
    offset: int = 0
    truth: bool = False

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def number(self) -> float | None:
        """The number that a constant without extent is, or None."""
        data = self.storage.data
        if data is None or data.size == 0 or any(self._steps()):
            return None
        return float(data.flat[self.offset])

    def _steps(self) -> Iterable[int]:
        return (step for step, n in zip(self.strides, self.shape, strict=True) if n > 1)

    @property
    def dense(self) -> bool:
        """Whether its elements follow one another."""
        wanted = dense_strides(self.shape)
        pairs = zip(self.strides, wanted, self.shape, strict=True)
        return all(have == want for have, want, n in pairs if n > 1)

    @property
    def whole(self) -> bool:
        """Whether it is all of its storage, in order."""
        return self.dense and self.offset == 0 and self.size == self.storage.size

    def reshaped(self, shape: Sequence[int]) -> Value | None:
        """The same elements in another shape, or None where they would have to be moved."""
        if self.dense:
            return replace(self, shape=tuple(shape), strides=dense_strides(shape))
        kept = [(n, step) for n, step in zip(self.shape, self.strides, strict=True) if n > 1]
        if [n for n in shape if n > 1] != [n for n, _ in kept]:
            return None
        steps = iter(step for _, step in kept)
        return replace(
            self, shape=tuple(shape), strides=tuple(next(steps) if n > 1 else 0 for n in shape)
        )

    def transposed(self, order: Sequence[int]) -> Value:
        return replace(
            self,
            shape=tuple(self.shape[i] for i in order),
            strides=tuple(self.strides[i] for i in order),
        )

    def sliced(self, axis: int, start: int, count: int, step: int = 1) -> Value:
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis]
        shape[axis], strides[axis] = count, strides[axis] * step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def windowed(self, axis: int, count: int, step: int, size: int, dilation: int) -> Value:
        """Windows of ``size`` along an axis, their inside as a new last dimension."""
        shape, strides = list(self.shape), list(self.strides)
        shape[axis], strides[axis] = count, strides[axis] * step
        return replace(
            self,
            shape=(*shape, size),
            strides=(*strides, self.strides[axis] * dilation),
        )

    def broadcast(self, shape: Shape) -> Value:
        missing = len(shape) - len(self.shape)
        old = [1] * missing + list(self.shape)
        steps = [0] * missing + list(self.strides)
        strides = (0 if n == 1 else step for n, step in zip(old, steps, strict=True))
        return replace(self, shape=shape, strides=tuple(strides))


def dense_strides(shape: Sequence[int]) -> Shape:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def whole(storage: Storage, *, truth: bool = False) -> Value:
    return Value(storage, storage.shape, dense_strides(storage.shape), truth=truth)


@dataclass(eq=False)
class Node:
    """One operation. ``writes`` are new storages, or parts of one that others write too."""

    kind: str
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def storages(self) -> set[Storage]:
        return {value.storage for value in (*self.reads, *self.writes)}


@dataclass
class Graph:
    """Nodes in an order in which they can run; inputs and outputs by name, outputs' C types."""

    nodes: list[Node]
    inputs: dict[str, Value]
    outputs: dict[str, Value]
    types: dict[str, str]
