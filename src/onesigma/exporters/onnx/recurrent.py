"""Recurrent layers and cells: one LSTM, GRU or RNN of ONNX for each layer, both directions in one.

ONNX has its gates in another order than PyTorch, wants the weights of both directions in one tensor
and the two biases behind each other. All of that is done here, so that the file holds it ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from onesigma.errors import ExportError
from onesigma.exporters.onnx.ops import Value, require, writes

if TYPE_CHECKING:
    from onesigma.exporters.onnx.writer import Writer

aten = torch.ops.aten


@dataclass(frozen=True)
class _Kind:
    """An op of ONNX, and where PyTorch has the gates that it wants in its own order."""

    op: str
    gates: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


_LSTM = _Kind("LSTM", (0, 3, 1, 2))  # i f g o becomes i o f g
_GRU = _Kind("GRU", (1, 0, 2), {"linear_before_reset": 1})  # r z n becomes z r n
_TANH = _Kind("RNN", (0,))
_RELU = _Kind("RNN", (0,), {"activations": ["Relu"]})


def _layers(
    kind: _Kind,
    w: Writer,
    x: Value,
    state: Value | Sequence[Value],
    weights: Sequence[Value],
    *options: Any,
) -> tuple[str, ...]:
    """The sequence of outputs, then the last states of all layers."""
    biases, layers, dropout, train, bidirectional, batch_first = options
    require(not (train and dropout and layers > 1), "a recurrent layer in training mode")
    states = [state] if isinstance(state, Value) else state
    directions, each = 1 + bidirectional, 4 if biases else 2
    if len(weights) != layers * directions * each:
        raise ExportError(
            "An LSTM with projections (proj_size) has no op in ONNX: train it without them, or put "
            "a linear layer behind it."
        )
    sequence = w.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x.name
    ends: list[tuple[str, ...]] = []
    for layer in range(layers):
        own = weights[layer * directions * each :][: directions * each]
        parts = [own[i : i + each] for i in range(0, len(own), each)]
        begins = [_part(w, given, layer * directions, directions) for given in states]
        y, *last = _run(kind, w, sequence, parts, begins)
        ends.append(tuple(last))
        sequence = _sequence(w, y, directions, batch_first and layer == layers - 1)
    joined = (w.op("Concat", *part, axis=0) for part in zip(*ends, strict=True))
    return (sequence, *(joined if layers > 1 else ends[0]))


def _sequence(w: Writer, y: str, directions: int, batch_first: bool) -> str:
    """From (steps, directions, batch, units) to (steps, batch, units of all directions)."""
    if directions > 1:
        order = [2, 0, 1, 3] if batch_first else [0, 2, 1, 3]
        return w.op("Reshape", w.op("Transpose", y, perm=order), [0, 0, -1])
    one = w.op("Squeeze", y, [1])
    return w.op("Transpose", one, perm=[1, 0, 2]) if batch_first else one


def _cell(
    kind: _Kind, w: Writer, x: Value, state: Value | Sequence[Value], *weights: Value | None
) -> str | tuple[str, ...]:
    """A layer that makes one step."""
    require((len(weights) - weights.count(None)) in (2, 4), "a cell with one bias")
    states = [state] if isinstance(state, Value) else state
    begins = [None if w.is_zero(each) else w.op("Unsqueeze", each, [0]) for each in states]
    parts = [[weight for weight in weights if weight is not None]]
    _, *ends = _run(kind, w, w.op("Unsqueeze", x, [0]), parts, begins)
    last = tuple(w.op("Squeeze", end, [0]) for end in ends)
    return last[0] if isinstance(state, Value) else last


def _part(w: Writer, states: Value, start: int, count: int) -> str | None:
    """The states of one layer; nothing if they are zeros, which ONNX takes by itself."""
    if w.is_zero(states):
        return None
    if count == states.shape[0]:
        return states.name
    return w.op("Slice", states, [start], [start + count], [0])


def _run(
    kind: _Kind,
    w: Writer,
    sequence: str,
    directions: Sequence[Sequence[Value]],
    states: Sequence[str | None],
) -> list[str]:
    """One layer: its outputs (steps, directions, batch, units), then its last states."""
    require(all(x.constant for part in directions for x in part), "a layer of computed weights")

    def stacked(*places: int) -> Value:
        parts = [[_sorted(kind, part[place].example) for place in places] for part in directions]
        name = f"{directions[0][places[0]].name}:{kind.op}{len(directions)}"
        return w.constant(name, torch.stack([torch.cat(part) for part in parts]))

    attributes = dict(kind.attributes)
    if len(directions) == 2:
        attributes = {k: 2 * v if k == "activations" else v for k, v in attributes.items()}
        attributes["direction"] = "bidirectional"
    biases = stacked(2, 3) if len(directions[0]) == 4 else None
    inputs = (sequence, stacked(0), stacked(1), biases, None, *states)
    units = directions[0][1].shape[1]
    return w.several(1 + len(states), kind.op, *inputs, hidden_size=units, **attributes)


def _sorted(kind: _Kind, weight: Tensor) -> Tensor:
    gates = weight.chunk(len(kind.gates))
    return torch.cat([gates[place] for place in kind.gates])


for _kind, _layer, _step in (
    (_LSTM, aten.lstm.input, aten.lstm_cell.default),
    (_GRU, aten.gru.input, aten.gru_cell.default),
    (_TANH, aten.rnn_tanh.input, aten.rnn_tanh_cell.default),
    (_RELU, aten.rnn_relu.input, aten.rnn_relu_cell.default),
):
    writes(_layer)(partial(_layers, _kind))
    writes(_step)(partial(_cell, _kind))
