"""A graph as an ``nn.Module`` with a submodule per node, so that reports use the file's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesigma.errors import ModelError, OnesigmaError, UnsupportedOp
from onesigma.importers.onnx import recurrent as recurrent  # fills the table
from onesigma.importers.onnx.dropout_sites import Dropout
from onesigma.importers.onnx.ops import MAX_ELEMENTS, OPS, Value, is_whole
from onesigma.importers.onnx.parse import Array, Node, OnnxGraph


def apply(node: Node, opset: int, values: Sequence[Value]) -> tuple[Any, ...]:
    """The node's outputs; on numbers alone, numbers.

    Raises:
        ModelError, UnsupportedOp: it cannot be computed; the message names the node.
    """
    try:
        op, count = OPS[node.op], len(node.outputs)
        result = op(*values, opset=opset, outputs=count, **node.attributes)
    except OnesigmaError as error:
        raise type(error)(f"{node}: {str(error).rstrip('.')}.") from error
    except Exception as error:
        shapes = ", ".join("–" if v is None else str(tuple(v.shape)) for v in values)
        raise ModelError(f"{node} cannot be computed on shapes {shapes}: {error}") from error
    if isinstance(result, tuple | list):
        return tuple(result)
    if isinstance(result, Tensor | np.ndarray):
        return (result,)
    # Of an array of objects, numpy hands out a single one as it is.
    return (np.array(result, dtype=None if isinstance(result, np.generic) else object),)


class Step(nn.Module):
    """One node, and the dropout after it if there is one.

    ``sources`` says where its inputs come from: by name, or they are these numbers.
    """

    def __init__(
        self, node: Node, opset: int, sources: list[str | Array | None], dropout: Dropout | None
    ) -> None:
        super().__init__()
        self.node, self.opset, self.sources, self.dropout = node, opset, sources, dropout

    def forward(self, *values: Value) -> tuple[Any, ...]:
        result = apply(self.node, self.opset, values)
        if self.dropout is None:
            return result
        drop = torch.feature_dropout if self.dropout.channels else F.dropout
        return (drop(result[0], self.dropout.rate, self.training), *result[1:])

    def extra_repr(self) -> str:
        return self.node.op + ("" if self.dropout is None else f", dropout {self.dropout}")


class OnnxModule(nn.Module):
    """The network of an ONNX file, made by ``read_onnx``.

    Attributes:
        input_names: as in the file, in the order of ``forward``.
        output_name: as in the file.
        input_shapes: the shape of each input; None stands for any batch.
        takes_positive: whether ``examples`` are positive numbers only.
        notes: what a report is to say of the file.
    """

    def __init__(self, graph: OnnxGraph, sites: Mapping[str, Dropout] | None = None) -> None:
        super().__init__()
        self.input_names = [each.name for each in graph.inputs]
        self.input_shapes = [each.shape for each in graph.inputs]
        self.input_dtypes = [getattr(torch, each.dtype) for each in graph.inputs]
        self.output_name = graph.output
        self.takes_positive = False
        self.notes: tuple[str, ...] = ()
        # Where the module has each weight, and each node, of the file.
        self._weights: dict[str, str] = {}
        self._steps: list[str] = []
        for node in graph.nodes:
            sources = [self._source(node, i, graph.constants) for i in range(len(node.inputs))]
            step = Step(node, graph.opset, sources, (sites or {}).get(node.name))
            self._steps.append(_attach(self, node.name, step))

    def _source(
        self, node: Node, position: int, constants: Mapping[str, Array]
    ) -> str | Array | None:
        name, op = node.inputs[position], OPS[node.op]
        values = constants.get(name)
        if values is None:
            return name or None
        if op.keeps_numbers(position, values) or (op.takes_numbers and is_whole(values)):
            return values
        if name not in self._weights:
            # Names that a saved model may have: letters, digits and dots.
            plain = re.sub(r"[^A-Za-z0-9_.]", "_", name)
            self._weights[name] = _attach(self, f"weights.{plain}", _weight(values))
        return name

    def forward(self, *inputs: Tensor) -> Tensor:
        output: Tensor = _look_up(self.output_name, self.values(*inputs), "the output")
        return output

    def values(self, *inputs: Tensor) -> dict[str, Any]:
        """All that the nodes compute, by name."""
        known: dict[str, Any] = dict(zip(self.input_names, inputs, strict=True))
        known |= {name: attrgetter(path)(self) for name, path in self._weights.items()}
        for step in self.steps():
            user = str(step.node)
            values = (_look_up(s, known, user) if isinstance(s, str) else s for s in step.sources)
            known |= zip(step.node.outputs, step(*values), strict=False)
        return known

    def steps(self) -> list[Step]:
        """The nodes in order."""
        return [attrgetter(path)(self) for path in self._steps]

    def examples(self, batch: int) -> tuple[Tensor, ...]:
        """Random inputs of the shapes that the file declares; zeros where it takes integers."""
        generator = torch.Generator().manual_seed(0)
        inputs = []
        for shape, dtype in zip(self.input_shapes, self.input_dtypes, strict=True):
            size = [batch, *(n for n in shape[1:] if n is not None)]
            if prod(size) > MAX_ELEMENTS:
                raise ModelError(f"An input of shape {tuple(size)} is more than any network takes.")
            real = dtype.is_floating_point
            drawn = torch.randn(size, generator=generator) if real else torch.zeros(size)
            inputs.append((drawn.abs() if self.takes_positive else drawn).to(dtype))
        return tuple(inputs)


def _look_up(name: str, values: Mapping[str, Any], user: str) -> Any:
    if name not in values:
        raise UnsupportedOp(f"{user} needs '{name}', a second output of a node: not supported.")
    return values[name]


def _weight(values: Array) -> Tensor:
    tensor = torch.from_numpy(np.array(values))  # a copy, that may be written to
    finite = tensor.is_floating_point() and bool(torch.isfinite(tensor).all())
    # Indices, and masks that hold −∞, are buffers. Nothing here is to be trained.
    return nn.Parameter(tensor, requires_grad=False) if finite else tensor


def _attach(root: nn.Module, name: str, part: nn.Module | Tensor) -> str:
    """Make ``part`` an attribute of that dotted name, or of one like it; returns the path."""
    *outer, leaf = name.split(".")
    home = root
    for step in outer:
        if step and not hasattr(home, step):
            home.add_module(step, nn.Module())
        inner = getattr(home, step, None)
        if not isinstance(inner, nn.Module):  # the name of something else
            return _attach(root, name.replace(".", "_"), part)
        home = inner
    while not leaf or hasattr(home, leaf):
        leaf += "_"
    if isinstance(part, nn.Module | nn.Parameter):
        setattr(home, leaf, part)
    else:
        home.register_buffer(leaf, part)
    return ".".join([*outer, leaf])
