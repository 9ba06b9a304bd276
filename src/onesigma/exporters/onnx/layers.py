"""The table's layers: weights, pools, normalisation, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onesigma.exporters.onnx.writer import Value, Writer, covers, writes

aten = torch.ops.aten
Sizes = Sequence[int]


@writes(aten.linear.default)
def _linear(w: Writer, x: Value, weight: Value, bias: Value | None = None) -> str:
    if x.rank == 2:
        return w.op("Gemm", x, weight, bias, transB=1)
    product = w.op("MatMul", x, w.op("Transpose", weight, perm=[1, 0]))
    return product if bias is None else w.op("Add", product, bias)


@writes(aten.addmm.default)
def _addmm(w: Writer, bias: Value, x: Value, weight: Value) -> str:
    return w.op("Gemm", x, weight, bias)


@writes(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
def _conv(
    w: Writer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    groups: int = 1,
) -> str:
    covers(x.rank == weight.rank, "a sample without a batch")
    space = weight.rank - 2
    return w.op(
        "Conv",
        *(x, weight, bias),
        kernel_shape=weight.shape[2:],
        strides=_each(stride, space),
        pads=2 * _each(padding, space),
        dilations=_each(dilation, space),
        group=groups,
    )


@writes(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def _conv_transpose(
    w: Writer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    output_padding: Sizes = (0,),
    groups: int = 1,
    dilation: Sizes = (1,),
) -> str:
    covers(x.rank == weight.rank, "a sample without a batch")
    space = weight.rank - 2
    return w.op(
        "ConvTranspose",
        *(x, weight, bias),
        kernel_shape=weight.shape[2:],
        strides=_each(stride, space),
        pads=2 * _each(padding, space),
        output_padding=_each(output_padding, space),
        dilations=_each(dilation, space),
        group=groups,
    )


def _each(sizes: Sizes, count: int) -> list[int]:
    """One number per dimension; PyTorch gives one for all as well."""
    return list(sizes) * count if len(sizes) == 1 else list(sizes)


@writes(aten.batch_norm.default)
def _batch_norm(
    w: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> str:
    covers(not training, "batch norm in training mode")
    channels = mean.shape[0]
    scale, shift = weight or w.filled(channels, 1.0), bias or w.filled(channels, 0.0)
    return w.op("BatchNormalization", x, scale, shift, mean, var, epsilon=eps)


@writes(aten.layer_norm.default)
def _layer_norm(
    w: Writer,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> str:
    covers(weight is not None, "layer norm without weights")
    return w.op("LayerNormalization", x, weight, bias, axis=-len(shape), epsilon=eps)


def _reduce(kind: str, w: Writer, x: Value, dims: Sizes, keepdim: bool) -> str:
    w.alike(x)
    axes = list(dims) or list(range(x.rank))
    if kind != "ReduceSum" and w.opset < 18:  # an attribute before, an input since
        return w.op(kind, x, axes=axes, keepdims=int(keepdim))
    return w.op(kind, x, axes, keepdims=int(keepdim))


@writes(aten.mean.dim)
def _mean(w: Writer, x: Value, dims: Sizes = (), keepdim: bool = False, dtype: Any = None) -> str:
    return _reduce("ReduceMean", w, x, dims, keepdim)


@writes(aten.sum.dim_IntList)
def _sum(w: Writer, x: Value, dims: Sizes = (), keepdim: bool = False, dtype: Any = None) -> str:
    return _reduce("ReduceSum", w, x, dims, keepdim)


@writes(aten.amax.default)
def _amax(w: Writer, x: Value, dims: Sizes = (), keepdim: bool = False) -> str:
    return _reduce("ReduceMax", w, x, dims, keepdim)


@writes(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)
def _avg_pool(
    w: Writer,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> str:
    covers(not ceil and divisor is None, "an average pool with a ceiling or a divisor")
    space = x.rank - 2
    return w.op(
        "AveragePool",
        x,
        kernel_shape=_each(kernel, space),
        strides=_each(stride or kernel, space),
        pads=2 * _each(padding, space),
        count_include_pad=int(count_include_pad),
    )


@writes(aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default)
def _max_pool(
    w: Writer,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil: bool = False,
) -> str:
    covers(not ceil, "a max pool with a ceiling")
    space = x.rank - 2
    return w.op(
        "MaxPool",
        x,
        kernel_shape=_each(kernel, space),
        strides=_each(stride or kernel, space),
        pads=2 * _each(padding, space),
        dilations=_each(dilation, space),
    )


@writes(
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
)
def _adaptive_avg_pool(w: Writer, x: Value, size: Sizes) -> str:
    space = x.shape[2:]
    wanted = _each(size, len(space))
    covers(all(n % m == 0 for n, m in zip(space, wanted, strict=True)), "an uneven adaptive pool")
    kernel = [n // m for n, m in zip(space, wanted, strict=True)]
    return w.op("AveragePool", x, kernel_shape=kernel, strides=kernel)


@writes(aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec)
def _nearest(w: Writer, x: Value, size: Any, scales: Any) -> str:
    return _resize(w, x, scales, "nearest", "asymmetric", nearest_mode="floor")


@writes(aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec)
def _bilinear(w: Writer, x: Value, size: Any, align_corners: bool, scales: Any) -> str:
    covers(not align_corners, "interpolation with aligned corners")
    return _resize(w, x, scales, "linear", "half_pixel")


def _resize(w: Writer, x: Value, scales: Any, mode: str, grid: str, **attributes: str) -> str:
    covers(scales, "a resize to a given size")
    factors = w.vector([1.0, 1.0, *scales])
    mode_and_grid = {"mode": mode, "coordinate_transformation_mode": grid}
    return w.op("Resize", x, None, factors, **mode_and_grid, **attributes)
