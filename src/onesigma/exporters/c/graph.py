"""From an ONNX model to a graph of known shapes: batch of one, constants folded, sizes resolved.

An op is read by the function registered under its name in the files beside this one (``reads``),
which takes the builder, the op's inputs and, as keywords, its attributes. An elementwise op needs
no function: its line in ``elementwise.py`` is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import numpy_helper

from onesigma.errors import ExportError, InputError
from onesigma.exporters.c.builder import Builder, without_unused
from onesigma.exporters.c.elementwise import ELEMENTWISE
from onesigma.exporters.c.values import Array, Graph, Storage, Value, whole

# What an ONNX name stands for while reading; sizes and weights are arrays.
Known = Value | Array
Reader = Callable[..., Any]

READERS: dict[str, Reader] = {}
_SIZES = ("Shape", "Size")
_OLDEST_OPSET = 13
R = TypeVar("R", bound=Reader)


def reads(*kinds: str) -> Callable[[R], R]:
    """Make a function the reader of these ONNX ops; it returns what the op does, or a tuple."""

    def register(reader: R) -> R:
        for kind in kinds:
            assert kind not in READERS, f"{kind} has a reader already"
            READERS[kind] = reader
        return reader

    return register


def known(condition: object, what: str) -> None:
    """For readers: refuse a use of an op that would come out wrong."""
    if not condition:
        raise ExportError(f"The C generator does not know {what}.")


def load(model: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    if not Path(model).is_file():
        raise InputError(f"{model}: there is no such file.")
    try:
        return onnx.load(str(model))
    except Exception as error:  # protobuf's own class, of a module that moves between versions
        raise InputError(f"{model} cannot be read as ONNX: {error}") from error


def read(model: onnx.ModelProto, input_shapes: Sequence[Sequence[int]] | None = None) -> Graph:
    """The model as a graph.

    Raises:
        ExportError: it holds ops that the generator does not know; all are named.
    """
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    known(version >= _OLDEST_OPSET, f"opset {version}, only {_OLDEST_OPSET} and above")
    _refuse_unknown(model.graph)
    builder = Builder()
    names: dict[str, Known | None] = {"": None}
    for weight in model.graph.initializer:
        names[weight.name] = numpy_helper.to_array(weight)
    inputs = _inputs(model.graph, names, input_shapes)
    names |= inputs
    for node in model.graph.node:
        results = _read(builder, node, [names[name] for name in node.input], version)
        names.update(zip(node.output, results, strict=False))
    outputs = _outputs(builder, names, [output.name for output in model.graph.output])
    types = {o.name: _type(o.type.tensor_type.elem_type) for o in model.graph.output}
    nodes = without_unused(builder.nodes, list(outputs.values()))
    return Graph(nodes, inputs, outputs, types)


def _type(element: int) -> str:
    if element == onnx.TensorProto.BOOL:
        return "bool"
    return "int" if element in (onnx.TensorProto.INT32, onnx.TensorProto.INT64) else "float"


def _refuse_unknown(graph: onnx.GraphProto) -> None:
    """Name them all at once; what only weights and sizes feed is computed here, whatever it is."""
    fixed = {"", *(weight.name for weight in graph.initializer)}
    unknown = set()
    for node in graph.node:
        if node.op_type in _SIZES or all(name in fixed for name in node.input):
            fixed.update(node.output)
        elif node.domain not in ("", "ai.onnx"):
            unknown.add(f"{node.domain}.{node.op_type}")
        elif node.op_type not in READERS and node.op_type not in ELEMENTWISE:
            unknown.add(node.op_type)
    if unknown:
        raise ExportError(
            f"The C generator does not know: {', '.join(sorted(unknown))}. Nothing was written. "
            "Adding an op is described in docs/microcontroller.md."
        )


def _inputs(
    graph: onnx.GraphProto,
    names: dict[str, Known | None],
    shapes: Sequence[Sequence[int]] | None,
) -> dict[str, Value]:
    given = [value for value in graph.input if value.name not in names]
    if shapes is not None and len(shapes) != len(given):
        raise InputError(f"The model takes {len(given)} inputs, not {len(shapes)}.")
    found = {}
    for i, value in enumerate(given):
        tensor = value.type.tensor_type
        known(tensor.elem_type == onnx.TensorProto.FLOAT, f"input '{value.name}': it is no float32")
        # The batch is one, whatever the file calls it.
        sizes = [dim.dim_value or (1 if n == 0 else 0) for n, dim in enumerate(tensor.shape.dim)]
        shape = tuple(shapes[i]) if shapes is not None else tuple(sizes)
        if 0 in shape:
            raise InputError(f"Input '{value.name}' has the shape {shape}: give input_shape.")
        fits = len(shape) == len(sizes) and all(
            a in (0, b) for a, b in zip(sizes, shape, strict=True)
        )
        if not fits or shape[0] != 1:
            raise InputError(f"input_shape {shape} does not fit '{value.name}', {tuple(sizes)}.")
        found[value.name] = whole(Storage(value.name, shape, given=True))
    return found


def _read(
    builder: Builder, node: onnx.NodeProto, inputs: list[Known | None], version: int
) -> Sequence[Known]:
    builder.name = node.name or (node.output[0] if node.output else node.op_type)
    if node.op_type in _SIZES and isinstance(inputs[0], Value):
        shape = np.array(inputs[0].shape, dtype=np.int64)
        attributes = _attributes(node)
        part = shape[attributes.get("start", 0) : attributes.get("end")]
        return [part if node.op_type == "Shape" else np.array(shape.prod())]
    if not any(isinstance(x, Value) for x in inputs):
        return _folded(node, inputs, version)
    if node.op_type in READERS:
        try:
            result: Any = READERS[node.op_type](builder, *inputs, **_attributes(node))
        except TypeError as error:  # an attribute or an input that the reader does not take
            raise ExportError(
                f"The C generator does not know this {node.op_type}: {error}"
            ) from error
        return result if isinstance(result, tuple) else [result]
    operands = [x for x in inputs if x is not None]
    numbers = _numbers(node, version)
    return [builder.elementwise(node.op_type, *operands, **numbers)]


def _folded(node: onnx.NodeProto, inputs: list[Known | None], version: int) -> Sequence[Array]:
    """What weights and sizes alone determine, computed now."""
    from onnx.reference import ReferenceEvaluator

    feed = {name: x for name, x in zip(node.input, inputs, strict=True) if name}
    opsets = {"": version}
    results = ReferenceEvaluator(node, opsets=opsets).run(None, feed)
    return [np.asarray(result) for result in results]


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def _numbers(node: onnx.NodeProto, version: int) -> dict[str, float]:
    """The attributes of an elementwise op, those left out at their default."""
    schema = onnx.defs.get_schema(node.op_type, version)
    defaults = {
        name: onnx.helper.get_attribute_value(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type == onnx.AttributeProto.FLOAT
    }
    return defaults | {k: v for k, v in _attributes(node).items() if isinstance(v, float)}


def _outputs(
    builder: Builder, names: dict[str, Known | None], wanted: Sequence[str]
) -> dict[str, Value]:
    """Each in a storage of its own, as the fields of the caller's struct are."""
    found: dict[str, Value] = {}
    for name in wanted:
        value = names.get(name)
        known(value is not None, f"output '{name}': nothing computes it")
        assert value is not None
        result = builder.value(value)
        taken = {other.storage for other in found.values()}
        if not result.whole or not result.storage.computed or result.storage in taken:
            result = builder.copied(result)
        found[name] = result
    return found
