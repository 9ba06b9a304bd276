"""Ops that move elements, and those that ask for or make shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from onesigma.importers.onnx.file import numpy_dtype
from onesigma.importers.onnx.ops.table import (
    Numbers,
    Operand,
    as_tensor,
    axes_of,
    covers,
    onnx_op,
    sizes,
)

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@onnx_op("Shape")
def shape_of(x: Tensor, /, *, start: int = 0, end: int | None = None) -> Numbers:
    return np.array(list(x.shape)[start:end], dtype=object)


@onnx_op("Reshape")
def reshape(x: Tensor, shape: Numbers, /, *, allowzero: int = 0) -> Tensor:
    """−1 is what is left, and 0 the size as it was."""
    wanted = sizes(shape)
    keeps = [isinstance(n, int) and n == 0 and not allowzero for n in wanted]
    return x.reshape([x.shape[i] if keep else wanted[i] for i, keep in enumerate(keeps)])


@onnx_op("Flatten")
def flatten(x: Tensor, /, *, axis: int = 1) -> Tensor:
    axis = axis % x.dim() if axis < 0 else axis
    if axis == 1:
        return x.flatten(1)
    covers(0 < axis < x.dim(), f"Flatten with axis={axis}")
    return x.flatten(axis).flatten(0, axis - 1)


@onnx_op("Transpose")
def transpose(x: Tensor, /, *, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(list(perm) if perm is not None else list(range(x.dim()))[::-1])


@onnx_op("Squeeze")
def squeeze(
    x: Tensor, listed: Numbers | None = None, /, *, axes: Sequence[int] | None = None
) -> Tensor:
    dims = axes_of(listed, axes)
    if dims is None:
        dims = [d for d, n in enumerate(x.shape) if isinstance(n, int) and n == 1]
    dims = sorted({d % x.dim() for d in dims}, reverse=True)
    covers(all(x.shape[d] == 1 for d in dims), "Squeeze of a dimension that is not 1")
    for d in dims:
        x = x.squeeze(d)
    return x


@onnx_op("Unsqueeze")
def unsqueeze(
    x: Tensor, listed: Numbers | None = None, /, *, axes: Sequence[int] | None = None
) -> Tensor:
    dims = axes_of(listed, axes) or []
    rank = x.dim() + len(dims)
    for d in sorted(d % rank for d in dims):
        x = x.unsqueeze(d)
    return x


@onnx_op("Concat")
def concat(*parts: Tensor, axis: int) -> Tensor:
    return torch.cat(parts, axis)


@onnx_op("Split")
def split(
    x: Tensor,
    listed: Numbers | None = None,
    /,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    num_outputs: int = 0,
    outputs: int,
) -> tuple[Tensor, ...]:
    parts = axes_of(listed, split)
    if parts is None:
        each = -(-x.shape[axis] // (num_outputs or outputs))
        return torch.split(x, each, axis)
    return torch.split(x, parts, axis)


@onnx_op("Slice")
def slice_of(
    x: Tensor,
    first: Numbers | None = None,
    last: Numbers | None = None,
    listed: Numbers | None = None,
    steps: Numbers | None = None,
    /,
    *,
    starts: Sequence[int] = (),
    ends: Sequence[int] = (),
    axes: Sequence[int] | None = None,
) -> Tensor:
    begin, end = axes_of(first, starts) or [], axes_of(last, ends) or []
    dims = axes_of(listed, axes) or list(range(len(begin)))
    strides = sizes(steps) if steps is not None else [1] * len(begin)
    for dim, low, high, step in zip(dims, begin, end, strides, strict=True):
        if step > 0:
            x = x[(slice(None),) * (dim % x.dim()) + (slice(low, high, step),)]
        else:
            chosen = list(range(x.shape[dim]))[low:high:step]
            x = x.index_select(dim, torch.tensor(chosen, device=x.device))
    return x


@onnx_op("Gather")
def gather(x: Tensor, indices: Operand, /, *, axis: int = 0) -> Tensor:
    axis = axis % x.dim()
    if isinstance(indices, np.ndarray) and indices.ndim == 0:
        return x.select(axis, int(indices))
    chosen = indices if isinstance(indices, Tensor) else as_tensor(indices, x.device)
    if isinstance(indices, Tensor) and axis == 0 and x.dim() == 2:
        return F.embedding(chosen, x)
    taken = x.index_select(axis, chosen.reshape(-1))
    shape = [*x.shape[:axis], *chosen.shape, *x.shape[axis + 1 :]]
    return taken if chosen.dim() == 1 else taken.reshape(shape)


@onnx_op("Pad")
def pad(
    x: Tensor,
    amounts: Numbers | None = None,
    fill: Numbers | None = None,
    listed: Numbers | None = None,
    /,
    *,
    mode: str = "constant",
    pads: Sequence[int] | None = None,
    value: float = 0.0,
) -> Tensor:
    """ONNX lists all beginnings, then all ends; PyTorch pairs, from the last dimension on."""
    both = axes_of(amounts, pads) or []
    dims = sizes(listed) if listed is not None else list(range(x.dim()))
    edges = [(0, 0)] * x.dim()
    for i, dim in enumerate(dims):
        edges[dim] = (both[i], both[i + len(dims)])
    while edges and edges[0] == (0, 0):
        edges = edges[1:]
    if not edges:
        return x
    flat = [n for edge in reversed(edges) for n in edge]
    covers(mode in _PAD_MODES, f"Pad with mode={mode}")
    if mode != "constant":
        return F.pad(x, flat, _PAD_MODES[mode])
    number = value if fill is None or not fill.size else float(fill.reshape(()))
    return F.pad(x, flat, value=number)


@onnx_op("Expand")
def expand(x: Tensor, shape: Numbers, /) -> Tensor:
    """To a shape that is broadcast with its own: 1 is as it is."""
    wanted = sizes(shape)
    own = [1] * (len(wanted) - x.dim()) + list(x.shape)
    wanted = [1] * (len(own) - len(wanted)) + wanted
    kept = [m if isinstance(n, int) and n == 1 else n for n, m in zip(wanted, own, strict=True)]
    return x.reshape(own).expand(kept)


@onnx_op("Tile")
def tile(x: Tensor, repeats: Numbers, /) -> Tensor:
    return x.repeat(sizes(repeats))


@onnx_op("Cast")
def cast(x: Tensor, /, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    dtype: Any = getattr(torch, numpy_dtype(to, "the result of a Cast"))
    return x.to(dtype)


@onnx_op("DepthToSpace")
def depth_to_space(x: Tensor, /, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape([n, b, b, c // (b * b), h, w]).permute([0, 3, 4, 1, 5, 2])
    return parts.reshape([n, c // (b * b), h * b, w * b])


@onnx_op("SpaceToDepth")
def space_to_depth(x: Tensor, /, *, blocksize: int) -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape([n, c, h // b, b, w // b, b]).permute([0, 3, 5, 1, 2, 4])
    return parts.reshape([n, c * b * b, h // b, w // b])
