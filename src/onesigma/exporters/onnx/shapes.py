"""The table's ops that move elements, and those on sizes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from onnx import helper

from onesigma.exporters.onnx.writer import Input, Value, Writer, covers, writes

aten = torch.ops.aten
_FAR = 2**63 - 1
_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


@writes(aten.sym_size.int)
def _size(w: Writer, x: Value, dim: int) -> str:
    """A vector of one, as sizes are joined; so the arithmetic below is on vectors of one."""
    return w.op("Shape", x, start=dim % x.rank, end=dim % x.rank + 1)


@writes(operator.mul)
def _times(w: Writer, a: Input, b: Input) -> str:
    return w.op("Mul", a, b)


@writes(operator.floordiv)
def _over(w: Writer, a: Input, b: Input) -> str:
    return w.op("Div", a, b)


@writes(aten.reshape.default, aten.view.default)
def _reshape(w: Writer, x: Value, sizes: Sequence[Any]) -> str:
    return w.op("Reshape", x, sizes)


@writes(aten.flatten.using_ints)
def _flatten(w: Writer, x: Value, start: int = 0, end: int = -1) -> str:
    start, end = start % x.rank, end % x.rank
    return w.op("Reshape", x, [*([0] * start), -1, *x.shape[end + 1 :]])


@writes(aten.unsqueeze.default)
def _unsqueeze(w: Writer, x: Value, dim: int) -> str:
    return w.op("Unsqueeze", x, [dim])


@writes(aten.squeeze.dim)
def _squeeze(w: Writer, x: Value, dim: int) -> str:
    covers(x.shape[dim] == 1, "squeezing what is not 1")
    return w.op("Squeeze", x, [dim])


@writes(aten.permute.default)
def _permute(w: Writer, x: Value, dims: Sequence[int]) -> str:
    order = [dim % x.rank for dim in dims]
    return x.name if order == list(range(x.rank)) else w.op("Transpose", x, perm=order)


@writes(aten.transpose.int)
def _transpose(w: Writer, x: Value, first: int, second: int) -> str:
    order = list(range(x.rank))
    order[first], order[second] = order[second], order[first]
    return _permute(w, x, order)


@writes(aten.t.default)
def _t(w: Writer, x: Value) -> str:
    return _permute(w, x, range(x.rank)[::-1])


@writes(aten.movedim.int)
def _movedim(w: Writer, x: Value, source: int, target: int) -> str:
    order = [dim for dim in range(x.rank) if dim != source % x.rank]
    order.insert(target % x.rank, source % x.rank)
    return _permute(w, x, order)


@writes(aten.cat.default)
def _cat(w: Writer, tensors: Sequence[Value], dim: int = 0) -> str:
    return w.op("Concat", *tensors, axis=dim)


@writes(aten.stack.default)
def _stack(w: Writer, tensors: Sequence[Value], dim: int = 0) -> str:
    return w.op("Concat", *(w.op("Unsqueeze", t, [dim]) for t in tensors), axis=dim)


@writes(aten.select.int)
def _select(w: Writer, x: Value, dim: int, index: int) -> str:
    return w.op("Gather", x, w.index(index), axis=dim)


@writes(aten.index_select.default)
def _index_select(w: Writer, x: Value, dim: int, index: Value) -> str:
    return w.op("Gather", x, index, axis=dim)


@writes(aten.embedding.default)
def _embedding(w: Writer, weight: Value, index: Value, *_: Any) -> str:
    return w.op("Gather", weight, index)


@writes(aten.slice.Tensor)
def _slice(
    w: Writer,
    x: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> str:
    covers(not isinstance(start, Value) and not isinstance(end, Value), "a computed slice")
    end = _FAR if end is None else end
    return w.op("Slice", x, [start or 0], [end], [dim], [step])


@writes(aten.narrow.default)
def _narrow(w: Writer, x: Value, dim: int, start: int, length: int) -> str:
    covers(isinstance(start, int) and isinstance(length, int), "a computed slice")
    start = start % x.shape[dim]
    return w.op("Slice", x, [start], [start + length], [dim])


@writes(aten.expand_as.default)
def _expand_as(w: Writer, x: Value, other: Value) -> str:
    return w.op("Expand", x, w.op("Shape", other))


@writes(aten.expand.default)
def _expand(w: Writer, x: Value, sizes: Sequence[Any]) -> str:
    return w.op("Expand", x, [1 if n == -1 else n for n in sizes])  # 1: as it is, in ONNX


@writes(aten.full_like.default)
def _full_like(w: Writer, x: Value, number: float, **_: Any) -> str:
    return w.op("Expand", number, w.op("Shape", x))


@writes(aten.zeros_like.default)
def _zeros_like(w: Writer, x: Value, **_: Any) -> str:
    return _full_like(w, x, 0)


@writes(aten.to.dtype, aten.to.dtype_layout, aten._to_copy.default)
def _to(w: Writer, x: Value, dtype: torch.dtype | None = None, *_: Any, **__: Any) -> str:
    if dtype in (None, x.example.dtype):
        return x.name
    kind = helper.np_dtype_to_tensor_dtype(torch.empty(0, dtype=dtype).numpy().dtype)
    return w.op("Cast", x, to=kind)


@writes(aten.pad.default)
def _pad(
    w: Writer, x: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> str:
    """PyTorch lists pairs from the last dimension backwards, ONNX all beginnings, then all ends."""
    covers(mode in _PAD_MODES, f"padding mode {mode}")
    unpadded = [0] * (x.rank - len(pad) // 2)
    pads = [*unpadded, *pad[-2::-2], *unpadded, *pad[::-2]]
    fill: Input = None if mode != "constant" else float(value or 0)
    return w.op("Pad", x, pads, fill, mode=_PAD_MODES[mode])


@writes(aten.constant_pad_nd.default)
def _constant_pad(w: Writer, x: Value, pad: Sequence[int], value: float = 0) -> str:
    return _pad(w, x, pad, value=value)
