"""Eight bits: which ops between quantised tensors run on their codes, and by which numbers.

    value = scale · (code − zero)       codes: uint8; those of int8 tensors are stored 128 higher

QuantizeLinear asks what computed its input. If codes went into that through DequantizeLinear, and
the op is known here, codes come out of one integer op. If not, the op runs in float, and so all
that no codes reach. What moves values moves codes. A function of one tensor is a table of 256. All
else are sums of products, which are rounded to codes in integers:

    code = ⌊(sum · multiplier / 2³² + high) / 2^shift⌋,   high = zero · 2^shift + 2^(shift − 1)

so the halves are rounded up, and every machine gets the same codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, frexp, log2
from typing import Any, NamedTuple

import numpy as np

from onesigma.exporters.c.elementwise import ELEMENTWISE
from onesigma.exporters.c.nodes import Array, Builder, Codes, Level, Made, Node, Value, require

_MOVES = frozenset(
    {"Concat", "Dropout", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity"}
)
_MOVES |= {"MaxPool", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
_CLAMPS = ("Clip", "Relu")
_FUNCTIONS = frozenset({*ELEMENTWISE, "Clip", "Gelu", "Max", "Min", "Pow"})
_ALL = np.arange(256)
_LARGEST = 0.25  # of a sum's factors: its multiplier has 31 bits, and a shift of at least one


class Rounding(NamedTuple):
    """From sums to codes, as above; ``left`` multiplies small sums before."""

    multiplier: int
    high: int
    shift: int
    left: int = 1

    def numbers(self) -> dict[str, Any]:
        return {"left": self.left, "rounding": ", ".join(map(str, self[:3]))}


def read_dequantize(b: Builder, x: Value, scale: Array, zero: Any = None, **_: Any) -> Value:
    level = _level(scale, zero)
    result = b.elementwise("Dequantize", x, scale=level.scale, zero=level.zero)
    b.codes[result.storage] = Codes(x, level)
    return result


def read_quantize(b: Builder, x: Value, scale: Array, zero: Any = None, **_: Any) -> Value:
    level = _level(scale, zero)
    found = _codes(b, x, level)
    if found is not None:
        return found
    return b.elementwise("Quantize", x, scale=level.scale, zero=level.zero)


def _level(scale: Array, zero: Array | None) -> Level:
    zero = np.zeros(1, np.uint8) if zero is None else zero
    known = scale.size == 1 and zero.dtype in (np.uint8, np.int8)
    require(known, "codes but uint8 and int8, with one scale")
    return Level(float(scale.item()), int(zero.item()) + (128 if zero.dtype == np.int8 else 0))


def _codes(b: Builder, x: Value, level: Level) -> Value | None:
    """x as codes, computed in integers, or None."""
    known, made = _known(b, x), b.made.get(x)
    if known is not None:
        return _lookup(b, known, level, lambda values: values)
    if made is None:
        return None
    inputs: list[Any] = [_known(b, i) if isinstance(i, Value) else i for i in made.operands]
    others = [each for each in made.operands[1:] if each is not None]
    alone = isinstance(inputs[0], Codes) and all(
        isinstance(each, np.ndarray) and each.size == 1 for each in others
    )
    if made.op in _FUNCTIONS and alone:
        return _lookup(b, inputs[0], level, _function(made))
    if made.op in _CLAMPS:
        inner = _codes(b, made.operands[0], level)
        return None if inner is None else _lookup(b, Codes(inner, level), level, _function(made))
    if made.op in _MOVES:
        return _move(b, made, level)
    if made.op in _PAIRS and all(isinstance(i, Codes) for i in inputs):
        return _PAIRS[made.op](b, inputs[0], inputs[1], level)
    if made.op in _MEANS and isinstance(inputs[0], Codes):
        return _mean(b, made, inputs[0], level)
    return _layer(b, x, level)


def _known(b: Builder, x: Value) -> Codes | None:
    """What was dequantised to x, in its shape."""
    codes = b.codes.get(x.storage) if x.whole else None
    return None if codes is None else Codes(b.reshape(codes.value, x.shape), codes.level)


def _function(made: Made) -> Callable[[Array], Array]:
    return lambda values: np.ravel(made.again([values, *made.operands[1:]])[made.place])


def _lookup(b: Builder, x: Codes, level: Level, function: Callable[[Array], Array]) -> Value | None:
    """The codes of a function of each element, by a table; None if it is not a number for some."""
    with np.errstate(all="ignore"):
        steps = np.rint(function(x.level.values(_ALL)) / np.float32(level.scale))
    if np.isnan(steps).any():
        return None
    table = np.clip(steps + level.zero, 0, 255).astype(np.uint8)
    if (table == _ALL).all():
        return x.value
    return b.elementwise("Lookup", x.value, codes=table)


def _move(b: Builder, made: Made, level: Level) -> Value | None:
    """The same op on codes, all of the result's level."""
    operands: list[Any] = []
    for x in made.operands:
        codes = _codes(b, x, level) if isinstance(x, Value) else x
        if isinstance(x, Value) and codes is None:
            return None
        operands.append(codes)
    if made.op == "Concat" and not all(isinstance(x, Value) for x in operands):
        return None
    if made.op == "Pad":
        fill = operands[2] if len(operands) > 2 else None
        code = level.code(0.0 if fill is None else float(fill))
        operands[2:3] = [np.array(code, np.float32)]
    moved: Value = made.again(operands)[made.place]
    return moved


def _rounding(factor: float, level: Level, largest: int) -> Rounding | None:
    """How a sum, at most so large, becomes a code by a factor; None if the factor is too large."""
    left = 1
    while factor >= _LARGEST and largest < 2**24:
        factor, left, largest = factor / 2, 2 * left, 2 * largest
    if factor >= _LARGEST:
        return None
    shift = min(-frexp(factor)[1] - 1, 21)
    multiplier = min(round(factor * 2.0 ** (32 + shift)), 2**31 - 1)
    return Rounding(multiplier, (2 * level.zero + 1) << (shift - 1), shift, left)


def _add(b: Builder, x: Codes, y: Codes, level: Level) -> Value | None:
    factors = [each.level.scale / level.scale for each in (x, y)]
    shift = min(21, floor(21 - log2(sum(factors))))
    if shift < 8:
        return None
    first, second = (round(factor * 2**shift) for factor in factors)
    offset = (2 * level.zero + 1) << (shift - 1)
    offset -= first * x.level.zero + second * y.level.zero
    numbers = {"first": first, "second": second, "offset": offset, "shift": shift}
    return b.elementwise("AddCodes", x.value, y.value, **numbers)


def _multiply(b: Builder, x: Codes, y: Codes, level: Level) -> Value | None:
    rounding = _rounding(x.level.scale * y.level.scale / level.scale, level, 255**2)
    if rounding is None:
        return None
    zeros = {"first": x.level.zero, "second": y.level.zero}
    return b.elementwise("MulCodes", x.value, y.value, **zeros, **rounding.numbers())


_PAIRS = {"Add": _add, "Mul": _multiply}
_MEANS = ("AveragePool", "GlobalAveragePool", "ReduceMean")


def _mean(b: Builder, made: Made, x: Codes, level: Level) -> Value | None:
    """A sum of codes; the op itself says of which, and by what it divides."""
    if any(made.attributes.get("pads", ())) or made.attributes.get("ceil_mode"):
        return None  # windows differ in how many elements they have
    result: Value = made.again([x.value, *made.operands[1:]])[made.place]
    node = _writer(b, result)
    share = node.reads[1].number if node.kind == "Mul" else None
    if share is None:
        return None
    count = round(1 / share)
    rounding = _rounding(x.level.scale / level.scale / count, level, 255 * count)
    if rounding is None:
        return None
    zeros = count * x.level.zero
    mean = b.elementwise("Requantize", node.reads[0], zeros=zeros, **rounding.numbers())
    return b.reshape(mean, result.shape)


def _writer(b: Builder, x: Value) -> Node:
    return next(node for node in reversed(b.nodes) if node.writes[0].storage is x.storage)


def _layer(b: Builder, y: Value, level: Level) -> Value | None:
    """A convolution or a linear layer on codes, by weights that are codes."""
    node = _writer(b, y) if y.whole and y.storage.computed else None
    if node is None or node.kind not in ("Conv", "Dense"):
        return None
    x, weight = _known(b, node.reads[0]), _weight_codes(b.steps, node.attributes["weight"])
    if x is None or weight is None:
        return None
    codes, steps = weight
    # A filter of zeros answers its bias: any step will do.
    steps = np.where(codes.any(1), steps, level.scale / x.level.scale / 2**20)
    bias, sums = node.attributes["bias"], codes.sum(1) * x.level.zero
    offsets = 0.0 if bias is None else np.rint(bias / (x.level.scale * steps))
    starts = offsets - sums
    if (np.abs(codes).sum(1) * 255 + np.abs(starts)).max() >= 2**31:
        return None
    roundings = [_rounding(float(s) * x.level.scale / level.scale, level, 2**31) for s in steps]
    if any(rounding is None for rounding in roundings):
        return None
    filters = [[int(a), *r[:3]] for a, r in zip(starts, roundings, strict=True) if r is not None]
    numbers: dict[str, Any] = {"codes": codes, "filters": np.array(filters), "zero": x.level.zero}
    shape, window = node.writes[0].shape, node.attributes["window"]
    result = b.add(f"{node.kind}8", [b.dense(x.value)], shape, window=window, **numbers)
    return b.reshape(result, y.shape)


def _weight_codes(scales: Sequence[Array], weight: Array) -> tuple[Array, Array] | None:
    """Codes (filters, taps) and the step of each filter, if these are multiples of known steps."""
    for scale in scales:
        if scale.size in (1, len(weight)):
            steps = np.broadcast_to(scale.astype(np.float32), len(weight))
            codes = np.rint(weight / steps[:, None])
            same = codes.astype(np.float32) * steps[:, None] == weight
            if same.all() and (np.abs(codes) <= 128).all():
                return codes.astype(np.int64), steps.astype(np.float64)
    return None
