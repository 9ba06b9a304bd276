"""Activations, and functions of each element alone. Without attributes an op is a line below."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from onesigma.importers.onnx.ops.table import Numbers, covers, onnx_op

_OF_EACH_ELEMENT: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": F.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Softplus": F.softplus,
    "Sqrt": torch.sqrt,
    "Tanh": torch.tanh,
}


def _of_each_element(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def apply(x: Tensor, /) -> Tensor:
        return function(x)

    return apply


for _name, _function in _OF_EACH_ELEMENT.items():
    onnx_op(_name)(_of_each_element(_function))


@onnx_op("LeakyRelu")
def leaky_relu(x: Tensor, /, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@onnx_op("PRelu")
def prelu(x: Tensor, slope: Tensor, /) -> Tensor:
    """One slope, or one per channel; elsewhere, as where channels come last, x⁺ − a(−x)⁺."""
    channels = [n for n in slope.shape if n != 1]
    per_channel = slope.dim() == x.dim() - 1 and channels == list(slope.shape[:1])
    if not channels or per_channel:
        return F.prelu(x, slope.reshape(-1))
    return F.relu(x) - slope * F.relu(-x)


@onnx_op("Elu")
def elu(x: Tensor, /, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@onnx_op("Celu")
def celu(x: Tensor, /, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@onnx_op("Selu")
def selu(x: Tensor, /, *, alpha: float = 1.67326, gamma: float = 1.0507) -> Tensor:
    usual = math.isclose(alpha, 1.67326, rel_tol=1e-4) and math.isclose(gamma, 1.0507, rel_tol=1e-4)
    covers(usual, f"Selu with alpha={alpha:g}, gamma={gamma:g}")
    return F.selu(x)


@onnx_op("HardSigmoid")
def hard_sigmoid(x: Tensor, /, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    if math.isclose(alpha, 1 / 6, rel_tol=1e-5) and beta == 0.5:
        return F.hardsigmoid(x)
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@onnx_op("Gelu")
def gelu(x: Tensor, /, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@onnx_op("Swish")
def swish(x: Tensor, /, *, alpha: float = 1.0) -> Tensor:
    """x σ(αx)."""
    return F.silu(x) if alpha == 1 else F.silu(alpha * x) / alpha


@onnx_op("Clip")
def clip(
    x: Tensor,
    low: Numbers | None = None,
    high: Numbers | None = None,
    /,
    *,
    min: float | None = None,
    max: float | None = None,
) -> Tensor:
    """Bounds are inputs since opset 11, and were attributes before."""
    lowest = min if low is None else float(low.reshape(()))
    highest = max if high is None else float(high.reshape(()))
    lowest = None if lowest is None or lowest < -3e38 else lowest
    highest = None if highest is None or highest > 3e38 else highest
    if lowest is not None and highest is not None:
        return F.hardtanh(x, lowest, highest)
    if lowest is not None:
        return F.relu(x) if lowest == 0 else torch.clamp_min(x, lowest)
    return x if highest is None else torch.clamp_max(x, highest)


@onnx_op("Shrink")
def shrink(x: Tensor, /, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    covers(bias == lambd, "Shrink with a bias that is not lambd")
    return F.softshrink(x, lambd)


@onnx_op("Softmax")
def softmax(x: Tensor, /, *, axis: int | None = None, opset: int) -> Tensor:
    return _over_classes(torch.softmax, x, axis, opset)


@onnx_op("LogSoftmax")
def log_softmax(x: Tensor, /, *, axis: int | None = None, opset: int) -> Tensor:
    return _over_classes(torch.log_softmax, x, axis, opset)


def _over_classes(
    function: Callable[[Tensor, int], Tensor], x: Tensor, axis: int | None, opset: int
) -> Tensor:
    """Before opset 13 it was over all dimensions from the axis on, as if they were one."""
    if opset >= 13:
        return function(x, -1 if axis is None else axis)
    axis = (1 if axis is None else axis) % x.dim()
    if axis == x.dim() - 1:
        return function(x, axis)
    return function(x.flatten(axis), axis).reshape(x.shape)


@onnx_op("Dropout")
def dropout(
    x: Tensor,
    rate: Numbers | None = None,
    training_mode: Numbers | None = None,
    /,
    *,
    ratio: float = 0.5,
    seed: int = 0,
) -> Tensor:
    """As in inference. What it drops, and at which rate, is the business of ``onnx_dropout``."""
    return x
