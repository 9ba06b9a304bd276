"""Normalisation: an affine map where the statistics are stored, an approximation where not."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from onesigma.errors import UnsupportedOp
from onesigma.rules.table import ALWAYS_APPROXIMATE, INDEPENDENT, Reach, RuleOptions, rule
from onesigma.values.gaussian import Gaussian, Uncertain

aten = torch.ops.aten

_OF_ITS_INPUT: RuleOptions = {
    "family": "norm",
    "assumes": (ALWAYS_APPROXIMATE, INDEPENDENT),
    "note": "statistics taken as certain, at their expected values",
}


def _per_channel(values: Tensor | None, like: Tensor) -> Tensor | None:
    return None if values is None else values.reshape([1, -1] + [1] * (like.dim() - 2))


@rule(aten.batch_norm.default, family="norm", reach=Reach.EACH)
def batch_norm(
    x: Uncertain,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Uncertain:
    """Batch norm in eval: E[y] = g m + c,  Var[y] = g² v,  g = γ / √(running_var + eps). Exact."""
    if training or running_var is None:
        raise UnsupportedOp(
            "BatchNorm without running statistics mixes the samples of a batch. "
            "Train it with track_running_stats=True, or use GroupNorm."
        )
    mean = aten.batch_norm.default(
        x.mean, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
    )
    gain = torch.rsqrt(running_var + eps)
    gain = gain if weight is None else gain * weight
    squared = _per_channel(gain * gain, x.mean)
    assert squared is not None
    return x.scaled(squared, mean)


@rule(aten.instance_norm.default, **_OF_ITS_INPUT)
def instance_norm(
    x: Uncertain,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Uncertain:
    """Instance norm: as ``batch_norm`` with stored statistics, else as ``group_norm``."""
    if not use_input_stats:
        return batch_norm(
            x, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
        )
    normal = _standardise(x, list(range(2, x.mean.dim())), eps)
    return _scaled(normal, _per_channel(weight, x.mean), _per_channel(bias, x.mean))


@rule(aten.group_norm.default, **_OF_ITS_INPUT)
def group_norm(
    x: Uncertain,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Gaussian:
    """Group norm, see ``_standardise``."""
    full = x.expanded()
    shape = [len(full.mean), num_groups, -1, *full.mean.shape[2:]]
    grouped = [t.reshape(shape) for t in (full.mean, full.var)]
    normal = _standardise(Gaussian(*grouped), list(range(2, grouped[0].dim())), eps)
    flat = Gaussian(normal.mean.flatten(1, 2), normal.var.flatten(1, 2))
    return _scaled(flat, _per_channel(weight, x.mean), _per_channel(bias, x.mean))


@rule(aten.layer_norm.default, **_OF_ITS_INPUT)
def layer_norm(
    x: Uncertain,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Gaussian:
    """Layer norm, see ``_standardise``; its gain and bias have the normalised shape."""
    normal = _standardise(x, list(range(-len(normalized_shape), 0)), eps)
    return _scaled(normal, weight, bias)


def _standardise(x: Uncertain, dims: list[int], eps: float) -> Gaussian:
    """Take away the mean over n elements and divide by their standard deviation.

        c = avg(m),   σ² = avg((m − c)²) + (1 − 1/n) avg(v)
        E[y] = (m − c) / √(σ² + eps)
        Var[y] = ((1 − 2/n) v + avg(v) / n) / (σ² + eps)
    The subtraction is exact for independent elements; the divisor is taken as certain, at the
    square root of its expected square. v → 0 gives the op itself.
    """
    n = prod(x.mean.shape[dim] for dim in dims)
    centred = x.mean - x.mean.mean(dims, keepdim=True)
    average_var = x.var.mean(dims, keepdim=True)
    power = (centred * centred).mean(dims, keepdim=True) + (1 - 1 / n) * average_var
    inverse = torch.rsqrt(power + eps)
    var = ((1 - 2 / n) * x.var + average_var / n).clamp(min=0)
    return Gaussian(centred * inverse, var * inverse * inverse)


def _scaled(x: Uncertain, weight: Tensor | None, bias: Tensor | None) -> Gaussian:
    mean, var = x.mean, x.var
    if weight is not None:
        mean, var = mean * weight, var * (weight * weight)
    return Gaussian(mean if bias is None else mean + bias, var)
