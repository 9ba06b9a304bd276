"""Pooling, and the padding that pools and convolutions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from onesigma.importers.onnx.ops.table import covers, onnx_op

Sizes: TypeAlias = list[int] | None
_MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
# Stands for −∞ in the padding of a maximum: the rules subtract such values from each other.
_VERY_LOW = -1e30


def paddings(
    auto_pad: str,
    pads: Sizes,
    size: Sequence[int],
    kernel: list[int],
    stride: list[int],
    dilation: list[int],
) -> tuple[list[int], list[int]]:
    """What to add before and after each dimension of ``size``."""
    zeros = [0] * len(kernel)
    if auto_pad in ("NOTSET", "", "VALID"):
        both = list(pads or zeros + zeros) if auto_pad != "VALID" else zeros + zeros
        covers(len(both) == 2 * len(kernel) and min(both) >= 0, f"pads={both}")
        return both[: len(kernel)], both[len(kernel) :]
    covers(auto_pad in ("SAME_UPPER", "SAME_LOWER"), f"auto_pad={auto_pad}")
    totals = []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        out = -(-n // s)
        totals.append(max((out - 1) * s + (k - 1) * d + 1 - n, 0))
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def padded(x: Tensor, before: list[int], after: list[int], value: float = 0.0) -> Tensor:
    """Pad the last dimensions, in the order of dimensions; PyTorch's own is the other way round."""
    pairs = [n for pair in zip(before[::-1], after[::-1], strict=True) for n in pair]
    return F.pad(x, pairs, value=value)


@onnx_op("MaxPool")
def max_pool(
    x: Tensor,
    /,
    *,
    kernel_shape: list[int],
    strides: Sizes = None,
    pads: Sizes = None,
    dilations: Sizes = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
) -> Tensor:
    ones = [1] * len(kernel_shape)
    stride, dilation = list(strides or ones), list(dilations or ones)
    before, after = paddings(auto_pad, pads, x.shape[2:], kernel_shape, stride, dilation)
    # PyTorch pads both sides alike, and by at most half a kernel.
    if before != after or any(2 * p > k for p, k in zip(before, kernel_shape, strict=True)):
        x, before = padded(x, before, after, _VERY_LOW), [0] * len(kernel_shape)
    pool = _MAX_POOLS[len(kernel_shape)]
    result: Tensor = pool(x, kernel_shape, stride, before, dilation, bool(ceil_mode))
    return result


@onnx_op("AveragePool")
def average_pool(
    x: Tensor,
    /,
    *,
    kernel_shape: list[int],
    strides: Sizes = None,
    pads: Sizes = None,
    dilations: Sizes = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Tensor:
    ones = [1] * len(kernel_shape)
    covers(dilations in (None, ones), "AveragePool with dilations")
    stride = list(strides or ones)
    before, after = paddings(auto_pad, pads, x.shape[2:], kernel_shape, stride, ones)
    pool = _AVERAGE_POOLS[len(kernel_shape)]
    if before == after and all(2 * p <= k for p, k in zip(before, kernel_shape, strict=True)):
        return pool(x, kernel_shape, stride, before, bool(ceil_mode), bool(count_include_pad))
    covers(not ceil_mode, "AveragePool with uneven pads and ceil_mode")
    average = pool(padded(x, before, after), kernel_shape, stride)
    if count_include_pad:
        return average
    # The share of each window that is no padding, found by pooling ones.
    real = torch.ones([1, 1, *x.shape[2:]], dtype=x.dtype, device=x.device)
    return average / pool(padded(real, before, after), kernel_shape, stride)


@onnx_op("GlobalAveragePool")
def global_average_pool(x: Tensor, /) -> Tensor:
    return x.mean(list(range(2, x.dim())), keepdim=True)


@onnx_op("GlobalMaxPool")
def global_max_pool(x: Tensor, /) -> Tensor:
    return torch.amax(x, list(range(2, x.dim())), keepdim=True)
