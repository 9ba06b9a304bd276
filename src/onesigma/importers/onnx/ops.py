"""The ONNX ops as PyTorch functions: one function of the op's name each, collected in ``OPS``.

Its positional parameters are the op's inputs, its keyword parameters the op's attributes with their
defaults. What is an input today and was an attribute in older opsets is one parameter, given either
way. The keyword ``opset`` is the file's, ``outputs`` how many outputs the node has.

A value is a ``Tensor``, or ``Numbers``: a numpy array of constants or of sizes. While the graph is
captured, sizes that depend on the batch are symbols in an array of objects; numpy calls Python's
operators on them, so the batch stays open through a chain such as Shape, Gather, Concat, Reshape.
The type of a parameter says what a function wants of that input:

    Tensor     a tensor; a constant becomes a weight of the module
    Data       as Tensor, or the inputs are all numbers
    Operand    a tensor, or numbers: a constant that is a single number, or whole
    any other  plain numbers (a shape, axes, bounds), fixed in the graph

An op that wants no ``Tensor`` is computed in numpy where all its inputs are numbers. Functions are
made of torch ops that have a rule where there is one, so that what is read can be converted.
"""

# ruff: noqa: N802, N803  (functions and attributes are spelt as in ONNX)

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeAlias, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from onesigma.errors import ModelError, UnsupportedOp
from onesigma.importers.onnx.parse import numpy_dtype
from onesigma.registry import Registry

Numbers: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Tensor | Numbers | None
Operand: TypeAlias = Tensor | Numbers
Data = TypeVar("Data", Tensor, Numbers)
Listed: TypeAlias = Numbers | Sequence[int] | None  # sizes or axes
Number: TypeAlias = Numbers | float | None
Function = TypeVar("Function", bound=Callable[..., Any])

# No constant of a real network comes near; a file that asks for more is after the memory.
MAX_ELEMENTS = 2**28
# Attributes that change nothing in the uses of their ops that are read.
_IDLE = {
    *("cubic_coeff_a", "exclude_outside", "extrapolation_value", "momentum", "round_mode"),
    *("output_dtype", "saturate", "seed", "stash_type", "storage_order"),
}
_TENSOR = (Tensor, Tensor | None)


@dataclass(frozen=True)
class OnnxOp:
    """A function for an ONNX op, and the types of its inputs."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    rest: Any = None  # the type of all further inputs
    context: frozenset[str] = frozenset()

    @property
    def takes_numbers(self) -> bool:
        """Whether it can be computed on numbers alone."""
        return not any(wanted in _TENSOR for wanted in (*self.inputs, self.rest))

    def keeps_numbers(self, position: int, values: Numbers) -> bool:
        """Whether a constant stays plain numbers where another input is a tensor."""
        wanted = self.inputs[position] if position < len(self.inputs) else self.rest
        if wanted == Operand:
            return values.size == 1 or is_whole(values)
        return wanted not in (*_TENSOR, Data)

    def __call__(self, *inputs: Value, opset: int, outputs: int, **attributes: Any) -> Any:
        context = {"opset": opset, "outputs": outputs}
        attributes = {name: value for name, value in attributes.items() if name not in _IDLE}
        attributes |= {name: context[name] for name in self.context}
        tensor = next((x for x in inputs if isinstance(x, Tensor)), None)
        if tensor is None and self.takes_numbers:
            return self.function(*inputs, **attributes)
        device = "cpu" if tensor is None else tensor.device
        # Sizes that were only known at run time, where a tensor is needed.
        wanted = [
            as_tensor(value, device)
            if isinstance(value, np.ndarray) and not self.keeps_numbers(position, value)
            else value
            for position, value in enumerate(inputs)
        ]
        return self.function(*wanted, **attributes)


OPS: Registry[str, OnnxOp] = Registry()


def onnx_op(function: Function) -> Function:
    """Make the decorated function that of the ONNX op of its name."""
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    inputs = tuple(hints[p.name] for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    rest = next((hints[p.name] for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    context = frozenset({"opset", "outputs"} & hints.keys())
    OPS.add(function.__name__)(OnnxOp(function, inputs, rest, context))
    return function


def add_family(functions: Mapping[str, Callable[..., Any]], *inputs: Any, **options: Any) -> None:
    """Ops with inputs of the same types, in a line each."""
    for name, function in functions.items():
        OPS.add(name)(OnnxOp(function, inputs, **options))


def require(condition: object, what: str) -> None:
    """Refuse a use of an op that would come out wrong."""
    if not condition:
        raise UnsupportedOp(f"{what} is not supported")


def is_whole(values: Numbers) -> bool:
    """Whether they can be sizes or indices: integers, symbols or truth values."""
    return values.dtype.kind in "iubO"


def as_tensor(values: Numbers, device: torch.device | str = "cpu") -> Tensor:
    """A copy: what is read from a file cannot be written to, and PyTorch warns of that."""
    plain = values.astype(np.int64) if values.dtype == object else values
    return torch.tensor(plain, device=device)


def sizes(listed: Listed) -> list[Any]:
    """Numbers as Python ints, and those that depend on the batch as symbols."""
    if listed is None:
        return []
    flat = np.asarray(listed).reshape(-1)
    return [n if flat.dtype == object else int(n) for n in flat]


def _library(x: Operand) -> Any:
    return torch if isinstance(x, Tensor) else np


def _number(value: Number, default: float) -> float:
    return default if value is None or not np.size(value) else float(np.asarray(value).item())


def _limit(shape: Sequence[Any]) -> list[Any]:
    """A shape to fill; refused if that would take too much memory."""
    if math.prod(n for n in shape if isinstance(n, int)) > MAX_ELEMENTS:
        raise ModelError(f"a constant of shape {tuple(shape)} is more than any network needs")
    return list(shape)


add_family(
    {
        "Ceil": lambda x: _library(x).ceil(x),
        "Floor": lambda x: _library(x).floor(x),
        "Identity": lambda x: x,
        "Neg": operator.neg,
        "Size": lambda x: np.array(math.prod(x.shape)),
        "Sqrt": lambda x: _library(x).sqrt(x),
    },
    Data,
)
_TORCH = "Abs Atan Cos Erf Exp Log Reciprocal Round Sigmoid Sign Sin Tanh"
_FUNCTIONAL = "Celu Elu Gelu HardSwish Mish Relu Softplus"
add_family({name: getattr(torch, name.lower()) for name in _TORCH.split()}, Tensor)
add_family({name: getattr(F, name.lower()) for name in _FUNCTIONAL.split()}, Tensor)
add_family(
    {
        "GlobalAveragePool": lambda x: x.mean(list(range(2, x.dim())), keepdim=True),
        "GlobalMaxPool": lambda x: torch.amax(x, list(range(2, x.dim())), keepdim=True),
        "LeakyRelu": lambda x, alpha=0.01: F.leaky_relu(x, alpha),
        "Not": torch.logical_not,
        "Softsign": lambda x: x / (1 + torch.abs(x)),
        "Swish": lambda x, alpha=1.0: F.silu(x) if alpha == 1 else F.silu(alpha * x) / alpha,
        "ThresholdedRelu": lambda x, alpha=1.0: torch.where(x > alpha, x, x.new_zeros(())),
    },
    Tensor,
)
add_family(
    {"And": torch.logical_and, "MatMul": torch.matmul, "Or": torch.logical_or}, Tensor, Tensor
)
# No op of ONNX: ``rewrite`` makes it of Gemm, and of MatMul and Add.
add_family({"Linear": F.linear}, Tensor, Tensor, Tensor | None)


@onnx_op
def PRelu(x: Tensor, slope: Tensor) -> Tensor:
    """One slope, or one per channel; elsewhere, as where channels come last, x⁺ − a(−x)⁺."""
    channels = [n for n in slope.shape if n != 1]
    per_channel = slope.dim() == x.dim() - 1 and channels == list(slope.shape[:1])
    if not channels or per_channel:
        return F.prelu(x, slope.reshape(-1))
    return F.relu(x) - slope * F.relu(-x)


@onnx_op
def Selu(x: Tensor, *, alpha: float = 1.67326, gamma: float = 1.0507) -> Tensor:
    usual = math.isclose(alpha, 1.67326, rel_tol=1e-4) and math.isclose(gamma, 1.0507, rel_tol=1e-4)
    require(usual, f"Selu with alpha={alpha:g}, gamma={gamma:g}")
    return F.selu(x)


@onnx_op
def HardSigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    if math.isclose(alpha, 1 / 6, rel_tol=1e-5) and beta == 0.5:
        return F.hardsigmoid(x)
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@onnx_op
def Clip(x: Tensor, min: Number = None, max: Number = None) -> Tensor:
    low, high = _number(min, -math.inf), _number(max, math.inf)
    if low > -3e38 and high < 3e38:
        return F.hardtanh(x, low, high)
    if low > -3e38:
        return F.relu(x) if low == 0 else torch.clamp_min(x, low)
    return torch.clamp_max(x, high) if high < 3e38 else x


@onnx_op
def Shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    require(bias == lambd, "Shrink with a bias that is not lambd")
    return F.softshrink(x, lambd)


@onnx_op
def Dropout(x: Tensor, ratio: Number = 0.5, training_mode: Number = None) -> Tensor:
    """As in inference. What it drops, and at which rate, is decided in ``dropout_sites``."""
    return x


@onnx_op
def Cast(x: Data, *, to: int) -> Any:
    dtype = numpy_dtype(to, "the result of a Cast")
    if isinstance(x, Tensor):
        return x.to(getattr(torch, dtype))
    return x if x.dtype == object and dtype[0] in "iu" else x.astype(dtype)


def _along(values: Numbers, x: Tensor, axis: int) -> Tensor:
    """One number, or one for each index of a dimension, shaped to broadcast with x."""
    require(values.size == 1 or values.ndim == 1, "quantisation in blocks")
    shape = [1] * x.dim()
    if values.size > 1:
        shape[axis] = -1
    return as_tensor(values, x.device).to(torch.float32).reshape(shape)


@onnx_op
def QuantizeLinear(
    x: Tensor, scale: Numbers, zero: Numbers | None = None, *, axis: int = 1
) -> Tensor:
    point = np.zeros(1, np.uint8) if zero is None else zero
    ends = np.iinfo(point.dtype)
    level = torch.round(x / _along(scale, x, axis)) + _along(point, x, axis)
    return level.clamp(ends.min, ends.max).to(getattr(torch, str(point.dtype)))


@onnx_op
def DequantizeLinear(
    x: Tensor, scale: Numbers, zero: Numbers | None = None, *, axis: int = 1
) -> Tensor:
    real = x.to(torch.float32) if zero is None else x.to(torch.float32) - _along(zero, x, axis)
    return real * _along(scale, x, axis)


# No ops of ONNX: ``quantised`` makes them, of QuantizeLinear and of DynamicQuantizeLinear.
@onnx_op
def Rounding(x: Tensor, scale: Numbers, zero: Numbers | None = None, *, axis: int = 1) -> Tensor:
    return DequantizeLinear(QuantizeLinear(x, scale, zero, axis=axis), scale, zero, axis=axis)


@onnx_op
def DynamicRounding(x: Tensor) -> Tensor:
    low, high = x.amin().clamp_max(0), x.amax().clamp_min(0)
    scale = ((high - low) / 255).clamp_min(1e-30)
    zero = torch.round(-low / scale)
    return (torch.round(x / scale) + zero).clamp(0, 255).sub(zero) * scale


def _softmax(
    function: Callable[[Tensor, int], Tensor], x: Tensor, *, axis: int | None = None, opset: int
) -> Tensor:
    """Before opset 13 it was over all dimensions from the axis on, as if they were one."""
    if opset >= 13:
        return function(x, -1 if axis is None else axis)
    axis = (1 if axis is None else axis) % x.dim()
    if axis == x.dim() - 1:
        return function(x, axis)
    return function(x.flatten(axis), axis).reshape(x.shape)


add_family(
    {
        "LogSoftmax": partial(_softmax, torch.log_softmax),
        "Softmax": partial(_softmax, torch.softmax),
    },
    Tensor,
    context=frozenset({"opset"}),
)


def _pair(a: Operand, b: Operand) -> tuple[Any, Any]:
    """Two tensors, a tensor and a number, or numbers alone."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return _beside(b, a), _beside(a, b)
    _limit(np.broadcast_shapes(np.shape(a), np.shape(b)))
    return a, b


def _beside(tensor: Any, value: Operand) -> Any:
    """A single number as a Python number, for which the rules are simplest."""
    if isinstance(value, Tensor):
        return value
    # One of more dimensions than the tensor would add some.
    single = value.size == 1 and value.ndim <= tensor.dim()
    return value.item() if single else as_tensor(value, tensor.device)


def _of_two(function: Callable[[Any, Any], Any], a: Operand, b: Operand) -> Any:
    return function(*_pair(a, b))


add_family(
    {
        "Add": partial(_of_two, operator.add),
        "Equal": partial(_of_two, operator.eq),
        "Greater": partial(_of_two, operator.gt),
        "GreaterOrEqual": partial(_of_two, operator.ge),
        "Less": partial(_of_two, operator.lt),
        "LessOrEqual": partial(_of_two, operator.le),
        "Mul": partial(_of_two, operator.mul),
        "Sub": partial(_of_two, operator.sub),
    },
    Operand,
    Operand,
)


add_family({"Pow": partial(_of_two, operator.pow)}, Tensor, Operand)


@onnx_op
def Div(a: Operand, b: Operand) -> Any:
    """Whole numbers are cut towards zero; sizes that are symbols are never below it."""
    top, bottom = _pair(a, b)
    if isinstance(top, np.ndarray) and top.dtype.kind != "f":
        if object in (top.dtype, bottom.dtype):
            return top // bottom
        return np.sign(top) * np.sign(bottom) * (abs(top) // abs(bottom))
    if isinstance(top, Tensor) and not top.is_floating_point():
        return torch.div(top, bottom, rounding_mode="trunc")
    return top / bottom


@onnx_op
def Mod(a: Operand, b: Operand, *, fmod: int = 0) -> Any:
    """The sign is that of b, or with ``fmod`` that of a."""
    top, bottom = _pair(a, b)
    return _library(top).fmod(top, bottom) if fmod else top % bottom


def _extreme(
    of_tensors: Callable[..., Tensor], clamp: Callable[..., Tensor], of_numbers: Any
) -> OnnxOp:
    def of_both(a: Operand, b: Operand) -> Any:
        x, y = _pair(a, b)
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return of_tensors(x, y)
        if isinstance(x, Tensor):
            return clamp(x, y)
        return clamp(y, x) if isinstance(y, Tensor) else of_numbers(x, y)

    return OnnxOp(lambda *values: reduce(of_both, values), (), Operand)


OPS.add("Max")(_extreme(torch.maximum, torch.clamp_min, np.maximum))
# A minimum of two uncertain values has no rule of its own; a maximum has.
OPS.add("Min")(_extreme(lambda a, b: -torch.maximum(-a, -b), torch.clamp_max, np.minimum))


def _sum(*values: Operand) -> Any:
    return reduce(partial(_of_two, operator.add), values)


add_family({"Sum": _sum, "Mean": lambda *values: _sum(*values) / len(values)}, rest=Operand)
add_family({"Einsum": lambda *x, equation: torch.einsum(equation, *x)}, rest=Tensor)


@onnx_op
def Where(condition: Data, a: Data, b: Data) -> Any:
    if isinstance(condition, Tensor):
        return torch.where(condition, a, b)
    _limit(np.broadcast_shapes(*(each.shape for each in (condition, a, b))))
    return np.where(condition.astype(bool), a, b)


def _reduce(
    function: Callable[..., Any],
    x: Any,
    axes: Listed = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Any:
    dims = sizes(axes)
    if not dims and noop_with_empty_axes:
        return x
    return function(x, dims or list(range(x.ndim)), keepdims == 1)


add_family(
    {
        "ReduceL1": partial(_reduce, lambda x, dims, keep: x.abs().sum(dims, keep)),
        "ReduceL2": partial(_reduce, lambda x, dims, keep: (x * x).sum(dims, keep).sqrt()),
        "ReduceLogSum": partial(_reduce, lambda x, dims, keep: x.sum(dims, keep).log()),
        "ReduceLogSumExp": partial(_reduce, torch.logsumexp),
        "ReduceMax": partial(_reduce, torch.amax),
        "ReduceMean": partial(_reduce, torch.mean),
        "ReduceMin": partial(_reduce, lambda x, dims, keep: -torch.amax(-x, dims, keep)),
        "ReduceSum": partial(_reduce, torch.sum),
        "ReduceSumSquare": partial(_reduce, lambda x, dims, keep: (x * x).sum(dims, keep)),
    },
    Tensor,
    Listed,
)


def _product(x: Any, dims: list[int], keep: bool) -> Any:
    if isinstance(x, np.ndarray):
        return np.prod(x, tuple(dims), keepdims=keep)
    return reduce(lambda y, dim: y.prod(dim, keep), sorted(d % x.ndim for d in dims)[::-1], x)


add_family({"ReduceProd": partial(_reduce, _product)}, Data, Listed)


def _arg_extreme(
    function: Callable[[Tensor, int, bool], Tensor],
    x: Tensor,
    *,
    axis: int = 0,
    keepdims: int = 1,
    select_last_index: int = 0,
) -> Tensor:
    require(not select_last_index, "select_last_index")
    return function(x, axis, bool(keepdims))


add_family(
    {"ArgMax": partial(_arg_extreme, torch.argmax), "ArgMin": partial(_arg_extreme, torch.argmin)},
    Tensor,
)


@onnx_op
def TopK(x: Tensor, k: Numbers, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return torch.topk(x, sizes(k)[0], axis, bool(largest), bool(sorted))


@onnx_op
def CumSum(x: Tensor, axis: Numbers, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    (dim,) = sizes(axis)
    total = x.flip(dim).cumsum(dim).flip(dim) if reverse else x.cumsum(dim)
    return total - x if exclusive else total


@onnx_op
def OneHot(indices: Tensor, depth: Numbers, values: Numbers, *, axis: int = -1) -> Tensor:
    (count,) = sizes(depth)
    off, on = values.tolist()
    dim = axis % (indices.dim() + 1)
    shape = [count if d == dim else 1 for d in range(indices.dim() + 1)]
    wanted = torch.arange(count, device=indices.device).reshape(shape)
    hot = (indices % count).unsqueeze(dim) == wanted
    return torch.add(torch.mul(hot.to(as_tensor(values).dtype), on - off), off)


@onnx_op
def Gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    product = torch.matmul(a.t() if transA else a, b.t() if transB else b)
    product = product if alpha == 1 else alpha * product
    return product if c is None else product + (c if beta == 1 else beta * c)


@dataclass
class _Window:
    """The attributes that convolutions and pools share."""

    kernel_shape: list[int]
    strides: Sequence[int] = ()
    pads: Sequence[int] = ()
    dilations: Sequence[int] = ()
    auto_pad: str = "NOTSET"

    def __post_init__(self) -> None:
        self.rank = len(self.kernel_shape)
        require(1 <= self.rank <= 3, f"a kernel of {self.rank} dimensions")
        self.strides = list(self.strides or [1] * self.rank)
        self.dilations = list(self.dilations or [1] * self.rank)

    @staticmethod
    def of(weight: Tensor, *, kernel_shape: Sequence[int] | None = None, **given: Any) -> _Window:
        """The window of a layer, whose weight says how large the kernel is."""
        kernel = list(weight.shape[2:])
        require(kernel_shape in (None, kernel), f"kernel_shape={kernel_shape} for {kernel}")
        return _Window(kernel, **given)

    def function(self, name: str) -> Callable[..., Tensor]:
        """PyTorch's function for so many dimensions: conv2d for conv."""
        function: Callable[..., Tensor] = getattr(F, f"{name}{self.rank}d")
        return function

    def edges(self, x: Tensor) -> tuple[list[int], list[int]]:
        """What to add before and after each dimension but the first two."""
        if self.auto_pad in ("NOTSET", "", "VALID"):
            both = [0] * 2 * self.rank
            both = both if self.auto_pad == "VALID" else list(self.pads or both)
            require(len(both) == 2 * self.rank and min(both) >= 0, f"pads={both}")
            return both[: self.rank], both[self.rank :]
        require(self.auto_pad in ("SAME_UPPER", "SAME_LOWER"), f"auto_pad={self.auto_pad}")
        windows = zip(x.shape[2:], self.kernel_shape, self.strides, self.dilations, strict=True)
        totals = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, k, s, d in windows]
        less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
        return (less, more) if self.auto_pad == "SAME_UPPER" else (more, less)

    def suits_pool(self, before: list[int], after: list[int]) -> bool:
        """PyTorch pads both sides of a pool alike, and by at most half a kernel."""
        pairs = zip(before, self.kernel_shape, strict=True)
        return before == after and all(2 * p <= k for p, k in pairs)


def _pad_last(x: Tensor, before: list[int], after: list[int], value: float = 0.0) -> Tensor:
    """Pad the last dimensions, in the order of dimensions; PyTorch's own is the other way round."""
    pairs = [n for pair in zip(before[::-1], after[::-1], strict=True) for n in pair]
    return F.pad(x, pairs, value=value)


@onnx_op
def Conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, group: int = 1, **attributes: Any
) -> Tensor:
    window = _Window.of(weight, **attributes)
    before, after = window.edges(x)
    if before != after:
        x, before = _pad_last(x, before, after), [0] * window.rank
    conv = window.function("conv")
    return conv(x, weight, bias, window.strides, before, window.dilations, group)


@onnx_op
def ConvTranspose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    group: int = 1,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    **attributes: Any,
) -> Tensor:
    window = _Window.of(weight, **attributes)
    require("SAME" not in window.auto_pad, f"ConvTranspose with auto_pad={window.auto_pad}")
    require(output_shape is None, "ConvTranspose with output_shape")
    before, after = window.edges(x)
    zeros = [0] * window.rank
    padding, extra = before if before == after else zeros, output_padding or zeros
    conv = window.function("conv_transpose")
    out = conv(x, weight, bias, window.strides, padding, extra, group, window.dilations)
    if before == after:
        return out
    for dim, (start, end) in enumerate(zip(before, after, strict=True), 2):
        out = out.narrow(dim, start, out.shape[dim] - start - end)
    return out


@onnx_op
def MaxPool(x: Tensor, *, ceil_mode: int = 0, **attributes: Any) -> Tensor:
    window = _Window(**attributes)
    before, after = window.edges(x)
    if not window.suits_pool(before, after):
        # It stands for −∞: the rules subtract such values from each other.
        x, before = _pad_last(x, before, after, -1e30), [0] * window.rank
    pool, kernel = window.function("max_pool"), window.kernel_shape
    return pool(x, kernel, window.strides, before, window.dilations, bool(ceil_mode))


@onnx_op
def AveragePool(
    x: Tensor, *, ceil_mode: int = 0, count_include_pad: int = 0, **attributes: Any
) -> Tensor:
    window = _Window(**attributes)
    require({*window.dilations} == {1}, "AveragePool with dilations")
    before, after = window.edges(x)
    pool = partial(
        window.function("avg_pool"), kernel_size=window.kernel_shape, stride=window.strides
    )
    if window.suits_pool(before, after):
        shared = {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}
        return pool(x, padding=before, **shared)
    require(not ceil_mode, "AveragePool with uneven pads and ceil_mode")
    average = pool(_pad_last(x, before, after))
    if count_include_pad:
        return average
    # The share of each window that is no padding, found by pooling ones.
    real = torch.ones([1, 1, *x.shape[2:]], dtype=x.dtype, device=x.device)
    return average / pool(_pad_last(real, before, after))


@onnx_op
def BatchNormalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    training_mode: int = 0,
) -> Tensor:
    require(not training_mode, "BatchNormalization in training mode: export the model in eval mode")
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


add_family(
    {
        "GroupNormalization": lambda x, scale, bias, num_groups, epsilon=1e-5: F.group_norm(
            x, num_groups, scale, bias, epsilon
        ),
        "InstanceNormalization": lambda x, scale, bias, epsilon=1e-5: F.instance_norm(
            x, weight=scale, bias=bias, eps=epsilon
        ),
    },
    *(Tensor, Tensor, Tensor),
)


@onnx_op
def LayerNormalization(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Tensor:
    shape = list(x.shape[axis % x.dim() :])
    require(list(scale.shape) == shape, "LayerNormalization with a scale that is broadcast")
    return F.layer_norm(x, shape, scale, bias, epsilon)


@onnx_op
def Constant(**given: Any) -> Numbers:
    dtypes = {"value": None, "value_float": np.float32, "value_int": np.int64}
    for name, value in given.items():
        if name.removesuffix("s") in dtypes:
            return np.asarray(value, dtypes[name.removesuffix("s")])
    raise ModelError("it holds no numbers")


@onnx_op
def ConstantOfShape(shape: Numbers, *, value: Numbers | None = None) -> Operand:
    number = np.zeros(1, np.float32) if value is None else value
    wanted = _limit(sizes(shape))
    if not all(isinstance(n, int) for n in wanted):
        return torch.full(wanted, number.item(), dtype=as_tensor(number).dtype)
    return np.full(wanted, number.reshape(()), number.dtype)


@onnx_op
def Range(start: Numbers, limit: Numbers, delta: Numbers) -> Any:
    count = max(0, -(-(limit.item() - start.item()) // delta.item()))
    return start + np.arange(_limit([int(count)])[0], dtype=start.dtype) * delta


@onnx_op
def Shape(x: Data, *, start: int = 0, end: int | None = None) -> Numbers:
    return np.array(list(x.shape)[start:end], object if isinstance(x, Tensor) else np.int64)


@onnx_op
def Reshape(x: Data, shape: Listed, *, allowzero: int = 0) -> Data:
    """−1 is what is left, and 0 the size as it was."""
    wanted = sizes(shape)
    keeps = [isinstance(n, int) and n == 0 and not allowzero for n in wanted]
    return x.reshape([x.shape[i] if keep else wanted[i] for i, keep in enumerate(keeps)])


@onnx_op
def Flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis % x.dim() if axis < 0 else axis
    if axis == 1:
        return x.flatten(1)
    require(0 < axis < x.dim(), f"Flatten with axis={axis}")
    return x.flatten(axis).flatten(0, axis - 1)


@onnx_op
def Transpose(x: Data, *, perm: Sequence[int] | None = None) -> Data:
    order = list(range(x.ndim))[::-1] if perm is None else list(perm)
    return x.permute(order) if isinstance(x, Tensor) else x.transpose(order)


@onnx_op
def Squeeze(x: Data, axes: Listed = None) -> Data:
    dims = sizes(axes)
    if axes is None:
        dims = [d for d, n in enumerate(x.shape) if isinstance(n, int) and n == 1]
    dims = sorted({d % x.ndim for d in dims}, reverse=True)
    require(all(x.shape[d] == 1 for d in dims), "Squeeze of a dimension that is not 1")
    for d in dims:
        x = x.squeeze(d)
    return x


@onnx_op
def Unsqueeze(x: Data, axes: Listed = None) -> Data:
    dims = sizes(axes)
    rank = x.ndim + len(dims)
    for d in sorted(d % rank for d in dims):
        x = x.unsqueeze(d) if isinstance(x, Tensor) else np.expand_dims(x, d)
    return x


@onnx_op
def Concat(*parts: Data, axis: int) -> Any:
    if isinstance(parts[0], Tensor):
        return torch.cat(parts, axis)
    _limit([sum(part.size for part in parts)])
    return np.concatenate(parts, axis)


@onnx_op
def Split(
    x: Tensor, split: Listed = None, *, axis: int = 0, num_outputs: int = 0, outputs: int
) -> tuple[Tensor, ...]:
    if split is None:
        return torch.split(x, -(-x.shape[axis] // (num_outputs or outputs)), axis)
    return torch.split(x, sizes(split), axis)


@onnx_op
def Slice(
    x: Data, starts: Listed = None, ends: Listed = None, axes: Listed = None, steps: Listed = None
) -> Data:
    first, last = sizes(starts), sizes(ends)
    dims, strides = sizes(axes) or list(range(len(first))), sizes(steps) or [1] * len(first)
    for dim, low, high, step in zip(dims, first, last, strides, strict=True):
        if isinstance(x, Tensor) and step < 0:  # torch slices forwards only
            kept = torch.tensor(range(x.shape[dim])[low:high:step], device=x.device)
            x = x.index_select(dim, kept)
        else:
            x = x[(slice(None),) * (dim % x.ndim) + (slice(low, high, step),)]
    return x


@onnx_op
def Gather(x: Data, indices: Operand, *, axis: int = 0) -> Any:
    if isinstance(x, Tensor):
        return _select(x, indices, axis % x.dim())
    wanted = np.asarray(indices).astype(np.int64)
    _limit([wanted.size, x.size // max(1, x.shape[axis])])
    return np.take(x, wanted, axis)


def _select(x: Tensor, indices: Operand, axis: int) -> Tensor:
    if isinstance(indices, np.ndarray) and indices.ndim == 0:
        return x.select(axis, int(indices))
    if isinstance(indices, Tensor) and axis == 0 and x.dim() == 2:
        return F.embedding(indices, x)
    chosen = indices if isinstance(indices, Tensor) else as_tensor(indices, x.device)
    taken = x.index_select(axis, chosen.reshape(-1))
    shape = [*x.shape[:axis], *chosen.shape, *x.shape[axis + 1 :]]
    return taken if chosen.dim() == 1 else taken.reshape(shape)


@onnx_op
def GatherElements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, torch.where(indices < 0, indices + x.shape[axis], indices))


@onnx_op
def GatherND(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    require(batch_dims == 0, f"GatherND with batch_dims={batch_dims}")
    return x[tuple(indices.unbind(-1))]


@onnx_op
def ScatterElements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    require(reduction == "none", f"ScatterElements with reduction={reduction}")
    return torch.scatter(x, axis, indices, updates)


@onnx_op
def ScatterND(x: Tensor, indices: Operand, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Each place takes what it had, or its update: a choice, which has a rule."""
    require(reduction == "none", f"ScatterND with reduction={reduction}")
    if isinstance(indices, Tensor):  # computed as it runs
        return x.index_put(tuple(indices.unbind(-1)), updates)
    depth = indices.shape[-1]
    outer, inner = list(x.shape[:depth]), list(x.shape[depth:])
    require(all(isinstance(n, int) for n in outer), "ScatterND along the batch")
    places = indices.reshape(-1, depth).astype(np.int64) % outer
    source = np.full(outer, -1)
    source[tuple(places.T)] = np.arange(len(places))
    chosen = as_tensor(source.clip(0).reshape(-1), x.device)
    placed = updates.reshape([-1, *inner]).index_select(0, chosen).reshape(x.shape)
    here = as_tensor(source >= 0, x.device).reshape([*outer, *[1] * len(inner)])
    return torch.where(here, placed, x)


@onnx_op
def Trilu(x: Data, k: Numbers | None = None, *, upper: int = 1) -> Any:
    diagonal, triangle = 0 if k is None else sizes(k)[0], np.triu if upper else np.tril
    if isinstance(x, np.ndarray):
        return triangle(x, diagonal)
    kept = triangle(np.ones(list(x.shape[-2:]), bool), diagonal)
    return torch.where(as_tensor(kept, x.device), x, x.new_zeros(()))


@onnx_op
def Expand(x: Data, shape: Listed) -> Operand:
    """To a shape that is broadcast with its own: a size of 1 stays as it is."""
    wanted = sizes(shape)
    if isinstance(x, np.ndarray) and all(isinstance(n, int) for n in wanted):
        return np.broadcast_to(x, _limit(np.broadcast_shapes(x.shape, tuple(wanted)))).copy()
    tensor = x if isinstance(x, Tensor) else as_tensor(x)
    own = [1] * (len(wanted) - x.ndim) + list(x.shape)
    wanted = [1] * (len(own) - len(wanted)) + wanted
    kept = [m if isinstance(n, int) and n == 1 else n for n, m in zip(wanted, own, strict=True)]
    return tensor.reshape(own).expand(kept)


@onnx_op
def Tile(x: Data, repeats: Listed) -> Any:
    counts = sizes(repeats)
    if isinstance(x, Tensor):
        return x.repeat(counts)
    _limit([n * m for n, m in zip(x.shape, counts, strict=True)])
    return np.tile(x, counts)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@onnx_op
def Pad(
    x: Tensor,
    pads: Listed = None,
    value: Number = None,
    axes: Listed = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """ONNX lists all beginnings, then all ends; PyTorch pairs, from the last dimension on."""
    both = sizes(pads)
    dims = list(range(x.dim())) if axes is None else sizes(axes)
    edges = [(0, 0)] * x.dim()
    for i, dim in enumerate(dims):
        edges[dim] = (both[i], both[i + len(dims)])
    while edges and edges[0] == (0, 0):
        edges = edges[1:]
    require(mode in _PAD_MODES, f"Pad with mode={mode}")
    if not edges:
        return x
    flat = [n for edge in reversed(edges) for n in edge]
    fill = _number(value, 0.0) if mode == "constant" else None
    return F.pad(x, flat, _PAD_MODES[mode], fill)


@onnx_op
def DepthToSpace(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape([n, b, b, c // (b * b), h, w]).permute([0, 3, 4, 1, 5, 2])
    return parts.reshape([n, c // (b * b), h * b, w * b])


@onnx_op
def SpaceToDepth(x: Tensor, *, blocksize: int) -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape([n, c, h // b, b, w // b, b]).permute([0, 3, 5, 1, 2, 4])
    return parts.reshape([n, c * b * b, h // b, w // b])


@onnx_op
def Resize(
    x: Tensor,
    roi: Numbers | None = None,
    scales: Numbers | None = None,
    target: Numbers | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
    opset: int,
) -> Tensor:
    if opset == 10:  # scales came first then, and nothing else
        scales, nearest_mode, coordinate_transformation_mode = roi, "floor", "asymmetric"
    require(not antialias and axes is None, "Resize with antialias or axes")
    require(keep_aspect_ratio_policy == "stretch", "Resize that keeps the aspect ratio")
    method, align = _method(mode, coordinate_transformation_mode, nearest_mode, x.dim() - 2)
    if target is not None and target.size:
        return F.interpolate(x, size=sizes(target)[2:], mode=method, align_corners=align)
    factors = [] if scales is None else [float(f) for f in scales]
    require(len(factors) == x.dim(), "Resize without scales and sizes")
    require(factors[:2] == [1, 1], "Resize of batch or channels")
    return F.interpolate(x, scale_factor=factors[2:], mode=method, align_corners=align)


def _method(mode: str, grid: str, nearest: str, dims: int) -> tuple[str, bool | None]:
    if mode == "nearest" and (grid, nearest) == ("asymmetric", "floor"):
        return "nearest", None
    if mode == "nearest" and (grid, nearest) == ("half_pixel", "round_prefer_floor"):
        return "nearest-exact", None
    linear = mode == "linear" and grid in ("half_pixel", "pytorch_half_pixel", "align_corners")
    require(
        linear and 1 <= dims <= 3,
        f"Resize with mode={mode}, coordinate_transformation_mode={grid}, nearest_mode={nearest}",
    )
    return ("linear", "bilinear", "trilinear")[dims - 1], grid == "align_corners"


@onnx_op
def Upsample(x: Tensor, scales: Numbers, *, mode: str = "nearest") -> Tensor:
    return Resize(x, scales, mode=mode, opset=10)
