"""From an ONNX model to a graph of known shapes: batch of one, constants folded, sizes resolved.

An op is read by the function that is registered under its name (``reads``). It takes the builder,
the op's inputs and, as keywords, its attributes. An elementwise op needs no function: its line in
``elementwise.py`` is enough. Most ops that move elements are another view of the same memory, and
so are the windows of pools. Reductions, softmax and norms are made of simpler ops. A layer with
weights is one node, with a renderer of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import inf, prod, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onesigma.errors import ExportError, InputError
from onesigma.exporters.c.elementwise import ELEMENTWISE, REDUCTIONS
from onesigma.exporters.c.integers import read_dequantize, read_quantize
from onesigma.exporters.c.nodes import (
    Array,
    Builder,
    Graph,
    Made,
    Node,
    Storage,
    Value,
    Window,
    require,
)
from onesigma.exporters.c.recurrent import drop_sequences, read_recurrent
from onesigma.registry import Registry

# What an ONNX name stands for while reading; weights and sizes are arrays.
Operand = Value | Array
Sizes = Sequence[int]

# A reader returns what the op writes, or a tuple.
READERS: Registry[str, Callable[..., Any]] = Registry()
reads = READERS.add

_SIZES = ("Shape", "Size")
_C_TYPES = {TensorProto.BOOL: "bool", TensorProto.INT32: "int", TensorProto.INT64: "int"}
_OLDEST_OPSET = 13
# A product with many rows and few columns, as quadratures have, is computed as sums.
_MANY_ROWS, _FEW_OUTPUTS = 8, 8


def read(model: onnx.ModelProto, input_shapes: Sequence[Sizes] | None = None) -> Graph:
    """The model as a graph.

    Raises:
        ExportError: it holds ops that the generator does not know; all are named.
    """
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    require(version >= _OLDEST_OPSET, f"opset {version}, only {_OLDEST_OPSET} and above")
    _refuse_unknown(model.graph)
    b = Builder(version)
    names: dict[str, Operand | None] = {"": None}
    for weight in model.graph.initializer:
        names[weight.name] = numpy_helper.to_array(weight)
    given = [value for value in model.graph.input if value.name not in names]
    inputs = _inputs(given, input_shapes)
    names |= inputs
    for node in model.graph.node:
        operands = [names[name] for name in node.input]
        results = _read_node(b, node, operands)
        names.update(zip(node.output, results, strict=False))
        _remember(b, node, operands, results)
    outputs = _outputs(b, names, [output.name for output in model.graph.output])
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
    types = {name: _C_TYPES.get(kind, "float") for name, kind in kinds.items()}
    nodes = _used(b.nodes, outputs)
    drop_sequences(nodes, outputs)
    return Graph(nodes, inputs, outputs, types)


def _refuse_unknown(graph: onnx.GraphProto) -> None:
    """Name all unknown ops at once. What only weights and sizes feed is computed while reading."""
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
            "To add an op, see docs/microcontroller.md."
        )


def _inputs(
    given: Sequence[onnx.ValueInfoProto], shapes: Sequence[Sizes] | None
) -> dict[str, Value]:
    if shapes is not None and len(shapes) != len(given):
        raise InputError(f"The model takes {len(given)} inputs, not {len(shapes)}.")
    found = {}
    for i, value in enumerate(given):
        tensor, name = value.type.tensor_type, value.name
        require(tensor.elem_type == TensorProto.FLOAT, f"input '{name}': it is not float32")
        # A batch that is left open is one.
        sizes = tuple(dim.dim_value or int(n == 0) for n, dim in enumerate(tensor.shape.dim))
        shape = sizes if shapes is None else tuple(shapes[i])
        shape = (1, *shape) if len(shape) < len(sizes) else shape
        if 0 in shape:
            raise InputError(f"Input '{name}' has the open shape {shape}: give input_shape.")
        fits = len(shape) == len(sizes) and shape[0] == 1
        if not fits or any(n not in (0, m) for n, m in zip(sizes, shape, strict=True)):
            raise InputError(f"input_shape {shape} does not fit '{name}', {sizes}.")
        found[name] = Storage(name, shape, given=True).view()
    return found


def _read_node(b: Builder, node: onnx.NodeProto, inputs: list[Operand | None]) -> Sequence[Operand]:
    b.name = node.name or (node.output[0] if node.output else node.op_type)
    if not any(isinstance(x, Value) for x in inputs):
        if node.op_type == "DequantizeLinear":
            b.steps.append(np.asarray(inputs[1]).ravel())
        return _fold(b, node, inputs)
    attributes = _attributes(b, node)
    if node.op_type in _SIZES and isinstance(inputs[0], Value):
        shape = np.array(inputs[0].shape, dtype=np.int64)
        part = shape[attributes.get("start", 0) : attributes.get("end")]
        return [part if node.op_type == "Shape" else np.array(shape.prod())]
    if node.op_type in READERS:
        try:
            result = READERS[node.op_type](b, *inputs, **attributes)
        except (ExportError, TypeError) as error:  # TypeError: the reader lacks an argument
            raise ExportError(f"{node.op_type} '{b.name}': {error}") from error
        return result if isinstance(result, tuple) else [result]
    operands = [x for x in inputs if x is not None]
    numbers = {name: x for name, x in attributes.items() if isinstance(x, float)}
    return [b.elementwise(node.op_type, *operands, **numbers)]


def _remember(
    b: Builder, node: onnx.NodeProto, operands: Sequence[Any], results: Sequence[Operand]
) -> None:
    """Note by which op a value was made, for what runs it in eight bits."""
    again, known = partial(_read_node, b, node), [x for x in operands if isinstance(x, Value)]
    for place, value in enumerate(results):
        if isinstance(value, Value) and value not in known:
            made = Made(node.op_type, operands, _attributes(b, node), again, place)
            b.made.setdefault(value, made)


def _fold(b: Builder, node: onnx.NodeProto, inputs: list[Operand | None]) -> Sequence[Array]:
    """What weights and sizes alone determine, computed now."""
    from onnx.reference import ReferenceEvaluator

    feed = {name: x for name, x in zip(node.input, inputs, strict=True) if name}
    results = ReferenceEvaluator(node, opsets={"": b.opset}).run(None, feed)
    return [np.asarray(result) for result in results]


def _attributes(b: Builder, node: onnx.NodeProto) -> dict[str, Any]:
    """Those that are given, and the defaults of those that are floats."""
    schema = onnx.defs.get_schema(node.op_type, b.opset)
    defaults = [attribute.default_value for attribute in schema.attributes.values()]
    values: dict[str, Any] = {a.name: a.f for a in defaults if a.type == onnx.AttributeProto.FLOAT}
    values |= {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def _outputs(b: Builder, names: dict[str, Any], wanted: Sequence[str]) -> dict[str, Value]:
    """Each in a storage of its own, as the fields of the caller's struct are."""
    found: dict[str, Value] = {}
    for name in wanted:
        operand = names.get(name)
        if operand is None:
            raise ExportError(f"Nothing in the model computes its output '{name}'.")
        value = b.value(operand)
        taken = {other.storage for other in found.values()}
        if not value.whole or not value.storage.computed or value.storage in taken:
            value = b.copy(value, b.new(value.shape, truth=value.truth))
        found[name] = value
    return found


def _used(nodes: Sequence[Node], outputs: dict[str, Value]) -> list[Node]:
    """The nodes that an output depends on."""
    wanted = {value.storage for value in outputs.values()}
    kept = []
    for node in reversed(nodes):
        if any(value.storage in wanted for value in node.writes):
            kept.append(node)
            wanted |= {value.storage for value in node.reads}
    return kept[::-1]


@reads("Dropout")
def _dropout(b: Builder, x: Value, rate: Any = None, training: Any = None, **_: Any) -> Value:
    require(training is None or not np.any(training), "Dropout in training mode")
    return x


@reads("Reshape")
def _reshape(b: Builder, x: Value, sizes: Array, allowzero: int = 0) -> Value:
    shape = [x.shape[i] if n == 0 and not allowzero else int(n) for i, n in enumerate(sizes)]
    if -1 in shape:
        shape[shape.index(-1)] = x.size // -prod(shape)
    return b.reshape(x, shape)


@reads("Unsqueeze")
def _unsqueeze(b: Builder, x: Value, axes: Array) -> Value:
    rank = len(x.shape) + len(axes)
    new, old = {int(axis) % rank for axis in axes}, iter(x.shape)
    return b.reshape(x, [1 if i in new else next(old) for i in range(rank)])


@reads("Squeeze")
def _squeeze(b: Builder, x: Value, axes: Array | None = None) -> Value:
    chosen = [i for i, n in enumerate(x.shape) if n == 1] if axes is None else axes
    gone = [int(axis) % len(x.shape) for axis in chosen]
    return b.reshape(x, [n for i, n in enumerate(x.shape) if i not in gone])


@reads("Slice")
def _slice(
    b: Builder, x: Value, starts: Array, ends: Array, axes: Any = None, steps: Any = None
) -> Value:
    require(isinstance(starts, np.ndarray) and isinstance(ends, np.ndarray), "a computed Slice")
    chosen = range(len(starts)) if axes is None else (int(a) % len(x.shape) for a in axes)
    strides = [1] * len(starts) if steps is None else [int(step) for step in steps]
    for axis, start, end, step in zip(chosen, starts, ends, strides, strict=True):
        # Before the first element is the end for ONNX; a Python slice would count from the back.
        stop = None if step < 0 and int(end) < -x.shape[axis] else int(end)
        span = range(x.shape[axis])[int(start) : stop : step]
        x = x.slice(axis, span[0] if span else 0, len(span), step)
    return x


@reads("Split")
def _split(
    b: Builder, x: Value, sizes: Array | None = None, axis: int = 0, num_outputs: int = 0
) -> tuple[Value, ...]:
    if sizes is None:
        require(num_outputs, "a Split into parts whose number is not given")
        each = -(-x.shape[axis] // num_outputs)
        sizes = np.array([min(each, x.shape[axis] - i * each) for i in range(num_outputs)])
    starts = np.cumsum(sizes) - sizes
    return tuple(x.slice(axis, int(i), int(n)) for i, n in zip(starts, sizes, strict=True))


def _gather(b: Builder, x: Value, index: Array, axis: int = 0) -> Value:
    require(isinstance(x, Value) and isinstance(index, np.ndarray), "Gather by a computed index")
    axis %= len(x.shape)
    picked = [int(i) % x.shape[axis] for i in index.flat]
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    steps = set(np.diff(picked).tolist()) or {1}
    if len(steps) == 1:  # evenly spaced, as a single one always is
        found = x.slice(axis, picked[0], len(picked), steps.pop())
    else:
        shape = (*before, len(picked), *after)
        found = b.add("Take", [b.dense(x)], shape, axis=axis, places=np.array(picked))
    return b.reshape(found, [*before, *index.shape, *after])


@reads("Pad")
def _pad(
    b: Builder, x: Value, pads: Array, fill: Any = None, axes: Any = None, mode: str = "constant"
) -> Value:
    require(isinstance(pads, np.ndarray), "a computed Pad")
    chosen = range(len(x.shape)) if axes is None else [int(a) % len(x.shape) for a in axes]
    pairs = zip(pads[: len(chosen)], pads[len(chosen) :], strict=True)
    around = {axis: (int(n), int(m)) for axis, (n, m) in zip(chosen, pairs, strict=True)}
    if mode == "constant":
        return _surround(b, x, around, 0.0 if fill is None else float(fill))
    for axis, pair in around.items():
        if any(pair):
            places: Any = np.pad(np.arange(x.shape[axis]), pair, mode=mode)  # type: ignore[call-overload]
            x = _gather(b, x, places, axis)
    return x


def _surround(
    b: Builder, x: Value, pads: dict[int, tuple[int, int]], number: float, steps: Sizes = ()
) -> Value:
    """A number around x and, with ``steps``, between its elements along the padded axes."""
    shape, places = list(x.shape), []
    for i, (axis, (before, after)) in enumerate(pads.items()):
        require(before >= 0 and after >= 0, "a Pad that cuts off")
        step = steps[i] if steps else 1
        shape[axis] = (x.shape[axis] - 1) * step + 1 + before + after
        places.append((axis, before, x.shape[axis], step))
    number = max(number, 0.0) if x.storage.kind != "float" else number  # no code is lower
    result = target = b.copy(b.constant(number), b.new(shape, like=x))
    for place in places:
        target = target.slice(*place)
    b.copy(x, target)
    if number == 0 and set(steps) <= {1}:
        b.unpadded[result] = (x, pads)
    return result


def _reduction(
    kind: str,
    b: Builder,
    x: Value,
    axes: Array | Sizes | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Value:
    chosen = [] if axes is None else [int(axis) for axis in axes]
    if not chosen and noop_with_empty_axes:
        return x
    return b.reduce(kind, x, chosen, keepdims=bool(keepdims))


def _mean(b: Builder, x: Value, *axes: Any, **options: Any) -> Value:
    total = _reduction("ReduceSum", b, x, *axes, **options)
    return b.elementwise("Mul", total, total.size / x.size)


def _sum_square(b: Builder, x: Value, *axes: Any, **options: Any) -> Value:
    return _reduction("ReduceSum", b, b.elementwise("Mul", x, x), *axes, **options)


def _softmax(kind: str, b: Builder, x: Value, axis: int = -1) -> Value:
    centred = b.elementwise("Sub", x, b.reduce("ReduceMax", x, [axis]))
    powers = b.elementwise("Exp", centred)
    total = b.reduce("ReduceSum", powers, [axis])
    if kind == "LogSoftmax":
        return b.elementwise("Sub", centred, b.elementwise("Log", total))
    return b.elementwise("Div", powers, total)


@reads("BatchNormalization")
def _batch_norm(
    b: Builder, x: Value, *statistics: Array, epsilon: float, training_mode: int = 0, **_: float
) -> Value:
    require(not training_mode, "BatchNormalization in training mode")
    require(all(isinstance(a, np.ndarray) for a in statistics), "computed statistics")
    scale, shift, mean, var = (a.astype(np.float64) for a in statistics)
    factor = scale / np.sqrt(var + epsilon)
    shape = (-1, *[1] * (len(x.shape) - 2))
    scaled = b.elementwise("Mul", x, factor.reshape(shape))
    return b.elementwise("Add", scaled, (shift - mean * factor).reshape(shape))


@reads("LayerNormalization")
def _layer_norm(
    b: Builder,
    x: Value,
    scale: Operand,
    shift: Operand | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    axes = range(axis % len(x.shape), len(x.shape))
    centred = b.elementwise("Sub", x, _mean(b, x, axes))
    var = b.elementwise("Add", _mean(b, b.elementwise("Mul", centred, centred), axes), epsilon)
    normal = b.elementwise("Div", centred, b.elementwise("Sqrt", var))
    scaled = b.elementwise("Mul", normal, scale)
    return scaled if shift is None else b.elementwise("Add", scaled, shift)


def _chain(kind: str, b: Builder, *operands: Operand) -> Value:
    first, *rest = (b.value(x) for x in operands)
    return reduce(partial(b.elementwise, kind), rest, first)


@reads("Clip")
def _clip(b: Builder, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    x = x if low is None else b.elementwise("Max", x, low)
    return x if high is None else b.elementwise("Min", x, high)


@reads("Pow")
def _pow(b: Builder, x: Operand, exponent: Operand) -> Value:
    number = b.value(exponent).number if exponent.size == 1 else None
    if number == 2:
        return b.elementwise("Mul", x, x)
    if number in (0.5, -1):
        return b.elementwise("Sqrt" if number == 0.5 else "Reciprocal", x)
    return b.elementwise("Pow", x, exponent)


@reads("Gelu")
def _gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    require(approximate == "none", "Gelu by tanh")
    twice = b.elementwise("Add", b.elementwise("Erf", b.elementwise("Mul", x, sqrt(0.5))), 1.0)
    return b.elementwise("Mul", b.elementwise("Mul", x, 0.5), twice)


@reads("Cast")
def _cast(b: Builder, x: Value, to: int, **_: Any) -> Value:
    if to == TensorProto.BOOL:
        return x if x.truth else b.elementwise("Truth", x)
    if x.truth:
        return b.elementwise("UnTruth", x)
    real = to in (TensorProto.FLOAT, TensorProto.DOUBLE)
    return x if real else b.elementwise("Truncate", x)


@reads("ArgMax")
def _argmax(
    b: Builder, x: Value, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Value:
    require(not select_last_index, "ArgMax that takes the last of equals")
    axis %= len(x.shape)
    moved = x.transpose([i for i in range(len(x.shape)) if i != axis] + [axis])
    found = b.add("ArgMax", [b.dense(moved)], moved.shape[:-1])
    kept = [1 if i == axis else n for i, n in enumerate(x.shape)]
    return b.reshape(found, kept if keepdims else moved.shape[:-1])


def _window(
    kernel_shape: Sizes,
    strides: Sizes = (),
    pads: Sizes = (),
    dilations: Sizes = (),
    auto_pad: str = "NOTSET",
) -> Window:
    require(auto_pad in ("NOTSET", "VALID"), f"auto_pad {auto_pad}")
    ones, zeros = (1,) * len(kernel_shape), (0,) * 2 * len(kernel_shape)
    numbers = (kernel_shape, strides or ones, pads or zeros, dilations or ones)
    return Window(*(tuple(int(n) for n in each) for each in numbers))


def _kernel_window(weight: Operand, bias: Operand | None, options: dict[str, Any]) -> Window:
    fixed = isinstance(weight, np.ndarray) and not isinstance(bias, Value)
    require(fixed, "a convolution by computed weights")
    dims = len(weight.shape) - 2
    require(dims in (1, 2), f"a convolution in {dims} dimensions")
    return _window(**{"kernel_shape": weight.shape[2:], **options})


@reads("Conv")
def _conv(
    b: Builder, x: Value, weight: Array, bias: Any = None, group: int = 1, **options: Any
) -> Value:
    window = _kernel_window(weight, bias, options)
    source, zeros = b.unpadded.get(x, (x, {}))
    if all(axis >= 2 or pad == (0, 0) for axis, pad in zeros.items()):
        x, pads = source, np.array(window.pads).reshape(2, -1)
        for axis, pad in zeros.items():
            if axis >= 2:
                pads[:, axis - 2] += pad
        window = replace(window, pads=tuple(pads.ravel().tolist()))
    return _convolve(b, x, weight, bias, window)


def _convolve(b: Builder, x: Value, weight: Array, bias: Array | None, window: Window) -> Value:
    """Several rows are particles, or what the model itself made rows of."""
    shape = (1, weight.shape[0], *window.counts(x.shape[2:]))
    rows = [x.slice(0, row, 1) for row in range(x.shape[0])]
    return b.join([_add_layer(b, "Conv", row, shape, weight, bias, window) for row in rows])


def _add_layer(
    b: Builder, kind: str, x: Value, shape: Sizes, weight: Array, bias: Any, window: Any = None
) -> Value:
    rows = np.ascontiguousarray(weight.reshape(weight.shape[0], -1), dtype=np.float32)
    numbers: dict[str, Any] = {"weight": rows, "bias": bias, "power": 1, "factor": None}
    return b.add(kind, [b.dense(x)], tuple(shape), window=window, **numbers)


@reads("ConvTranspose")
def _conv_transpose(
    b: Builder,
    x: Value,
    weight: Array,
    bias: Any = None,
    group: int = 1,
    output_padding: Sizes = (),
    output_shape: Sizes | None = None,
    **options: Any,
) -> Value:
    """A convolution by the flipped kernel over the input with zeros between its elements."""
    window = _kernel_window(weight, bias, options)
    require(output_shape is None, "ConvTranspose by its output's shape")
    inputs, outputs, *kernel = weight.shape
    dims, around = len(kernel), {}
    for i, extra in enumerate(output_padding or [0] * dims):
        reach = window.reach[i] - 1
        around[2 + i] = (reach - window.pads[i], reach - window.pads[i + dims] + extra)
    spread = _surround(b, x, around, 0.0, window.strides)
    split = weight.reshape(group, inputs // group, outputs, *kernel).swapaxes(1, 2)
    by_filter = split.reshape(group * outputs, inputs // group, *kernel)
    flipped = np.flip(by_filter, tuple(range(2, 2 + dims)))
    return _convolve(b, spread, flipped, bias, _window(kernel, dilations=window.dilations))


@reads("Gemm")
def _gemm(
    b: Builder,
    x: Value,
    weight: Operand,
    bias: Operand | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's own names)
    transB: int = 0,  # noqa: N803
) -> Value:
    rows = b.value(x).transpose([1, 0]) if transA else b.value(x)
    if isinstance(weight, Value) or not isinstance(x, Value):
        right = b.value(weight)
        product = _product(b, rows, right.transpose([1, 0]) if transB else right)
        result = b.elementwise("Mul", product, alpha)
    else:
        by_output = alpha * (weight if transB else weight.T)
        if isinstance(bias, np.ndarray) and bias.size == by_output.shape[0]:
            return _dense(b, rows, by_output, beta * bias.ravel())
        result = _dense(b, rows, by_output, None)
    if bias is None:
        return result
    return b.elementwise("Add", result, b.elementwise("Mul", bias, beta))


def _dense(b: Builder, x: Value, weight: Array, bias: Array | None) -> Value:
    if prod(x.shape[:-1]) >= _MANY_ROWS and len(weight) <= _FEW_OUTPUTS and bias is None:
        return _sums(b, x, weight)
    return _add_layer(b, "Dense", x, (*x.shape[:-1], len(weight)), weight, bias)


def _sums(b: Builder, x: Value, weight: Array) -> Value:
    """Each output as a sum of products: the loop that computes x can sum, and need not store x."""
    sums = [b.reduce("ReduceSum", b.elementwise("Mul", x, row), [-1]) for row in weight]
    return b.join(sums, axis=-1)


@reads("MatMul")
def _matmul(b: Builder, left: Operand, right: Operand) -> Value:
    if isinstance(left, Value) and isinstance(right, np.ndarray) and right.ndim == 2:
        return _dense(b, left, right.T, None)
    if isinstance(left, Value) and isinstance(right, np.ndarray) and right.ndim == 1:
        return b.reshape(_dense(b, left, right[np.newaxis], None), list(left.shape[:-1]))
    return _product(b, b.value(left), b.value(right))


def _product(b: Builder, left: Value, right: Value) -> Value:
    """Two arrays that are both computed: a sum of products with a dimension more."""
    require(len(left.shape) > 1 and len(right.shape) > 1, "MatMul of a vector")
    *batch, m, k = left.shape
    *others, _, n = right.shape
    joint = tuple(np.broadcast_shapes(tuple(batch), tuple(others)))
    a = b.reshape(left, [*batch, m, 1, k]).broadcast((*joint, m, n, k))
    swapped = right.transpose([*range(len(others)), len(others) + 1, len(others)])
    c = b.reshape(swapped, [*others, 1, n, k]).broadcast((*joint, m, n, k))
    return b.reduce("ReduceSum", b.elementwise("Mul", a, c), [-1], keepdims=False)


def _slide(b: Builder, x: Value, window: Window, ceil: bool, around: float) -> Value:
    """x as (…, places, inside of a window), with ``around`` where a window leaves the input."""
    counts, zeros = window.counts(x.shape[2:], ceil=ceil), {}
    for i, count in enumerate(counts):
        before, reached = window.pads[i], (count - 1) * window.strides[i] + window.reach[i]
        zeros[2 + i] = (before, max(0, reached - x.shape[2 + i] - before))
    if any(sum(pair) for pair in zeros.values()):
        x = _surround(b, x, zeros, around)
    for i, count in enumerate(counts):
        x = x.slide(2 + i, count, window.strides[i], window.kernel[i], window.dilations[i])
    return x


@reads("MaxPool")
def _max_pool(
    b: Builder, x: Value, ceil_mode: int = 0, storage_order: int = 0, **options: Any
) -> Value:
    window = _window(**options)
    inside = _slide(b, x, window, bool(ceil_mode), -inf)
    return b.reduce("ReduceMax", inside, range(-len(window.kernel), 0), keepdims=False)


@reads("AveragePool")
def _average_pool(
    b: Builder, x: Value, ceil_mode: int = 0, count_include_pad: int = 0, **options: Any
) -> Value:
    require(not (ceil_mode and count_include_pad), "AveragePool that counts padding beyond its own")
    window = _window(**options)
    inside = _slide(b, x, window, bool(ceil_mode), 0.0)
    total = b.reduce("ReduceSum", inside, range(-len(window.kernel), 0), keepdims=False)
    if count_include_pad or (not any(window.pads) and not ceil_mode):
        return b.elementwise("Mul", total, 1 / prod(window.kernel))
    return b.elementwise("Mul", total, 1 / _count_inside(x.shape[2:], total.shape[2:], window))


def _count_inside(sizes: Sizes, counts: Sizes, window: Window) -> Array:
    """How many elements of each window are the input's own."""
    axes = []
    for i, size in enumerate(sizes):
        starts = np.arange(counts[i])[:, None] * window.strides[i] - window.pads[i]
        taps = starts + np.arange(window.kernel[i]) * window.dilations[i]
        axes.append(((taps >= 0) & (taps < size)).sum(1))
    return np.asarray(prod(np.ix_(*axes)), dtype=np.float64)


@reads("Resize")
def _resize(
    b: Builder,
    x: Value,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    **_: object,
) -> Value:
    """Along one axis after another: the nearest element, or a mixture of two."""
    require(mode in ("nearest", "linear"), f"Resize by mode {mode}")
    grid = coordinate_transformation_mode
    require(grid in ("half_pixel", "asymmetric"), f"Resize with {grid} coordinates")
    half = 0.5 if grid == "half_pixel" else 0.0
    for axis, n in enumerate(x.shape):
        scale = float(scales[axis]) if scales is not None and scales.size else 0.0
        out = int(n * scale) if scale else int(sizes[axis])  # type: ignore[index]
        scale = scale or out / n
        if out != n or scale != 1:
            at = (np.arange(out) + half) / scale - half
            nearest = mode == "nearest"
            x = _nearest(b, x, axis, at, nearest_mode) if nearest else _mix(b, x, axis, at)
    return x


def _nearest(b: Builder, x: Value, axis: int, at: Array, rounding: str) -> Value:
    half = {"floor": 0.0, "ceil": 0.0, "round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}
    up = rounding in ("ceil", "round_prefer_floor")
    places = (np.ceil if up else np.floor)(at + half[rounding])
    return _gather(b, x, places.clip(0, x.shape[axis] - 1).astype(np.int64), axis)


def _mix(b: Builder, x: Value, axis: int, at: Array) -> Value:
    left = np.floor(at)
    share = (at - left).reshape(-1, *[1] * (len(x.shape) - axis - 1))
    last = x.shape[axis] - 1
    low, high = (_gather(b, x, i.clip(0, last).astype(np.int64), axis) for i in (left, left + 1))
    parts = (b.elementwise("Mul", low, 1 - share), b.elementwise("Mul", high, share))
    return b.elementwise("Add", *parts)


# Ops that are one expression.
_SHORT: dict[str, Callable[..., Any]] = {
    "Concat": lambda b, *parts, axis: b.join([b.value(x) for x in parts], axis),
    "DequantizeLinear": read_dequantize,
    "Expand": lambda b, x, sizes: x.broadcast(np.broadcast_shapes(x.shape, tuple(sizes.tolist()))),
    "Flatten": lambda b, x, axis=1: b.reshape(x, [prod(x.shape[:axis]), prod(x.shape[axis:])]),
    "Gather": _gather,
    "GlobalAveragePool": lambda b, x: _mean(b, x, range(2, len(x.shape))),
    "GlobalMaxPool": lambda b, x: b.reduce("ReduceMax", x, range(2, len(x.shape))),
    "Identity": lambda b, x: x,
    "QuantizeLinear": read_quantize,
    "ReduceL2": lambda b, *x, **options: b.elementwise("Sqrt", _sum_square(b, *x, **options)),
    "ReduceMean": _mean,
    "ReduceSumSquare": _sum_square,
    "Sum": partial(_chain, "Add"),
    "Transpose": lambda b, x, perm=None: x.transpose(perm or range(len(x.shape))[::-1]),
    **{kind: partial(_chain, kind) for kind in ("Max", "Min")},
    **{kind: partial(_reduction, kind) for kind in REDUCTIONS},
    **{kind: partial(_softmax, kind) for kind in ("LogSoftmax", "Softmax")},
    **{kind: partial(read_recurrent, kind) for kind in ("GRU", "LSTM", "RNN")},
}
for _kind, _reader in _SHORT.items():
    reads(_kind)(_reader)
