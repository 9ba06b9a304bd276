"""Weights in eight bits: a quarter of the flash, and what that costs in accuracy, measured.

The weights are rounded in the ONNX model itself, to whole multiples of a step per filter, and both
models are run: so the cost is known before any C is compiled. Squares follow their weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onesigma.errors import InputError
from onesigma.exporters.c.lanes import int8_steps
from onesigma.exporters.c.values import Array
from onesigma.exporters.c.weights import factor_of_squares
from onesigma.runtime.comparison import checking_runtime

# The ops with weights, their second input, and the axis of the filters there.
_FILTERS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
_RANDOM = 64  # samples, where none are given


@dataclass(frozen=True)
class Int8Cost:
    """What rounding the weights changes, on some inputs.

    Attributes:
        samples: how many inputs were compared.
        output: which output was: the probabilities, or the first where the model has none.
        change: its largest change, relative to its largest value.
        labels: share of the inputs whose largest element of it became another.
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


def rounded(
    model: onnx.ModelProto, examples: Sequence[Any] | None, shapes: Sequence[Sequence[int]]
) -> tuple[onnx.ModelProto, Int8Cost]:
    """The model with rounded weights, and what that costs on ``examples``, a batch per input."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    axes = _filter_axes(graph.node, weights)
    squares = _squares(weights, axes)
    for name, axis in axes.items():
        if name not in squares:
            weights[name] = _rounded(weights[name], axis)
    for name, (base, factor) in squares.items():
        weights[name] = _from_rows(
            factor * _rows(weights[base], axes[base]) ** 2, weights[name], axes[name]
        )
    for tensor in graph.initializer:
        if tensor.name in axes:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return result, _cost(model, result, examples, shapes)


def _filter_axes(nodes: Iterable[onnx.NodeProto], weights: dict[str, Array]) -> dict[str, int]:
    """For each initializer that is a layer's weights, the axis of its filters."""
    axes: dict[str, int] = {}
    transposed: dict[str, str] = {}
    for node in nodes:
        if node.op_type == "Transpose" and weights.get(node.input[0], np.empty(0)).ndim == 2:
            transposed[node.output[0]] = node.input[0]
        if node.op_type not in _FILTERS:
            continue
        axis, name = _FILTERS[node.op_type], node.input[1]
        flags = {a.name: a.i for a in node.attribute}
        if flags.get("transB"):
            axis = 1 - axis
        if name in transposed:
            axis, name = 1 - axis, transposed[name]
        if name in weights and weights[name].ndim >= 2 and flags.get("group", 1) in (1, axis == 0):
            axes[name] = axis
    return axes


def _rows(weight: Array, axis: int) -> Array:
    return np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)


def _from_rows(rows: Array, like: Array, axis: int) -> Array:
    moved = np.moveaxis(like, axis, 0).shape
    return np.moveaxis(rows.reshape(moved), 0, axis).astype(like.dtype)


def _rounded(weight: Array, axis: int) -> Array:
    rows = _rows(weight, axis)
    steps = int8_steps(rows)[:, None]
    return _from_rows(np.rint(rows / steps) * steps, weight, axis)


def _squares(weights: dict[str, Array], axes: dict[str, int]) -> dict[str, tuple[str, Array]]:
    """Which weights are f·w² of which others, and f."""
    found: dict[str, tuple[str, Array]] = {}
    for name in axes:
        for base in axes:
            square, root = _rows(weights[name], axes[name]), _rows(weights[base], axes[base])
            if base == name or square.shape != root.shape:
                continue
            factor = factor_of_squares(square, root)
            if factor is not None:
                found[name] = (base, factor[:, None])
    return found


def _cost(
    exact: onnx.ModelProto,
    approximate: onnx.ModelProto,
    examples: Sequence[Any] | None,
    shapes: Sequence[Sequence[int]],
) -> Int8Cost:
    _, start = checking_runtime()
    inputs = [value.name for value in exact.graph.input]
    outputs = [value.name for value in exact.graph.output]
    batches = _samples(examples, shapes)
    if len(batches) != len(inputs):
        raise InputError(f"The model takes {len(inputs)} inputs, not {len(batches)}.")
    runs = []
    for model in (exact, approximate):
        session = start(model.SerializeToString())
        rows = [
            session.run(outputs, {k: b[i : i + 1] for k, b in zip(inputs, batches, strict=True)})
            for i in range(len(batches[0]))
        ]
        runs.append({k: np.stack([row[j] for row in rows]) for j, k in enumerate(outputs)})
    return _compared(*runs)


def _samples(examples: Sequence[Any] | None, shapes: Sequence[Sequence[int]]) -> list[Array]:
    if examples is not None:
        return [np.asarray(x, dtype=np.float32) for x in examples]
    random = np.random.default_rng(0)
    return [random.standard_normal((_RANDOM, *s[1:])).astype(np.float32) for s in shapes]


def _compared(exact: dict[str, Array], found: dict[str, Array]) -> Int8Cost:
    output = "probs" if "probs" in exact else next(iter(exact))
    wanted, got = (run[output].reshape(len(run[output]), -1) for run in (exact, found))
    change = float(np.abs(wanted - got).max() / np.abs(wanted).max())
    labels = float(np.mean(wanted.argmax(1) != got.argmax(1)))
    var = None
    if "var" in exact:
        var = float(np.median(np.abs(found["var"] / np.maximum(exact["var"], 1e-30) - 1)))
    return Int8Cost(len(wanted), output, change, labels, var)
