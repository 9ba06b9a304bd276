"""The table of the writer: for each ATen op, the ONNX ops that compute it.

An entry is a function that takes the writer and then the arguments of the ATen op. It calls
``w.op`` once per ONNX op and returns the name of the result. One ONNX op on the same inputs is a
line in ``_SAME``, and what is one expression is a line in ``_SHORT``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from onnx import helper
from torch import Tensor

from onesigma.registry import Registry

if TYPE_CHECKING:
    from onesigma.exporters.onnx.writer import Writer

aten = torch.ops.aten
Entry = Callable[..., Any]  # to the name of the result, or a tuple of names
Sizes = Sequence[int]

OPS: Registry[Any, Entry] = Registry()
writes = OPS.add

_FAR = 2**63 - 1
_SHORT_ROW = 64
_MOST_SHARES = 2**14  # numbers that stand for a pool
_LOWEST = -1e30  # a score that softmax makes 0; −∞ in all of a row would make it NaN
_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


class UnwritableError(Exception):
    """An op, or a use of one, that the table does not cover."""


@dataclass(frozen=True)
class Value:
    """A value of the graph: its name in ONNX, its example, and whether weights alone fix it.

    What an op with several results returns has no name; its ``parts`` have.
    """

    name: str
    example: Any
    constant: bool = False
    parts: tuple[Value, ...] = ()

    @property
    def rank(self) -> int:
        return int(self.example.dim())

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.example.shape)


# An argument of an ONNX op: a value, the name of one, a number, sizes; None is left out.
Input = Value | str | float | Sequence[Any] | None


def require(condition: object, what: str) -> None:
    """Refuse a use that would come out wrong."""
    if not condition:
        raise UnwritableError(f"{what} is not covered")


_BY_NAME = (
    *("Abs", "Cos", "Erf", "Exp", "Floor", "HardSwish", "Log", "Neg", "Reciprocal", "Relu"),
    *("Round", "Selu", "Sigmoid", "Sign", "Sin", "Sqrt", "Tanh"),
)
_SAME = {
    **{kind: [getattr(aten, kind.lower()).default] for kind in _BY_NAME},
    "And": [aten.__and__.Tensor, aten.logical_and.default, aten.bitwise_and.Tensor],
    "Div": [aten.div.Tensor, aten.div.Scalar],
    "Equal": [aten.eq.Tensor, aten.eq.Scalar],
    "Greater": [aten.gt.Scalar, aten.gt.Tensor],
    "GreaterOrEqual": [aten.ge.Scalar, aten.ge.Tensor],
    "Less": [aten.lt.Scalar, aten.lt.Tensor],
    "LessOrEqual": [aten.le.Scalar, aten.le.Tensor],
    "MatMul": [aten.matmul.default, aten.mm.default, aten.bmm.default],
    "Max": [aten.maximum.default],
    "Min": [aten.minimum.default],
    "Mul": [aten.mul.Tensor, aten.mul.Scalar],
    "Not": [aten.logical_not.default, aten.bitwise_not.default],
    "Or": [aten.__or__.Tensor, aten.logical_or.default, aten.bitwise_or.Tensor],
    "Where": [aten.where.self, aten.where.Scalar, aten.where.ScalarOther, aten.where.ScalarSelf],
}


def _same(kind: str, w: Writer, *inputs: Input) -> str:
    w.require_one_dtype(*(inputs[1:] if kind == "Where" else inputs))
    return w.op(kind, *inputs)


for _kind, _targets in _SAME.items():
    writes(*_targets)(partial(_same, _kind))


def _softmax(kind: str, w: Writer, x: Value, dim: int, dtype: Any = None) -> str:
    w.require_one_dtype(x)
    return w.op(kind, x, axis=dim)


def _reduce(
    kind: str, w: Writer, x: Value, dims: Sizes = (), keepdim: bool = False, dtype: Any = None
) -> str:
    w.require_one_dtype(x)
    axes = list(dims) or list(range(x.rank))
    if kind != "ReduceSum" and w.opset < 18:  # an attribute before, an input since
        return w.op(kind, x, axes=axes, keepdims=int(keepdim))
    return w.op(kind, x, axes, keepdims=int(keepdim))


def _mean(w: Writer, x: Value, dims: Sizes = (), keepdim: bool = False, dtype: Any = None) -> str:
    """Over all positions of a channel as a pool: that stays in ONNX Runtime's blocked layout."""
    positions = list(range(2, x.rank))
    if not positions or sorted(dim % x.rank for dim in dims) != positions:
        return _reduce("ReduceMean", w, x, dims, keepdim, dtype)
    w.require_one_dtype(x)
    pooled = w.op("GlobalAveragePool", x)
    return pooled if keepdim else w.op("Flatten", pooled, axis=1)


def _permute(w: Writer, x: Value, dims: Sizes) -> str:
    order = [dim % x.rank for dim in dims]
    return x.name if order == list(range(x.rank)) else w.op("Transpose", x, perm=order)


def _pad(
    w: Writer, x: Value, pad: Sizes, mode: str = "constant", value: float | None = None
) -> str:
    """PyTorch lists pairs from the last dimension backwards, ONNX all beginnings, then all ends."""
    require(mode in _PAD_MODES, f"padding mode {mode}")
    unpadded = [0] * (x.rank - len(pad) // 2)
    pads = [*unpadded, *pad[-2::-2], *unpadded, *pad[::-2]]
    fill: Input = None if mode != "constant" else float(value or 0)
    return w.op("Pad", x, pads, fill, mode=_PAD_MODES[mode])


def _select(w: Writer, x: Value, dim: int, index: int) -> str:
    return w.op("Gather", x, w.constant(f"{index}:index", torch.tensor(index)), axis=dim)


def _split_sizes(w: Writer, x: Value, sizes: Sizes, dim: int = 0) -> tuple[str, ...]:
    return tuple(w.several(len(sizes), "Split", x, sizes, axis=dim))


def _split(w: Writer, x: Value, size: int, dim: int = 0) -> tuple[str, ...]:
    starts = range(0, x.shape[dim], size)
    return _split_sizes(w, x, [min(size, x.shape[dim] - start) for start in starts], dim)


_NOTHING = (aten.alias, aten.clone, aten.contiguous, aten.detach, aten.lift_fresh_copy)
_SHORT: dict[Any, Entry] = {
    **{packet.default: lambda w, x, **_: x.name for packet in _NOTHING},
    aten.addmm.default: lambda w, bias, x, weight: w.op("Gemm", x, weight, bias),
    aten.amax.default: partial(_reduce, "ReduceMax"),
    aten.cat.default: lambda w, tensors, dim=0: w.op("Concat", *tensors, axis=dim),
    aten.chunk.default: lambda w, x, count, dim=0: _split(w, x, -(-x.shape[dim] // count), dim),
    aten.clamp_max.default: lambda w, x, high: w.op("Clip", x, None, high),
    aten.clamp_min.default: lambda w, x, low: w.op("Clip", x, low),
    aten.constant_pad_nd.default: lambda w, x, pad, value=0: _pad(w, x, pad, value=value),
    aten.cumsum.default: lambda w, x, dim: w.op(
        "CumSum", x, w.constant(f"{dim}:index", torch.tensor(dim))
    ),
    aten.embedding.default: lambda w, weight, index, *_: w.op("Gather", weight, index),
    # 1: as it is, in ONNX.
    aten.expand.default: lambda w, x, sizes: w.op(
        "Expand", x, [1 if n == -1 else n for n in sizes]
    ),
    aten.expand_as.default: lambda w, x, other: w.op("Expand", x, w.op("Shape", other)),
    aten.flip.default: lambda w, x, dims: w.op(
        "Slice", x, [-1] * len(dims), [-_FAR] * len(dims), dims, [-1] * len(dims)
    ),
    aten.full.default: lambda w, sizes, number, **_: w.op("Expand", number, sizes),
    aten.full_like.default: lambda w, x, number, **_: w.op("Expand", number, w.op("Shape", x)),
    aten.gather.default: lambda w, x, dim, index: w.op("GatherElements", x, index, axis=dim),
    aten.hardsigmoid.default: lambda w, x: w.op("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    aten.hardtanh.default: lambda w, x, low=-1, high=1: w.op("Clip", x, low, high),
    aten.index_select.default: lambda w, x, dim, index: w.op("Gather", x, index, axis=dim),
    aten.leaky_relu.default: lambda w, x, slope=0.01: w.op("LeakyRelu", x, alpha=float(slope)),
    aten.log_sigmoid.default: lambda w, x: w.op("Neg", w.op("Softplus", w.op("Neg", x))),
    aten.log_softmax.int: partial(_softmax, "LogSoftmax"),
    aten.masked_fill.Scalar: lambda w, x, mask, number: w.op("Where", mask, number, x),
    aten.masked_fill.Tensor: lambda w, x, mask, number: w.op("Where", mask, number, x),
    aten.mean.dim: _mean,
    aten.mish.default: lambda w, x: w.op("Mul", x, w.op("Tanh", w.op("Softplus", x))),
    aten.new_ones.default: lambda w, x, sizes, **_: w.op("Expand", 1, sizes),
    aten.new_zeros.default: lambda w, x, sizes, **_: w.zeros(sizes),
    aten.ones.default: lambda w, sizes, **_: w.op("Expand", 1, sizes),
    aten.ones_like.default: lambda w, x, **_: w.op("Expand", 1, w.op("Shape", x)),
    aten.pad.default: _pad,
    aten.permute.default: _permute,
    aten.relu6.default: lambda w, x: w.op("Clip", x, 0, 6),
    aten.reshape.default: lambda w, x, sizes: w.op("Reshape", x, sizes),
    aten.rsqrt.default: lambda w, x: w.op("Reciprocal", w.op("Sqrt", x)),
    aten.select.int: _select,
    aten.silu.default: lambda w, x: w.op("Mul", x, w.op("Sigmoid", x)),
    aten.softmax.int: partial(_softmax, "Softmax"),
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_sizes,
    aten.square.default: lambda w, x: w.op("Mul", x, x),
    aten.stack.default: lambda w, tensors, dim=0: w.op(
        "Concat", *(w.op("Unsqueeze", x, [dim]) for x in tensors), axis=dim
    ),
    aten.sum.dim_IntList: partial(_reduce, "ReduceSum"),
    aten.sym_size.int: lambda w, x, dim: w.op("Shape", x, start=dim % x.rank, end=dim % x.rank + 1),
    aten.t.default: lambda w, x: _permute(w, x, range(x.rank)[::-1]),
    aten.threshold.default: lambda w, x, least, value: w.op(
        "Where", w.op("Greater", x, float(least)), x, float(value)
    ),
    aten.unbind.int: lambda w, x, dim=0: tuple(_select(w, x, dim, i) for i in range(x.shape[dim])),
    aten.unsafe_split.Tensor: _split,
    aten.unsqueeze.default: lambda w, x, dim: w.op("Unsqueeze", x, [dim]),
    aten.view.default: lambda w, x, sizes: w.op("Reshape", x, sizes),
    aten._unsafe_view.default: lambda w, x, sizes: w.op("Reshape", x, sizes),
    aten.zeros.default: lambda w, sizes, **_: w.zeros(sizes),
    aten.zeros_like.default: lambda w, x, **_: w.zeros(w.op("Shape", x)),
    # Sizes are vectors of one, so that they can be joined.
    operator.add: lambda w, a, b: w.op("Add", a, b),
    operator.floordiv: lambda w, a, b: w.op("Div", a, b),
    operator.getitem: lambda w, x, index: x.parts[index].name,
    operator.mul: lambda w, a, b: w.op("Mul", a, b),
}
for _target, _entry in _SHORT.items():
    writes(_target)(_entry)


def _add(kind: str, w: Writer, a: Input, b: Input, alpha: float = 1) -> str:
    w.require_one_dtype(a, b)
    return w.op(kind, a, b if alpha == 1 else w.op("Mul", b, alpha))


writes(aten.add.Tensor, aten.add.Scalar)(partial(_add, "Add"))
writes(aten.sub.Tensor, aten.sub.Scalar)(partial(_add, "Sub"))
writes(aten.rsub.Scalar)(lambda w, a, b, alpha=1: _add("Sub", w, b, a, alpha))


@writes(aten.pow.Tensor_Scalar)
def _pow(w: Writer, x: Value, exponent: float) -> str:
    w.require_one_dtype(x)
    return w.op("Mul", x, x) if exponent == 2 else w.op("Pow", x, float(exponent))


@writes(aten.expm1.default)
def _expm1(w: Writer, x: Value) -> str:
    """tanh(x/2) (eˣ + 1), because eˣ − 1 would lose the digits of a small x."""
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


@writes(aten.elu.default)
def _elu(w: Writer, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> str:
    require(scale == input_scale == 1, "a scaled elu")
    return w.op("Elu", x, alpha=float(alpha))


@writes(aten.softplus.default)
def _softplus(w: Writer, x: Value, beta: float = 1, threshold: float = 20) -> str:
    require(beta == 1, "softplus with a beta")
    return w.op("Softplus", x)


@writes(aten.gelu.default)
def _gelu(w: Writer, x: Value, *, approximate: str = "none") -> str:
    if approximate == "tanh":
        cubic = w.op("Add", w.op("Mul", w.op("Mul", x, x), 0.044715), 1.0)
        bent = w.op("Tanh", w.op("Mul", w.op("Mul", x, cubic), math.sqrt(2 / math.pi)))
    else:
        bent = w.op("Erf", w.op("Mul", x, math.sqrt(0.5)))
    return w.op("Mul", w.op("Mul", x, 0.5), w.op("Add", bent, 1.0))


@writes(aten.prelu.default)
def _prelu(w: Writer, x: Value, slope: Value) -> str:
    """A slope for each channel, or one for all."""
    return w.op("PRelu", x, w.op("Reshape", slope, [-1, *([1] * (x.rank - 2))]))


def _dropout(w: Writer, x: Value, rate: float, train: bool, channels: bool = False) -> str:
    """In training mode only for Monte Carlo, which ``onesigma bench`` compares with one pass."""
    if not train:
        return x.name
    require(not channels, "dropout of channels in training mode")
    return w.op("Dropout", x, rate, w.constant("True:flag", torch.tensor(True)))


writes(aten.dropout.default)(_dropout)
writes(aten.feature_dropout.default)(partial(_dropout, channels=True))


@writes(aten.linear.default)
def _linear(w: Writer, x: Value, weight: Value, bias: Value | None = None) -> str:
    if x.rank == 2:
        return w.op("Gemm", x, weight, bias, transB=1)
    product = w.op("MatMul", x, w.op("Transpose", weight, perm=[1, 0]))
    return product if bias is None else w.op("Add", product, bias)


# What follows the stride and the padding, and its default.
_CONVOLUTIONS = {
    "Conv": {"dilations": (1,), "group": 1},
    "ConvTranspose": {"output_padding": (0,), "group": 1, "dilations": (1,)},
}


def _convolve(
    kind: str,
    w: Writer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sizes = (1,),
    padding: Sizes | str = (0,),
    *given: Any,
) -> str:
    require(x.rank == weight.rank, "a sample without a batch")
    names = _CONVOLUTIONS[kind]
    sizes: dict[str, Any] = {**names, **dict(zip(names, given, strict=False))}
    group = sizes.pop("group")
    window = _window(x, padding, kernel_shape=weight.shape[2:], strides=stride, **sizes)
    return w.op(kind, x, weight, bias, group=group, **window)


writes(
    *(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default),
    *(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding),
)(partial(_convolve, "Conv"))
writes(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)(
    partial(_convolve, "ConvTranspose")
)


def _window(x: Value, padding: Sizes | str, **sizes: Sizes) -> dict[str, list[int]]:
    """One number per dimension; PyTorch may give one for all of them.

    "same" is as many zeros as keep the size; of an odd number, PyTorch has the one more behind.
    """
    space = x.rank - 2
    sizes |= {"pads": (0,) if isinstance(padding, str) else padding}
    each = {name: list(n) * space if len(n) == 1 else list(n) for name, n in sizes.items()}
    require(all(len(n) == space > 0 for n in each.values()), "a window over the channels")
    before = after = each["pads"]
    if padding == "same":
        reach = zip(each["kernel_shape"], each["dilations"], strict=True)
        total = [(size - 1) * step for size, step in reach]
        before, after = [n // 2 for n in total], [n - n // 2 for n in total]
    return each | {"pads": [*before, *after]}


def _avg_pool(
    pool: Any,
    w: Writer,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil: bool = False,
    count_include_pad: bool = True,
    *divisor: int | None,
) -> str:
    window = _window(x, padding, kernel_shape=kernel, strides=stride or kernel)
    if not ceil and not any(divisor):
        return w.op("AveragePool", x, count_include_pad=int(count_include_pad), **window)
    # What a window is divided by where it leaves the input: PyTorch's rule is not that of ONNX.
    ones = torch.ones(1, 1, *x.shape[2:], dtype=x.example.dtype)
    options = (kernel, stride, padding, ceil, count_include_pad, *divisor)
    wanted = pool(ones, *options)
    window = _reaching(x, window, wanted)
    found = pool(F.pad(ones, _as_torch_pads(window["pads"])), kernel, stride)
    factor = w.constant(f"{x.shape[2:]} by {options}:{ones.dtype}", wanted / found)
    return w.op("Mul", w.op("AveragePool", x, count_include_pad=1, **window), factor)


for _dims in (1, 2, 3):
    _op = getattr(aten, f"avg_pool{_dims}d").default
    writes(_op)(partial(_avg_pool, _op))


def _reaching(x: Value, window: dict[str, list[int]], result: Tensor) -> dict[str, list[int]]:
    """The window with pads behind until as many places as in the result are reached."""
    space, sizes = x.shape[2:], list(result.shape[2:])
    before, dilations = window["pads"][: len(space)], window.get("dilations", [1] * len(space))
    each = zip(sizes, window["strides"], window["kernel_shape"], dilations, strict=True)
    ends = [(size - 1) * step + (kernel - 1) * apart + 1 for size, step, kernel, apart in each]
    after = [max(0, end - n - pad) for end, n, pad in zip(ends, space, before, strict=True)]
    fits = all(pad < kernel for pad, kernel in zip(after, window["kernel_shape"], strict=True))
    require(fits, "a pool that reaches farther out than its kernel is long")
    return window | {"pads": [*before, *after]}


def _as_torch_pads(pads: Sizes) -> list[int]:
    """ONNX: all before, then all behind. PyTorch: before and behind of the last dim, and so on."""
    space = len(pads) // 2
    return [pads[side * space + dim] for dim in reversed(range(space)) for side in (0, 1)]


def _max_pool(
    pool: Any,
    w: Writer,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil: bool = False,
) -> str:
    sizes = {"kernel_shape": kernel, "strides": stride or kernel, "dilations": dilation}
    window = _window(x, padding, **sizes)
    if ceil:
        result = pool(torch.empty(1, 1, *x.shape[2:]), kernel, stride, padding, dilation, ceil)
        window = _reaching(x, window, result)
    return w.op("MaxPool", x, **window)


for _dims in (1, 2, 3):
    _op = getattr(aten, f"max_pool{_dims}d").default
    writes(_op)(partial(_max_pool, _op))


def _adaptive_avg_pool(pool: Any, w: Writer, x: Value, size: Sizes) -> str:
    """ONNX has no windows of different sizes: a product with their shares is the same."""
    space = x.shape[2:]
    wanted = list(size) * len(space) if len(size) == 1 else list(size)
    if all(n % m == 0 for n, m in zip(space, wanted, strict=True)):
        kernel = [n // m for n, m in zip(space, wanted, strict=True)]
        return w.op("AveragePool", x, kernel_shape=kernel, strides=kernel)
    count = math.prod(space)
    require(count * math.prod(wanted) <= _MOST_SHARES, "an uneven adaptive pool of a large map")
    each = torch.eye(count, dtype=x.example.dtype).reshape(1, count, *space)
    shares = w.constant(f"{space} to {wanted}:{each.dtype}", pool(each, wanted).reshape(count, -1))
    if len(space) == 1:
        return w.op("MatMul", x, shares)
    product = w.op("MatMul", w.op("Reshape", x, (0, 0, count)), shares)
    return w.op("Reshape", product, (0, 0, *wanted))


for _dims in (1, 2, 3):
    _op = getattr(aten, f"adaptive_avg_pool{_dims}d").default
    writes(_op)(partial(_adaptive_avg_pool, _op))


@writes(aten.batch_norm.default)
def _batch_norm(
    w: Writer,
    x: Value,
    weight: Input,
    bias: Input,
    mean: Value,
    var: Value,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> str:
    require(not training, "batch norm in training mode")

    def repeat(number: float) -> Value:
        """ONNX wants weights where PyTorch leaves them out."""
        numbers = torch.full_like(mean.example, number)
        return w.constant(f"{number}x{len(numbers)}:{numbers.dtype}", numbers)

    inputs = (x, weight or repeat(1.0), bias or repeat(0.0), mean, var)
    return w.op("BatchNormalization", *inputs, epsilon=eps)


@writes(aten.layer_norm.default)
def _layer_norm(
    w: Writer,
    x: Value,
    shape: Sizes,
    weight: Input = None,
    bias: Input = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> str:
    require(weight is not None, "layer norm without weights")
    return w.op("LayerNormalization", x, weight, bias, axis=-len(shape), epsilon=eps)


@writes(aten.scaled_dot_product_attention.default)
def _attention(
    w: Writer,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    rate: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str:
    require(not rate and not enable_gqa, "attention with dropout, or with shared heads")
    w.require_one_dtype(q, k, v)
    if causal:
        mask = _lower_triangle(w, q.shape[-2], k.shape[-2])
    scaled = w.op("Mul", q, q.shape[-1] ** -0.5 if scale is None else scale)
    scores = w.op("MatMul", scaled, _transpose(w, k, -2, -1))
    return w.op("MatMul", _masked_softmax(w, scores, mask), v)


def _lower_triangle(w: Writer, rows: int, columns: int) -> Value:
    triangle = torch.ones(rows, columns, dtype=torch.bool).tril()
    return w.constant(f"triangle {rows}x{columns}:", triangle)


def _masked_softmax(w: Writer, scores: str, mask: Value | None) -> str:
    """What is masked gets nothing, in a row where all is masked too, as in PyTorch."""
    if mask is None:
        return w.op("Softmax", scores, axis=-1)
    kept: Input = mask
    if mask.example.dtype != torch.bool:
        kept, scores = w.op("Greater", mask, _LOWEST), w.op("Add", scores, mask)
    softmax = w.op("Softmax", w.op("Where", kept, scores, _LOWEST), axis=-1)
    return w.op("Where", kept, softmax, 0.0)


@writes(aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec)
def _nearest(w: Writer, x: Value, size: Any, scales: Any) -> str:
    return _resize(w, x, scales, "nearest", "asymmetric", nearest_mode="floor")


@writes(aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec)
def _linear_resize(w: Writer, x: Value, size: Any, align_corners: bool, scales: Any) -> str:
    require(not align_corners, "interpolation with aligned corners")
    return _resize(w, x, scales, "linear", "half_pixel")


def _resize(w: Writer, x: Value, scales: Any, mode: str, grid: str, **attributes: str) -> str:
    require(scales, "a resize to a given size")
    factors = (1.0, 1.0, *scales)  # which ONNX takes in float32 whatever else is computed in
    stored = w.constant(f"{factors}:factors", torch.tensor(factors, dtype=torch.float32))
    attributes |= {"mode": mode, "coordinate_transformation_mode": grid}
    return w.op("Resize", x, None, stored, **attributes)


@writes(aten.flatten.using_ints)
def _flatten(w: Writer, x: Value, start: int = 0, end: int = -1) -> str:
    start, end = start % x.rank, end % x.rank
    return w.op("Reshape", x, [*([0] * start), -1, *x.shape[end + 1 :]])


@writes(aten.unflatten.int)
def _unflatten(w: Writer, x: Value, dim: int, sizes: Sizes) -> str:
    dim %= x.rank
    return w.op("Reshape", x, [*([0] * dim), *sizes, *x.shape[dim + 1 :]])


@writes(aten.squeeze.dim)
def _squeeze(w: Writer, x: Value, dim: int) -> str:
    require(x.shape[dim] == 1, "squeezing what is not 1")
    return w.op("Squeeze", x, [dim])


@writes(aten.transpose.int)
def _transpose(w: Writer, x: Value, first: int, second: int) -> str:
    order = list(range(x.rank))
    order[first], order[second] = order[second], order[first]
    return _permute(w, x, order)


@writes(aten.movedim.int)
def _movedim(w: Writer, x: Value, source: int, target: int) -> str:
    order = [dim for dim in range(x.rank) if dim != source % x.rank]
    order.insert(target % x.rank, source % x.rank)
    return _permute(w, x, order)


@writes(aten.slice.Tensor)
def _slice(
    w: Writer, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> str:
    require(not isinstance(start, Value) and not isinstance(end, Value), "a computed slice")
    if not start and end in (None, _FAR) and step == 1:  # of x[:, 0] the first part
        return x.name
    return w.op("Slice", x, [start or 0], [_FAR if end is None else end], [dim], [step])


@writes(aten.narrow.default)
def _narrow(w: Writer, x: Value, dim: int, start: int, length: int) -> str:
    require(isinstance(start, int) and isinstance(length, int), "a computed slice")
    start = start % x.shape[dim]
    if x.rank == 2 and length <= _SHORT_ROW:
        # ONNX Runtime is faster at this; of a Slice beside a Gather it makes Split and Squeeze.
        picked = w.constant(f"{start}+{length}:index", start + torch.arange(length))
        return w.op("Gather", x, picked, axis=dim)
    return w.op("Slice", x, [start], [start + length], [dim])


@writes(aten.to.dtype, aten.to.dtype_layout, aten._to_copy.default)
def _to(w: Writer, x: Value, dtype: torch.dtype | None = None, *_: Any, **__: Any) -> str:
    if dtype in (None, x.example.dtype):
        return x.name
    kind = helper.np_dtype_to_tensor_dtype(torch.empty(0, dtype=dtype).numpy().dtype)
    return w.op("Cast", x, to=kind)
