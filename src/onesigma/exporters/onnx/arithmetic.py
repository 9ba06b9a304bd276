"""The table's arithmetic and activations. One ONNX op on the same inputs is a line in ``_SAME``."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from onesigma.exporters.onnx.writer import Input, Value, Writer, covers, writes

aten = torch.ops.aten

_SAME = {
    "Abs": [aten.abs.default],
    "And": [aten.__and__.Tensor, aten.logical_and.default, aten.bitwise_and.Tensor],
    "Div": [aten.div.Tensor, aten.div.Scalar],
    "Equal": [aten.eq.Tensor, aten.eq.Scalar],
    "Erf": [aten.erf.default],
    "Exp": [aten.exp.default],
    "Greater": [aten.gt.Scalar, aten.gt.Tensor],
    "GreaterOrEqual": [aten.ge.Scalar, aten.ge.Tensor],
    "HardSwish": [aten.hardswish.default],
    "Less": [aten.lt.Scalar, aten.lt.Tensor],
    "LessOrEqual": [aten.le.Scalar, aten.le.Tensor],
    "Log": [aten.log.default],
    "MatMul": [aten.matmul.default, aten.mm.default, aten.bmm.default],
    "Max": [aten.maximum.default],
    "Min": [aten.minimum.default],
    "Neg": [aten.neg.default],
    "Not": [aten.logical_not.default, aten.bitwise_not.default],
    "Reciprocal": [aten.reciprocal.default],
    "Relu": [aten.relu.default],
    "Selu": [aten.selu.default],
    "Sigmoid": [aten.sigmoid.default],
    "Sqrt": [aten.sqrt.default],
    "Tanh": [aten.tanh.default],
    "Where": [aten.where.self, aten.where.Scalar, aten.where.ScalarOther, aten.where.ScalarSelf],
}
_UNCHANGED = (aten.alias, aten.clone, aten.contiguous, aten.detach, aten.lift_fresh_copy)


def _same(kind: str, w: Writer, *inputs: Input) -> str:
    w.alike(*(inputs[1:] if kind == "Where" else inputs))
    return w.op(kind, *inputs)


for _kind, _targets in _SAME.items():
    writes(*_targets)(partial(_same, _kind))


@writes(*(packet.default for packet in _UNCHANGED))
def _unchanged(w: Writer, x: Value, **_: Any) -> str:
    return x.name


@writes(aten.mul.Tensor, aten.mul.Scalar)
def _mul(w: Writer, a: Value, b: Input) -> str:
    w.alike(a, b)
    for field, scale in ((a, b), (b, a)):
        if isinstance(field, Value) and isinstance(scale, Value) and _spreads(field, scale):
            weight = scale.example.reshape(-1, *[1] * (field.rank - 1))
            return w.op("Conv", field, w.constant(f"{scale.name}:filters", weight))
    return w.op("Mul", a, b)


def _spreads(field: Value, scale: Value) -> bool:
    """Whether one channel is multiplied by a constant for each of many.

    That is a 1×1 convolution, which leaves its result in the layout of the other convolutions.
    """
    one_channel = 3 <= field.rank <= 5 and field.shape[1] == 1 and not field.constant
    per_channel = scale.shape[1:] == (1,) * (field.rank - 2) and scale.shape[:1] > (1,)
    return one_channel and scale.constant and per_channel


@writes(aten.add.Tensor, aten.add.Scalar)
def _add(w: Writer, a: Value, b: Input, alpha: float = 1) -> str:
    w.alike(a, b)
    return w.op("Add", a, b if alpha == 1 else w.op("Mul", b, alpha))


@writes(aten.sub.Tensor, aten.sub.Scalar)
def _sub(w: Writer, a: Value, b: Input, alpha: float = 1) -> str:
    w.alike(a, b)
    return w.op("Sub", a, b if alpha == 1 else w.op("Mul", b, alpha))


@writes(aten.rsub.Scalar)
def _rsub(w: Writer, a: Value, b: float, alpha: float = 1) -> str:
    w.alike(a)
    return w.op("Sub", b, a if alpha == 1 else w.op("Mul", a, alpha))


@writes(aten.square.default)
def _square(w: Writer, x: Value) -> str:
    return w.op("Mul", x, x)


@writes(aten.pow.Tensor_Scalar)
def _pow(w: Writer, x: Value, exponent: float) -> str:
    w.alike(x)
    return w.op("Mul", x, x) if exponent == 2 else w.op("Pow", x, float(exponent))


@writes(aten.rsqrt.default)
def _rsqrt(w: Writer, x: Value) -> str:
    return w.op("Reciprocal", w.op("Sqrt", x))


@writes(aten.expm1.default)
def _expm1(w: Writer, x: Value) -> str:
    """tanh(x/2) (eˣ + 1), for eˣ − 1 would lose the digits of a small x."""
    return w.op("Mul", w.op("Tanh", w.op("Mul", x, 0.5)), w.op("Add", w.op("Exp", x), 1.0))


@writes(aten.log1p.default)
def _log1p(w: Writer, x: Value) -> str:
    """log(u) x / (u − 1) with u the rounded 1 + x (Kahan): its rounding cancels."""
    u = w.op("Add", x, 1.0)
    tiny = w.op("Equal", u, 1.0)
    step = w.op("Where", tiny, 1.0, w.op("Sub", u, 1.0))
    return w.op("Where", tiny, x, w.op("Div", w.op("Mul", w.op("Log", u), x), step))


@writes(aten.clamp.default)
def _clamp(w: Writer, x: Value, low: Input = None, high: Input = None, **bounds: Input) -> str:
    return w.op("Clip", x, bounds.get("min", low), bounds.get("max", high))


@writes(aten.clamp_min.default)
def _clamp_min(w: Writer, x: Value, low: float) -> str:
    return w.op("Clip", x, low)


@writes(aten.clamp_max.default)
def _clamp_max(w: Writer, x: Value, high: float) -> str:
    return w.op("Clip", x, None, high)


@writes(aten.hardtanh.default)
def _hardtanh(w: Writer, x: Value, low: float = -1, high: float = 1) -> str:
    return w.op("Clip", x, low, high)


@writes(aten.relu6.default)
def _relu6(w: Writer, x: Value) -> str:
    return w.op("Clip", x, 0, 6)


@writes(aten.leaky_relu.default)
def _leaky_relu(w: Writer, x: Value, slope: float = 0.01) -> str:
    return w.op("LeakyRelu", x, alpha=float(slope))


@writes(aten.elu.default)
def _elu(w: Writer, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> str:
    covers(scale == input_scale == 1, "a scaled elu")
    return w.op("Elu", x, alpha=float(alpha))


@writes(aten.softplus.default)
def _softplus(w: Writer, x: Value, beta: float = 1, threshold: float = 20) -> str:
    covers(beta == 1, "softplus with a beta")
    return w.op("Softplus", x)


@writes(aten.log_sigmoid.default)
def _log_sigmoid(w: Writer, x: Value) -> str:
    return w.op("Neg", w.op("Softplus", w.op("Neg", x)))


@writes(aten.mish.default)
def _mish(w: Writer, x: Value) -> str:
    return w.op("Mul", x, w.op("Tanh", w.op("Softplus", x)))


@writes(aten.silu.default)
def _silu(w: Writer, x: Value) -> str:
    return w.op("Mul", x, w.op("Sigmoid", x))


@writes(aten.hardsigmoid.default)
def _hardsigmoid(w: Writer, x: Value) -> str:
    return w.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@writes(aten.gelu.default)
def _gelu(w: Writer, x: Value, *, approximate: str = "none") -> str:
    covers(approximate == "none", "gelu by tanh")
    twice = w.op("Add", w.op("Erf", w.op("Mul", x, math.sqrt(0.5))), 1.0)
    return w.op("Mul", w.op("Mul", x, 0.5), twice)


@writes(aten.softmax.int)
def _softmax(w: Writer, x: Value, dim: int, dtype: Any = None) -> str:
    w.alike(x)
    return w.op("Softmax", x, axis=dim)


@writes(aten.log_softmax.int)
def _log_softmax(w: Writer, x: Value, dim: int, dtype: Any = None) -> str:
    w.alike(x)
    return w.op("LogSoftmax", x, axis=dim)


@writes(aten.dropout.default)
def _dropout(w: Writer, x: Value, rate: float, train: bool) -> str:
    """In training mode only for Monte Carlo, beside which ``onesigma bench`` puts one pass."""
    return w.op("Dropout", x, rate, w.flag(True)) if train else x.name


@writes(aten.feature_dropout.default)
def _feature_dropout(w: Writer, x: Value, rate: float, train: bool) -> str:
    covers(not train, "dropout of channels in training mode")
    return x.name
