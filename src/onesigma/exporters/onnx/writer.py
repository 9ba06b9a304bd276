"""From a graph of ATen ops to a graph of ONNX ops, by the table in ``ops.py``.

The graph is run once on example inputs, so that every entry sees the ranks, sizes and dtypes of its
arguments. ``torch.onnx`` knows more ops, but it takes 3 to 20 seconds where this takes 0.05; it
serves the graphs that hold an op without an entry (``torch_writer.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, fx

from onesigma.exporters.folding import nodes_before
from onesigma.exporters.onnx import Interface
from onesigma.exporters.onnx import recurrent as recurrent  # fills the table
from onesigma.exporters.onnx.ops import OPS, Input, UnwritableError, Value

# What weights alone determine is computed here and stored if it is small. A squared weight is not:
# it would double the file, and runtimes compute it once at load.
_SMALL = 2048


def write(
    graph: fx.GraphModule, examples: tuple[Tensor, ...], interface: Interface
) -> onnx.ModelProto:
    """The graph as ONNX.

    Raises:
        UnwritableError: an op has no entry, or an entry does not cover this use of it.
    """
    writer = Writer(graph, interface)
    with torch.no_grad():
        writer.run(*examples)
    return writer.model()


class Writer(fx.Interpreter):
    """Interprets a graph and writes down, op by op, what ONNX is to do."""

    def __init__(self, graph: fx.GraphModule, interface: Interface) -> None:
        super().__init__(graph)
        self.extra_traceback = False  # an error of ours says by itself what to do
        self.opset, self._interface = interface.opset, interface
        self._inputs = iter(interface.inputs)
        self._taken = {*interface.inputs, *interface.outputs}
        self._nodes: list[onnx.NodeProto] = []
        self._values: dict[fx.Node, Value] = {}
        self._constants: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], list[str]] = {}
        self._zeros: set[str] = set()
        # Of the current op: its name, the dtype of its result, that of numbers in its arguments.
        self._prefix, self._result, self._dtype = "", torch.float32, torch.float32

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        # Names of our own hold a colon, which no attribute and no argument in Python does.
        if n.op == "placeholder":
            self._values[n] = Value(next(self._inputs), result)
        elif n.op == "get_attr":
            name = str(n.target).removeprefix("network.").removeprefix("source.")
            if not isinstance(result, Tensor):
                raise UnwritableError("A graph within the graph is not covered")
            self._values[n] = self.constant(f"{name}:" if name in self._taken else name, result)
        elif n.op == "call_function":
            self._values[n] = self._write_node(n, result)
        return result

    def _write_node(self, node: fx.Node, result: Any) -> Value:
        inputs = [self._values[n] for n in node.all_input_nodes]
        constant = all(value.constant for value in inputs)
        if constant and isinstance(result, Tensor) and result.numel() <= _SMALL:
            return self.constant(f"{node.name}:", result)
        entry = OPS.get(node.target)
        if entry is None:
            raise UnwritableError(f"{node.target} has no entry")
        self._prefix, self._dtype = node.name, _dtype_of_numbers(result, inputs)
        first = result[0] if isinstance(result, tuple | list) else result
        self._result = getattr(first, "dtype", torch.int64)
        values: Any = self._values.__getitem__
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values)
        try:
            written = entry(self, *args, **kwargs)
        except TypeError as error:  # an argument that the entry does not take
            raise UnwritableError(f"{node.target}: {error}") from error
        if isinstance(written, str):
            return Value(written, result, constant)
        each = zip(written, result, strict=True)
        return Value("", result, constant, tuple(Value(*part, constant) for part in each))

    def require_one_dtype(self, *inputs: Input) -> None:
        """For entries: PyTorch promotes one dtype to another, ONNX does not."""
        dtypes = {value.example.dtype for value in inputs if isinstance(value, Value)}
        if len(dtypes) > 1 or self._result not in {torch.bool, *(dtypes or {self._result})}:
            raise UnwritableError("a mixture of dtypes is not covered")

    def op(self, kind: str, *inputs: Input, **attributes: Any) -> str:
        """Add one node, unless there is one like it; returns the name of its output."""
        return self.several(1, kind, *inputs, **attributes)[0]

    def several(self, count: int, kind: str, *inputs: Input, **attributes: Any) -> list[str]:
        """The same for a node with several outputs."""
        names = [self._name(value) for value in inputs]
        while names and not names[-1]:
            names.pop()
        key = (kind, *names, repr(attributes))
        if key not in self._known:
            own = f"{self._prefix}:{len(self._nodes)}"
            # TensorFlow writes names with a colon, too.
            own = f"{own}:" if own in self._taken else own
            self._known[key] = [own, *(f"{own}.{i}" for i in range(1, count))]
            self._nodes.append(helper.make_node(kind, names, self._known[key], **attributes))
        return self._known[key]

    def zeros(self, sizes: Input) -> str:
        """Zeros of a shape; ``is_zero`` then knows that they are."""
        name = self.op("Expand", 0, sizes)
        self._zeros.add(name)
        return name

    def is_zero(self, value: Value) -> bool:
        """Whether it is zero for any input."""
        return value.name in self._zeros or (value.constant and not value.example.any())

    def _name(self, value: Input) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, Value):
            return value.name
        if isinstance(value, int | float):
            number = torch.tensor(value, dtype=self._dtype)
            return self.constant(f"{value}:{self._dtype}", number).name
        if all(isinstance(n, int) for n in value):
            return self.constant(f"{tuple(value)}:", torch.tensor(value, dtype=torch.int64)).name
        # Sizes of which some are only known when it runs: vectors of one, joined.
        return self.op("Concat", *([n] if isinstance(n, int) else n for n in value), axis=0)

    def constant(self, name: str, tensor: Tensor) -> Value:
        """Store a tensor in the file, under a name that no other tensor has."""
        self._constants[name] = tensor.detach().cpu().contiguous().numpy()
        return Value(name, tensor, constant=True)

    def model(self) -> onnx.ModelProto:
        """What was written, after the graph was run."""
        placeholders = [n for n in self._values if n.op == "placeholder"]
        results: Any = self.graph.output_node().args[0]
        nodes = (*placeholders, *results)
        names = (*self._interface.inputs, *self._interface.outputs)
        infos = [
            _info(name, self._values[node], self._interface.dynamic)
            for name, node in zip(names, nodes, strict=True)
        ]
        self._rename([self._values[node].name for node in results])
        # States that ONNX takes for zeros are left out, and so is what made them.
        self._nodes = nodes_before(self._interface.outputs, self._nodes)
        used = {name for node in self._nodes for name in node.input}
        graph = helper.make_graph(
            self._nodes,
            "onesigma",
            infos[: len(placeholders)],
            infos[len(placeholders) :],
            [numpy_helper.from_array(a, n) for n, a in self._constants.items() if n in used],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        oldest = helper.find_min_ir_version_for(opsets)
        return helper.make_model(graph, opset_imports=opsets, ir_version=oldest)

    def _rename(self, results: Sequence[str]) -> None:
        """Give results the names of outputs; copy what no op made, and what is two outputs."""
        outputs = dict(zip(self._interface.outputs, results, strict=True))
        made = {name for node in self._nodes for name in node.output}
        names = {old: new for new, old in outputs.items() if old in made}
        for node in self._nodes:
            for side in (node.input, node.output):
                side[:] = [names.get(name, name) for name in side]
        for new, old in outputs.items():
            if names.get(old) != new:
                self._nodes.append(helper.make_node("Identity", [names.get(old, old)], [new]))


def _dtype_of_numbers(result: Any, inputs: Sequence[Value]) -> torch.dtype:
    """That of the result or, for a comparison with its bool, that of what is compared."""
    if isinstance(result, int):
        return torch.int64
    tensors = [result, *(value.example for value in inputs)]
    dtypes = [t.dtype for t in tensors if isinstance(t, Tensor)]
    return next((dtype for dtype in dtypes if dtype != torch.bool), torch.float32)


def _info(name: str, value: Value, batch: bool) -> onnx.ValueInfoProto:
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(str(value.example.dtype).split(".")[-1]))
    first = ["batch"] if batch else value.shape[:1]
    return helper.make_tensor_value_info(name, dtype, [*first, *value.shape[1:]])
