"""The table of ONNX ops: one function each, its positions the inputs, its keywords the attributes.

A value is a ``Tensor``, or ``Numbers``: a numpy array of constants or of sizes, of which those that
depend on the batch are symbols while the graph is captured. How a function annotates an input says
where a constant for it is kept:

    Tensor     a weight, a parameter of the module
    Numbers    plain numbers (a shape, axes, bounds), fixed in the graph
    Operand    numbers if it is a single one or whole, else a weight

The keyword ``opset`` is the file's, ``outputs`` how many the node has. Functions are made of torch
ops that have a rule, wherever there is one, so that what is read can be converted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_type_hints

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onesigma.errors import UnsupportedOp

Numbers: TypeAlias = npt.NDArray[Any]
Operand: TypeAlias = Tensor | Numbers
Value: TypeAlias = Tensor | Numbers | None

_NUMBERS = (Numbers, Numbers | None)


@dataclass(frozen=True)
class OnnxOp:
    """A function for an ONNX op, and where it wants its constants."""

    function: Callable[..., Any]
    positions: tuple[Any, ...]
    variadic: Any
    context: frozenset[str]

    def keeps_numbers(self, position: int, values: Numbers) -> bool:
        """Whether a constant input stays plain numbers."""
        listed = position < len(self.positions)
        hint = self.positions[position] if listed else self.variadic
        return hint in _NUMBERS or (hint == Operand and (values.size == 1 or is_whole(values)))

    def __call__(self, *inputs: Value, opset: int, outputs: int, **attributes: Any) -> Any:
        asked = {"opset": opset, "outputs": outputs}
        attributes |= {name: asked[name] for name in self.context}
        device = next((x.device for x in inputs if isinstance(x, Tensor)), torch.device("cpu"))
        # Numbers where a tensor is needed: such as were only known when it ran.
        wanted = [
            as_tensor(value, device)
            if isinstance(value, np.ndarray) and not self.keeps_numbers(position, value)
            else value
            for position, value in enumerate(inputs)
        ]
        return self.function(*wanted, **attributes)


OPS: dict[str, OnnxOp] = {}


def onnx_op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function that of these ONNX ops."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        hints = get_type_hints(function)
        parameters = inspect.signature(function).parameters.values()
        positions = [p for p in parameters if p.kind is p.POSITIONAL_ONLY]
        variadic = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
        entry = OnnxOp(
            function,
            tuple(hints[p.name] for p in positions),
            hints[variadic[0].name] if variadic else None,
            frozenset({"opset", "outputs"} & set(hints)),
        )
        for name in names:
            assert name not in OPS, f"{name} has a function already"
            OPS[name] = entry
        return function

    return register


def covers(condition: object, what: str) -> None:
    """For functions: refuse a use of the op that would come out wrong."""
    if not condition:
        raise UnsupportedOp(f"{what} is not supported")


def is_whole(values: Numbers) -> bool:
    """Whether they can be sizes or indices: integers, symbols or truth values."""
    return values.dtype.kind in "iubO"


def as_tensor(values: Numbers, device: torch.device | str = "cpu") -> Tensor:
    """A copy: what is read from a file cannot be written to, and PyTorch warns of that."""
    plain = values.astype(np.int64) if values.dtype == object else values
    return torch.tensor(plain, device=device)


def sizes(numbers: Numbers) -> list[Any]:
    """Numbers as Python ints, and those that depend on the batch as symbols."""
    flat = numbers.reshape(-1)
    return list(flat) if flat.dtype == object else [int(n) for n in flat]


def axes_of(listed: Numbers | None, attribute: Sequence[int] | None) -> list[int] | None:
    """Axes: an input in newer opsets, an attribute in older ones."""
    return sizes(listed) if listed is not None else None if attribute is None else list(attribute)
