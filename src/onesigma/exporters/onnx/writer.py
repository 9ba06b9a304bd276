"""From a graph of ATen ops to a graph of ONNX ops, one table entry per op.

The graph is run once on example inputs, so that every entry sees the ranks, sizes and dtypes of its
arguments. ``torch.onnx`` knows more ops, but it takes 3 to 20 seconds where this takes 0.05; it
serves the graphs that hold an op without an entry (``torch_onnx.py``).

To add an entry: a function in one of the files beside this one, that takes the writer and then the
arguments of the ATen op, and calls ``w.op`` once per ONNX op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, fx

# What weights alone determine is computed here and stored if it is small. A squared weight is not:
# it would double the file, and runtimes compute it once at load.
_SMALL = 2048


class UnwritableError(Exception):
    """An op, or a use of one, that the table does not cover."""


def covers(condition: object, what: str) -> None:
    """For entries: refuse a use that would come out wrong."""
    if not condition:
        raise UnwritableError(f"{what} is not covered")


@dataclass(frozen=True)
class Value:
    """A value of the graph: its name in ONNX, what it was on the example, and if weights fix it."""

    name: str
    example: Any
    constant: bool = False

    @property
    def rank(self) -> int:
        return int(self.example.dim())

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.example.shape)


# An argument of an ONNX op: a value, the name of one, a number, sizes; None is left out.
Input = Value | str | float | Sequence[Any] | None
Entry = Callable[..., str]

TABLE: dict[Any, Entry] = {}


def writes(*targets: Any) -> Callable[[Entry], Entry]:
    """Make a function the entry of these ATen ops."""

    def register(entry: Entry) -> Entry:
        for target in targets:
            assert target not in TABLE, f"{target} has an entry already"
            TABLE[target] = entry
        return entry

    return register


def write(
    graph: fx.GraphModule,
    examples: tuple[Tensor, ...],
    opset: int,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic: bool,
) -> onnx.ModelProto:
    """The graph as ONNX, its inputs and outputs so named; ``dynamic``: the batch is left open.

    Raises:
        UnwritableError: an op has no entry.
    """
    writer = Writer(graph, opset, inputs, outputs)
    with torch.no_grad():
        writer.run(*examples)
    return writer.model(dynamic)


class Writer(fx.Interpreter):
    """Interprets a graph and writes down, op by op, what ONNX is to do."""

    def __init__(
        self,
        graph: fx.GraphModule,
        opset: int,
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        super().__init__(graph)
        self._placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self._results: Any = graph.graph.output_node().args[0]
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self._inputs, self._outputs = inputs, outputs
        self._values: dict[fx.Node, Value] = {}
        self._constants: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], str] = {}
        # Of the current op: its name, the dtype of its result, that of numbers in its arguments.
        self._prefix, self._result, self._dtype = "", torch.float32, torch.float32

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        # Names of our own hold a colon, which no attribute and no argument in Python does.
        if n.op == "placeholder":
            self._values[n] = Value(self._inputs[self._placeholders.index(n)], result)
        elif n.op == "get_attr":
            name = str(n.target).removeprefix("network.").removeprefix("source.")
            covers(isinstance(result, Tensor), "a graph within the graph")
            taken = name in (*self._inputs, *self._outputs)
            self._values[n] = self._stored(f"{name}:" if taken else name, result)
        elif n.op == "call_function":
            self._values[n] = self._written(n, result)
        return result

    def _written(self, node: fx.Node, result: Any) -> Value:
        inputs = [self._values[n] for n in node.all_input_nodes]
        constant = all(value.constant for value in inputs)
        if constant and isinstance(result, Tensor) and result.numel() <= _SMALL:
            return self._stored(f"{node.name}:", result)
        entry = TABLE.get(node.target)
        if entry is None:
            raise UnwritableError(f"{node.target} has no entry")
        self._prefix, self._dtype = node.name, _dtype_of_numbers(result, inputs)
        self._result = getattr(result, "dtype", torch.int64)
        values: Any = self._values.__getitem__
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values)
        try:
            return Value(entry(self, *args, **kwargs), result, constant)
        except TypeError as error:  # an argument that the entry does not take
            raise UnwritableError(f"{node.target}: {error}") from error

    def alike(self, *inputs: Input) -> None:
        """For entries: PyTorch promotes one dtype to another, ONNX does not."""
        dtypes = {value.example.dtype for value in inputs if isinstance(value, Value)}
        same = len(dtypes) <= 1 and self._result in {torch.bool, *(dtypes or {self._result})}
        covers(same, "a mixture of dtypes")

    def op(self, kind: str, *inputs: Input, **attributes: Any) -> str:
        """Add one node, unless there is one like it; returns the name of its output."""
        names = [self._name(value) for value in inputs]
        while names and not names[-1]:
            names.pop()
        key = (kind, *names, repr(attributes))
        if key not in self._known:
            own = f"{self._prefix}:{len(self.nodes)}"
            # TensorFlow writes names with a colon too.
            self._known[key] = f"{own}:" if own in (*self._inputs, *self._outputs) else own
            self.nodes.append(helper.make_node(kind, names, [self._known[key]], **attributes))
        return self._known[key]

    def _name(self, value: Input) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, Value):
            return value.name
        if isinstance(value, int | float):
            return self._stored(
                f"{value}:{self._dtype}", torch.tensor(value, dtype=self._dtype)
            ).name
        if all(isinstance(n, int) for n in value):
            return self._stored(f"{tuple(value)}:", torch.tensor(value, dtype=torch.int64)).name
        # Sizes of which some are only known when it runs: vectors of one, joined.
        return self.op("Concat", *([n] if isinstance(n, int) else n for n in value), axis=0)

    def index(self, value: int) -> Value:
        """An integer as an index, whatever the dtype of the current op."""
        return self._stored(f"{value}:index", torch.tensor(value))

    def flag(self, value: bool) -> Value:
        """True or false, whatever the dtype of the current op."""
        return self._stored(f"{value}:flag", torch.tensor(value))

    def filled(self, count: int, value: float) -> Value:
        """A vector of one number, where ONNX wants a weight that PyTorch leaves out."""
        numbers = torch.full((count,), value, dtype=self._dtype)
        return self._stored(f"{value}x{count}:{self._dtype}", numbers)

    def vector(self, numbers: Sequence[float]) -> Value:
        """Factors, which ONNX takes in float32 whatever else is computed in."""
        return self._stored(f"{tuple(numbers)}:factors", torch.tensor(numbers, dtype=torch.float32))

    def constant(self, name: str, tensor: Tensor) -> Value:
        """A constant that an entry makes of others, under a name of its own."""
        return self._stored(name, tensor)

    def _stored(self, name: str, tensor: Tensor) -> Value:
        self._constants[name] = tensor.detach().cpu().contiguous().numpy()
        return Value(name, tensor, constant=True)

    def model(self, batch: bool) -> onnx.ModelProto:
        """The graph written, once it was run; ``batch``: the first dimension is left open."""
        given = [self._values[node] for node in self._placeholders]
        results = [self._values[node] for node in self._results]
        self._rename(dict(zip(self._outputs, (value.name for value in results), strict=True)))
        used = {name for node in self.nodes for name in node.input}
        graph = helper.make_graph(
            self.nodes,
            "onesigma",
            [_info(name, value, batch) for name, value in zip(self._inputs, given, strict=True)],
            [_info(name, value, batch) for name, value in zip(self._outputs, results, strict=True)],
            [numpy_helper.from_array(a, n) for n, a in self._constants.items() if n in used],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        oldest = helper.find_min_ir_version_for(opsets)
        return helper.make_model(graph, opset_imports=opsets, ir_version=oldest)

    def _rename(self, outputs: dict[str, str]) -> None:
        """Let results have the names of outputs; what no op made, or is two of them, is copied."""
        made = {name for node in self.nodes for name in node.output}
        names = {old: new for new, old in outputs.items() if old in made}
        for node in self.nodes:
            for side in (node.input, node.output):
                side[:] = [names.get(name, name) for name in side]
        for new, old in outputs.items():
            if names.get(old) != new:
                self.nodes.append(helper.make_node("Identity", [names.get(old, old)], [new]))


def _dtype_of_numbers(result: Any, inputs: Sequence[Value]) -> torch.dtype:
    """That of the result; for a comparison, whose result is bool, that of what is compared."""
    if isinstance(result, int):
        return torch.int64
    tensors = [result, *(value.example for value in inputs)]
    dtypes = [t.dtype for t in tensors if isinstance(t, Tensor)]
    return next((dtype for dtype in dtypes if dtype != torch.bool), torch.float32)


def _info(name: str, value: Value, batch: bool) -> onnx.ValueInfoProto:
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(str(value.example.dtype).split(".")[-1]))
    first = ["batch"] if batch else [value.shape[0]]
    return helper.make_tensor_value_info(name, dtype, [*first, *value.shape[1:]])
