"""Layers with weights, and normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from onesigma.importers.onnx.ops.pools import Sizes, padded, paddings
from onesigma.importers.onnx.ops.table import covers, onnx_op

_CONVS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@onnx_op("Linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, /) -> Tensor:
    """No ONNX op: what ``onnx_patterns`` makes of Gemm, and of MatMul and Add."""
    return F.linear(x, weight, bias)


@onnx_op("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    /,
    *,
    kernel_shape: Sizes = None,
    strides: Sizes = None,
    pads: Sizes = None,
    dilations: Sizes = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:
    kernel = list(weight.shape[2:])
    covers(len(kernel) in _CONVS and kernel_shape in (None, kernel), "such a kernel of Conv")
    ones = [1] * len(kernel)
    stride, dilation = list(strides or ones), list(dilations or ones)
    before, after = paddings(auto_pad, pads, x.shape[2:], kernel, stride, dilation)
    if before != after:
        x, before = padded(x, before, after), [0] * len(kernel)
    return _CONVS[len(kernel)](x, weight, bias, stride, before, dilation, group)


@onnx_op("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    /,
    *,
    kernel_shape: Sizes = None,
    strides: Sizes = None,
    pads: Sizes = None,
    dilations: Sizes = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_padding: Sizes = None,
    output_shape: Sizes = None,
) -> Tensor:
    kernel = list(weight.shape[2:])
    covers(len(kernel) in _TRANSPOSED, "such a kernel of ConvTranspose")
    covers(auto_pad in ("NOTSET", "VALID"), f"ConvTranspose with auto_pad={auto_pad}")
    covers(output_shape is None, "ConvTranspose with output_shape")
    ones, zeros = [1] * len(kernel), [0] * len(kernel)
    stride, dilation = list(strides or ones), list(dilations or ones)
    edge = list(pads or zeros + zeros)
    before, after = edge[: len(kernel)], edge[len(kernel) :]
    extra = list(output_padding or zeros)
    padding = before if before == after else zeros
    out = _TRANSPOSED[len(kernel)](x, weight, bias, stride, padding, extra, group, dilation)
    if before == after:
        return out
    for dim, (start, end) in enumerate(zip(before, after, strict=True), 2):
        out = out.narrow(dim, start, out.shape[dim] - start - end)
    return out


@onnx_op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    /,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (so ONNX spells it)
    transB: int = 0,  # noqa: N803
) -> Tensor:
    product = torch.matmul(a.t() if transA else a, b.t() if transB else b)
    product = product if alpha == 1 else alpha * product
    return product if c is None else product + (c if beta == 1 else beta * c)


@onnx_op("MatMul")
def matmul(a: Tensor, b: Tensor, /) -> Tensor:
    return torch.matmul(a, b)


@onnx_op("BatchNormalization")
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    /,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Tensor:
    covers(not training_mode, "BatchNormalization in training mode: export the model in eval mode")
    covers(spatial, "BatchNormalization that is not per channel")
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


@onnx_op("InstanceNormalization")
def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, /, *, epsilon: float = 1e-5
) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@onnx_op("GroupNormalization")
def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    /,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@onnx_op("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    /,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    shape: Sequence[int] = list(x.shape[axis % x.dim() :])
    covers(list(scale.shape) == shape, "LayerNormalization with a scale that is broadcast")
    return F.layer_norm(x, shape, scale, bias, epsilon)
