"""How weights are stored: squares not at all, and all others in eight bits if that is wanted.

A variance layer reads the weights of its mean layer, and squares them as it runs.

With int8 the weights are rounded in the ONNX model itself, to whole multiples of a step per filter,
and both models are run. So the cost in accuracy is known before any C is compiled. Squares follow
their weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onesigma.errors import InputError
from onesigma.exporters.c.nodes import Array, Node
from onesigma.runtime.comparison import checking_runtime

# Squares in float32, and one product with a factor, are rounded by less.
_ROUNDING = 1e-6
# The ops with weights: for each, which input they are, and the axis of the filters there.
_FILTERS = {
    "Conv": {1: 0},
    "ConvTranspose": {1: 1},
    "Gemm": {1: 1},
    "MatMul": {1: 1},
    **{op: {1: 1, 2: 1} for op in ("LSTM", "GRU", "RNN")},
}
_RANDOM = 64  # samples, if none are given


def share_squares(nodes: Sequence[Node]) -> None:
    """Where a layer's weights are f·w² of another's w, f per filter: let it use w, in place."""
    layers = [node.attributes for node in nodes if "weight" in node.attributes]
    for layer in layers:
        bases = [other["weight"] for other in layers if other["power"] == 1]
        for base in bases:
            factor = None if base is layer["weight"] else _factor_of_squares(layer["weight"], base)
            if factor is not None:
                layer |= {"weight": base, "power": 2, "factor": factor}
                break
    # One array for weights that are the same numbers: steps are compared by identity.
    shared: dict[tuple[object, bytes], Array] = {}
    for layer in layers:
        key = (layer["weight"].shape, layer["weight"].tobytes())
        layer["weight"] = shared.setdefault(key, layer["weight"])


def _factor_of_squares(weight: Array, base: Array) -> Array | None:
    """f with weight = f·base², one for each filter (row), or None."""
    if weight.shape != base.shape or float(weight.min()) < 0:
        return None
    squares = base.astype(np.float64) ** 2
    totals = squares.sum(1)
    factor = weight.sum(1, dtype=np.float64) / np.where(totals > 0, totals, 1)
    wanted = factor[:, None] * squares
    if (np.abs(weight - wanted) > _ROUNDING * wanted + np.finfo(np.float32).tiny).any():
        return None
    return np.asarray(factor, dtype=np.float32)


def int8_steps(weight: Array) -> Array:
    """For each filter (row), what one step of an eight-bit integer is worth."""
    largest = np.abs(weight).max(1)
    return np.where(largest > 0, largest / 127, 1).astype(np.float32)


@dataclass(frozen=True)
class Int8Cost:
    """What rounding the weights changes, on some inputs.

    Attributes:
        samples: how many inputs were compared.
        output: which output was compared: the probabilities, or the first if there are none.
        change: its largest change, relative to its largest value.
        labels: share of the inputs for which another element of it became the largest.
        var: median relative change of the variances, if the model has any.
    """

    samples: int
    output: str
    change: float
    labels: float
    var: float | None

    def __str__(self) -> str:
        var = "" if self.var is None else f", variances by {100 * self.var:.2g} % (median)"
        return (
            f"int8 weights, on {self.samples} inputs: {self.output} change by at most "
            f"{self.change:.2g}, {100 * self.labels:.2g} % of the labels{var}"
        )


def round_weights(
    model: onnx.ModelProto, examples: Sequence[Any] | None, shapes: Sequence[Sequence[int]]
) -> tuple[onnx.ModelProto, Int8Cost]:
    """The model with rounded weights, and what that costs on ``examples``, a batch per input."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    tensors = {tensor.name: tensor for tensor in result.graph.initializer}
    weights = {name: numpy_helper.to_array(tensor) for name, tensor in tensors.items()}
    axes = _filter_axes(result.graph.node, weights)
    moved = {name: np.moveaxis(weights[name], axis, 0) for name, axis in axes.items()}
    rows = {name: array.reshape(len(array), -1) for name, array in moved.items()}
    squares = _squares(rows)
    for name in rows.keys() - squares.keys():
        steps = int8_steps(rows[name])[:, None]
        rows[name] = np.rint(rows[name] / steps) * steps
    for name, (base, factor) in squares.items():
        rows[name] = factor[:, None] * rows[base] ** 2
    for name, axis in axes.items():
        array = np.moveaxis(rows[name].reshape(moved[name].shape), 0, axis)
        tensors[name].CopyFrom(numpy_helper.from_array(array.astype(weights[name].dtype), name))
    return result, _cost([model, result], examples, shapes)


def _filter_axes(nodes: Iterable[onnx.NodeProto], weights: dict[str, Array]) -> dict[str, int]:
    """For each initializer that is a layer's weights, the axis of its filters."""
    axes: dict[str, int] = {}
    transposed: dict[str, str] = {}
    for node in nodes:
        if node.op_type == "Transpose" and weights.get(node.input[0], np.empty(0)).ndim == 2:
            transposed[node.output[0]] = node.input[0]
        flags = {a.name: a.i for a in node.attribute}
        for place, axis in _FILTERS.get(node.op_type, {}).items():
            name = node.input[place]
            if flags.get("transB"):
                axis = 1 - axis
            if name in transposed:
                axis, name = 1 - axis, transposed[name]
            one = flags.get("group", 1) in (1, axis == 0)
            if name in weights and weights[name].ndim >= 2 and one:
                axes[name] = axis
    return axes


def _squares(rows: dict[str, Array]) -> dict[str, tuple[str, Array]]:
    """Which weights are f·w² of which others, and f."""
    found: dict[str, tuple[str, Array]] = {}
    for name, square in rows.items():
        for base, root in rows.items():
            factor = None if base == name else _factor_of_squares(square, root)
            if factor is not None:
                found[name] = (base, factor)
    return found


def _cost(
    models: Sequence[onnx.ModelProto], examples: Any, shapes: Sequence[Sequence[int]]
) -> Int8Cost:
    inputs = [value.name for value in models[0].graph.input]
    outputs = [value.name for value in models[0].graph.output]
    if examples is None:
        random = np.random.default_rng(0)
        examples = [random.standard_normal((_RANDOM, *shape[1:])) for shape in shapes]
    batches = [np.asarray(x, dtype=np.float32) for x in examples]
    if len(batches) != len(inputs):
        raise InputError(f"The model takes {len(inputs)} inputs, not {len(batches)}.")
    runs = []
    for model in models:
        session = checking_runtime()[1](model.SerializeToString())
        rows = [
            session.run(outputs, {k: b[i : i + 1] for k, b in zip(inputs, batches, strict=True)})
            for i in range(len(batches[0]))
        ]
        runs.append({k: np.stack([row[j] for row in rows]) for j, k in enumerate(outputs)})
    output = "probs" if "probs" in outputs else outputs[0]
    wanted, found = (run[output].reshape(len(batches[0]), -1) for run in runs)
    change = float(np.abs(wanted - found).max() / np.abs(wanted).max())
    labels = float(np.mean(wanted.argmax(1) != found.argmax(1)))
    var = None
    if "var" in outputs:
        before, after = (run["var"] for run in runs)
        var = float(np.median(np.abs(after / np.maximum(before, 1e-30) - 1)))
    return Int8Cost(len(wanted), output, change, labels, var)
