"""LSTM, GRU and RNN of ONNX as PyTorch's own layers.

ONNX has its gates in another order, the weights of both directions in one tensor and the two biases
behind each other. ``rewrite`` hands the weights of a file over as PyTorch has them, after the other
inputs, so that they are weights of the network like any other.
"""

# ruff: noqa: N802, N803  (functions and inputs are spelt as in ONNX)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onesigma.importers.onnx.ops import Numbers, onnx_op, require

# Where ONNX has the gates that PyTorch wants in its own order, and where the weights come.
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
FIRST_WEIGHT = {"LSTM": 8, "GRU": 6, "RNN": 6}
_LAYERS = {"LSTM": torch.lstm, "GRU": torch.gru, "Tanh": torch.rnn_tanh, "Relu": torch.rnn_relu}
_USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}


def torch_weights(op: str, W: Any, R: Any, B: Any) -> list[Any]:
    """Those of both directions as PyTorch has them: of the input, of the state, the two biases."""
    gates, units = _GATES[op], R.shape[-1]
    rows = [gate * units + unit for gate in gates for unit in range(units)]
    fits = len(W.shape) == len(R.shape) == 3 and W.shape[:2] == R.shape[:2]
    require(fits and R.shape[1] == len(rows), f"{op} with weights of these shapes")
    shape = (len(W), 2 * len(rows))
    require(B is None or tuple(B.shape) == shape, f"{op} with biases of this shape")
    found = []
    for place in range(len(W)):
        found += [W[place][rows], R[place][rows]]
        if B is not None:
            found += [B[place][: len(rows)][rows], B[place][len(rows) :][rows]]
    return found


def _run(
    op: str,
    x: Tensor,
    given: Sequence[Any],
    states: Sequence[Tensor | None],
    weights: Sequence[Tensor],
    direction: str,
    layer: Any,
) -> tuple[Tensor, ...]:
    """All states (steps, directions, batch, units), then the last ones."""
    plain = weights or torch_weights(op, *given)
    directions = 2 if direction == "bidirectional" else 1
    units = plain[1].shape[1]
    require(len(plain) in (2 * directions, 4 * directions), f"{op} with direction={direction}")
    zeros = x.new_zeros([directions, x.shape[1], units])
    begins = [zeros if state is None else state for state in states]
    options = (len(plain) == 4 * directions, 1, 0.0, False, directions == 2, False)
    steps = x.flip(0) if direction == "reverse" else x
    begin = begins if op == "LSTM" else begins[0]
    out, *ends = layer(steps, begin, list(plain), *options)
    out = out.flip(0) if direction == "reverse" else out
    apart = out.reshape([*out.shape[:2], directions, units]).transpose(1, 2)
    return (apart, *ends)


def _require_plain(
    op: str, activations: Sequence[str] | None, lengths: Any, options: dict[str, Any]
) -> None:
    usual = activations is None or list(activations) in (_USUAL[op], 2 * _USUAL[op])
    require(usual, f"{op} with activations={activations}")
    _require_idle(op, lengths, options)


def _require_idle(op: str, lengths: Any, options: dict[str, Any]) -> None:
    require(lengths is None, f"{op} with sequence_lens")
    set_ = [name for name, value in options.items() if value]
    require(not set_, f"{op} with {', '.join(set_)}")


@onnx_op
def LSTM(
    X: Tensor,
    W: Tensor | None = None,
    R: Tensor | None = None,
    B: Tensor | None = None,
    sequence_lens: Numbers | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    P: Tensor | None = None,
    *weights: Tensor,
    hidden_size: int = 0,
    direction: str = "forward",
    activations: Sequence[str] | None = None,
    **options: Any,
) -> tuple[Tensor, ...]:
    _require_plain("LSTM", activations, sequence_lens, options)
    require(P is None, "LSTM with peepholes")
    states = (initial_h, initial_c)
    return _run("LSTM", X, (W, R, B), states, weights, direction, _LAYERS["LSTM"])


@onnx_op
def GRU(
    X: Tensor,
    W: Tensor | None = None,
    R: Tensor | None = None,
    B: Tensor | None = None,
    sequence_lens: Numbers | None = None,
    initial_h: Tensor | None = None,
    *weights: Tensor,
    hidden_size: int = 0,
    direction: str = "forward",
    activations: Sequence[str] | None = None,
    linear_before_reset: int = 0,
    **options: Any,
) -> tuple[Tensor, ...]:
    _require_plain("GRU", activations, sequence_lens, options)
    require(linear_before_reset, "GRU with linear_before_reset=0 (Keras' reset_after=False)")
    return _run("GRU", X, (W, R, B), (initial_h,), weights, direction, _LAYERS["GRU"])


@onnx_op
def RNN(
    X: Tensor,
    W: Tensor | None = None,
    R: Tensor | None = None,
    B: Tensor | None = None,
    sequence_lens: Numbers | None = None,
    initial_h: Tensor | None = None,
    *weights: Tensor,
    hidden_size: int = 0,
    direction: str = "forward",
    activations: Sequence[str] = ("Tanh",),
    **options: Any,
) -> tuple[Tensor, ...]:
    _require_idle("RNN", sequence_lens, options)
    (function, *others) = {*activations}
    require(not others and function in _LAYERS, f"RNN with activations={activations}")
    return _run("RNN", X, (W, R, B), (initial_h,), weights, direction, _LAYERS[function])
