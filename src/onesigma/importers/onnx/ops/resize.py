"""Upsampling: of what ONNX can say about it, the forms that PyTorch computes too."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from onesigma.importers.onnx.ops.table import Numbers, covers, onnx_op, sizes

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@onnx_op("Upsample")
def upsample(
    x: Tensor,
    factors: Numbers | None = None,
    /,
    *,
    mode: str = "nearest",
    scales: Sequence[float] = (),
) -> Tensor:
    listed = list(scales) if factors is None else [float(f) for f in factors]
    covers(mode == "nearest" and listed[:2] == [1, 1], f"Upsample with mode={mode}")
    return F.interpolate(x, scale_factor=listed[2:], mode="nearest")


@onnx_op("Resize")
def resize(
    x: Tensor,
    roi: Numbers | None = None,
    scales: Numbers | None = None,
    target: Numbers | None = None,
    /,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
    opset: int,
) -> Tensor:
    if opset == 10:  # scales came first then, and nothing else
        scales, nearest_mode, coordinate_transformation_mode = roi, "floor", "asymmetric"
    grid = coordinate_transformation_mode
    covers(not antialias and axes is None, "Resize with antialias or axes")
    covers(keep_aspect_ratio_policy == "stretch", "Resize that keeps the aspect ratio")
    method, align = _method(mode, grid, nearest_mode, x.dim() - 2)
    if target is not None and target.size:
        wanted = sizes(target)
        return F.interpolate(x, size=wanted[2:], mode=method, align_corners=align)
    covers(scales is not None and scales.size == x.dim(), "Resize without scales and sizes")
    assert scales is not None
    factors = [float(f) for f in scales]
    covers(factors[:2] == [1, 1], "Resize of batch or channels")
    return F.interpolate(x, scale_factor=factors[2:], mode=method, align_corners=align)


def _method(mode: str, grid: str, nearest: str, dims: int) -> tuple[str, bool | None]:
    if mode == "nearest" and (grid, nearest) == ("asymmetric", "floor"):
        return "nearest", None
    if mode == "nearest" and (grid, nearest) == ("half_pixel", "round_prefer_floor"):
        return "nearest-exact", None
    linear = mode == "linear" and dims in _LINEAR
    covers(
        linear and grid in ("half_pixel", "pytorch_half_pixel", "align_corners"),
        f"Resize with mode={mode}, coordinate_transformation_mode={grid}, nearest_mode={nearest}",
    )
    return _LINEAR[dims], grid == "align_corners"
