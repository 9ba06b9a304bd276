"""LSTM, GRU and RNN of ONNX as PyTorch's own layers.

ONNX has its gates in another order, the weights of both directions in one tensor and the two biases
behind each other. ``rewrite`` hands the weights of a file over as PyTorch has them, after the other
inputs, so that they are weights of the network like any other.
"""

# ruff: noqa: N803  (inputs are spelt as in ONNX)

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onesigma.importers.onnx.ops import Numbers, add_family, require

# Where ONNX has the gates that PyTorch wants in its own order, and where the weights come.
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
FIRST_WEIGHT = {"LSTM": 8, "GRU": 6, "RNN": 6}
# By the activations of one direction; the first of an op are what it has if it does not say.
_LAYERS: dict[tuple[str, ...], Any] = {
    ("LSTM", "Sigmoid", "Tanh", "Tanh"): torch.lstm,
    ("GRU", "Sigmoid", "Tanh"): torch.gru,
    ("RNN", "Tanh"): torch.rnn_tanh,
    ("RNN", "Relu"): torch.rnn_relu,
}


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


def _recurrent(
    op: str,
    x: Tensor,
    W: Tensor | None = None,
    R: Tensor | None = None,
    B: Tensor | None = None,
    sequence_lens: Numbers | None = None,
    *others: Any,
    hidden_size: int = 0,
    direction: str = "forward",
    activations: Sequence[str] = (),
    linear_before_reset: int = 0,
    **options: Any,
) -> tuple[Tensor, ...]:
    """All states (steps, directions, batch, units), then the last ones.

    The other inputs are the first states, of an LSTM the peepholes, and PyTorch's weights.
    """
    wanted, given = [*activations], FIRST_WEIGHT[op] - 5
    found = [
        layer
        for (name, *usual), layer in _LAYERS.items()
        if name == op and wanted in ([], usual, 2 * usual)
    ]
    require(found, f"{op} with activations={wanted}")
    require(sequence_lens is None, f"{op} with sequence_lens")
    set_ = [name for name, value in options.items() if value]
    require(not set_, f"{op} with {', '.join(set_)}")
    require(op != "GRU" or linear_before_reset, _RESETS_FIRST)
    (h, c, peepholes), weights = [*others[:given], None, None, None][:3], others[given:]
    require(peepholes is None, "LSTM with peepholes")
    plain = weights or torch_weights(op, W, R, B)
    directions, units = 2 if direction == "bidirectional" else 1, plain[1].shape[1]
    require(len(plain) in (2 * directions, 4 * directions), f"{op} with direction={direction}")
    zeros = x.new_zeros([directions, x.shape[1], units])
    begins = [zeros if state is None else state for state in (h, c)]
    flags = (len(plain) == 4 * directions, 1, 0.0, False, directions == 2, False)
    steps = x.flip(0) if direction == "reverse" else x
    out, *ends = found[0](steps, begins if op == "LSTM" else begins[0], list(plain), *flags)
    out = out.flip(0) if direction == "reverse" else out
    return (out.reshape([*out.shape[:2], directions, units]).transpose(1, 2), *ends)


_RESETS_FIRST = "GRU with linear_before_reset=0 (Keras' reset_after=False)"
_MAYBE = Tensor | None
for _op, _first in FIRST_WEIGHT.items():
    _inputs = (Tensor, *[_MAYBE] * 3, Numbers | None, *[_MAYBE] * (_first - 5))
    add_family({_op: partial(_recurrent, _op)}, *_inputs, rest=Tensor)
