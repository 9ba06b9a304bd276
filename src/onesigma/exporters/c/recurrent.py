"""Recurrent layers as C: one direction of an LSTM, a GRU or an RNN is one node, and one loop.

A step multiplies the input and the state by their weights, with the function of linear layers,
and then makes the new state of the gates. States and gates lie in the arena; a state is set before
the loop and holds the last one after it. The sequence of states is stored only if it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onesigma.exporters.c.loops import File
from onesigma.exporters.c.nodes import Array, Builder, Node, Value, require
from onesigma.exporters.c.text import piece_lines
from onesigma.exporters.c.weighted_layers import add_dense, add_lane, interleave


@dataclass(frozen=True)
class _Kind:
    """What a step makes of its gates: ``a`` of the input, ``b`` of the state, n units each."""

    name: str  # of the piece of C that does so
    gates: int
    joins_biases: bool = True  # they are added to the same gates
    cell: bool = False


# By the activations of one direction; the first of an op are what it has if it does not say.
_KINDS = {
    ("LSTM", "Sigmoid", "Tanh", "Tanh"): _Kind("lstm", 4, cell=True),
    ("GRU", "Sigmoid", "Tanh"): _Kind("gru", 3, joins_biases=False),
    ("RNN", "Tanh"): _Kind("rnn_tanh", 1),
    ("RNN", "Relu"): _Kind("rnn_relu", 1),
}
_REVERSED = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def read_recurrent(
    op: str,
    b: Builder,
    x: Value | Array,
    w: Array,
    r: Array,
    biases: Array | None = None,
    lengths: Any = None,
    *states: Value | Array | None,
    direction: str = "forward",
    activations: Sequence[bytes] = (),
    linear_before_reset: int = 0,
    hidden_size: int = 0,
    **others: Any,
) -> tuple[Value, ...]:
    """The outputs of an ONNX op: all states, the last one, and of an LSTM its last cell."""
    fixed = not any(isinstance(each, Value) for each in (w, r, biases))
    require(fixed, "a recurrent layer of computed weights")
    require(
        lengths is None and not any(others.values()),
        f"a recurrent layer with lengths or {[*others]}",
    )
    require(
        op != "GRU" or linear_before_reset, "a recurrent layer that resets before it multiplies"
    )
    require(all(each is None for each in states[2:]), "a recurrent layer with peepholes")
    kind = _kind(op, [name.decode() for name in activations], len(w))
    x = b.dense(b.value(x))
    (steps, rows, _), (count, _, units) = x.shape, r.shape
    sequence, ends = b.new((steps, count, rows, units)), []
    begins = [*states, None, None][: 1 + kind.cell]
    for place, backwards in enumerate(_REVERSED[direction]):
        own = [_begin(b, given, place, (1, rows, units)) for given in begins]
        gates = b.new((2, rows, kind.gates * units))
        layer = {"kind": kind, "reversed": backwards, **_weights(kind, place, w, r, biases)}
        writes = (*own, gates, sequence.slice(1, place, 1))
        b.nodes.append(Node("Recurrent", (x, *own), writes, layer, b.name))
        ends.append(own)
    return sequence, *(b.join(parts) for parts in zip(*ends, strict=True))


def _kind(op: str, activations: list[str], directions: int) -> _Kind:
    found = [
        kind
        for (name, *usual), kind in _KINDS.items()
        if name == op and activations in ([], usual * directions)
    ]
    require(found, f"a recurrent layer with {', '.join(activations)}")
    return found[0]


def _begin(b: Builder, given: Value | Array | None, place: int, shape: tuple[int, ...]) -> Value:
    """A state in memory of its own, as it is before the first step."""
    state = b.value(0.0 if given is None else given)
    return b.copy(state if given is None else state.slice(0, place, 1), b.new(shape))


def _weights(kind: _Kind, place: int, w: Array, r: Array, biases: Array | None) -> dict[str, Array]:
    """The weights and biases of one direction."""
    bias = np.zeros((2, kind.gates * r.shape[2])) if biases is None else biases[place]
    first, second = np.split(np.ravel(bias), 2)
    if kind.joins_biases:
        first, second = first + second, np.zeros_like(second)
    weights = {name: each[place].astype(np.float32) for name, each in (("w", w), ("r", r))}
    return {"w_bias": first, "r_bias": second, **weights}


def drop_sequences(nodes: Sequence[Node], outputs: Mapping[str, Value]) -> None:
    """Do not store what nobody reads; where only the last state is read, read it as such."""
    for layer in [node for node in nodes if node.kind == "Recurrent"]:
        *kept, y = layer.writes
        readers = [n for n in nodes if any(v.storage is y.storage for v in n.reads)]
        last = y.storage.size - kept[0].size
        found = [v for n in readers for v in n.reads if v.storage is y.storage]
        alone = y.whole and not layer.attributes["reversed"]
        if any(v.storage is y.storage for v in outputs.values()):
            continue
        if all(alone and _within(v, last) for v in found):
            layer.writes = tuple(kept)
            for node in readers:
                node.reads = tuple(_moved(v, y, kept[0], last) for v in node.reads)


def _within(value: Value, first: int) -> bool:
    """Whether a view begins at ``first`` or later, and goes forwards."""
    return value.offset >= first and min(value.steps, default=0) >= 0


def _moved(value: Value, y: Value, state: Value, last: int) -> Value:
    if value.storage is not y.storage:
        return value
    return replace(value, storage=state.storage, offset=value.offset - last)


def render_recurrent(node: Node, file: File) -> list[str]:
    """Fill a struct with sizes and places, and call the function of its kind."""
    layer, (x, h, *cell), kind = node.attributes, node.reads, node.attributes["kind"]
    gates, *sequence = node.writes[1 + kind.cell :]
    (steps, rows, inputs), backwards = x.shape, layer["reversed"]
    begin, state = _first(file, x, backwards), file.pointer(h)
    w, lane = _product(file, layer, "w", begin, gates.slice(0, 0, 1))
    r, back = _product(file, layer, "r", state, gates.slice(0, 1, 1))
    members = {
        "w": w,
        "r": r,
        "in": lane,
        "back": back,
        "h": state,
        "c": file.pointer(cell[0]) if cell else "NULL",
        "y": _first(file, sequence[0], backwards) if sequence else "NULL",
        "inputs": inputs,
        "units": h.shape[-1],
        "rows": rows,
        "steps": steps,
        "x_step": (-1 if backwards else 1) * rows * inputs,
        "y_step": (-1 if backwards else 1) * (sequence[0].strides[0] if sequence else 0),
    }
    lines = [f"    .{name} = {member}," for name, member in members.items()]
    call = f"{_add_function(file, kind)}(&layer);"
    return ["const struct recurrent layer = {", *lines, "};", call]


def _add_function(file: File, kind: _Kind) -> str:
    dense = add_dense(file, [1])
    file.function("recurrent_types")
    states = ["float *h = g->h + row * n;", "float *c = g->c + row * n;"][: 1 + kind.cell]
    parts = {"gates": kind.gates, "dense": dense, "states": states}
    return file.function(kind.name, "recurrent", **parts, body=piece_lines(kind.name))


def _product(file: File, layer: dict[str, Any], name: str, x: str, gates: Value) -> tuple[str, str]:
    """The weights and the lane of one of the two products of a step."""
    table, bias = file.table(interleave(layer[name])), layer[f"{name}_bias"]
    return table, add_lane(file, x, file.pointer(gates), bias if bias.any() else None, None, 1)


def _first(file: File, value: Value, backwards: bool) -> str:
    """Where the step lies that the loop begins with."""
    start = value.shape[0] - 1 if backwards else 0
    return file.pointer(value.slice(0, start, 1))


RECURRENT = {"Recurrent": render_recurrent}
