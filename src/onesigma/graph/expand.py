"""Expand: an op without a rule is taken apart into ops that have one.

1. Many ops of PyTorch are nothing but a composition of others (``einsum``, ``torch.subtract``,
   ``hstack``). Which ones, PyTorch itself knows: the op is traced, and what it called is put in its
   place. The same kernels run on the same numbers.
2. Others have a kernel of their own. Where noise meets one of those, ``_MADE_OF`` says what it is
   made of; without noise it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from onesigma.graph.capture import functional_form, is_site
from onesigma.graph.inline import splice
from onesigma.rules.dropout import RATE_ARGUMENT
from onesigma.rules.table import RULES

aten = torch.ops.aten


def expand(module: fx.GraphModule) -> None:
    """Take apart, in place, what PyTorch itself composes of ops that are known."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and not _is_known(node):
            parts = _traced(node, node.target, pre_dispatch=False)
            if parts is not None and all(_is_known(n) for n in parts.nodes):
                _put(module, node, parts)
    _tidy(module)


def compose(module: fx.GraphModule, *, prior: bool) -> None:
    """Take apart, in place, what noise meets and has no rule; with a prior, inputs are noise."""
    noisy: set[fx.Node] = set()
    for node in list(module.graph.nodes):
        if node.op == "placeholder" and prior or _is_noise(node) or noisy & {*node.all_input_nodes}:
            noisy.add(node)
        made_of = _WITH_UNCERTAIN_WEIGHTS if noisy & {*node.args[1:]} else _MADE_OF
        if node in noisy and node.target in made_of:
            parts = _traced(node, made_of[node.target], pre_dispatch=True)
            if parts is not None:
                noisy |= _put(module, node, parts)
    _tidy(module)


def _is_noise(node: fx.Node) -> bool:
    return is_site(node) and float(node.args[RATE_ARGUMENT]) > 0  # type: ignore[arg-type]


def _is_known(node: fx.Node) -> bool:
    """It has a rule, or a composition, or meets no tensor."""
    target = functional_form(node.target)
    return target in RULES or target in _MADE_OF or not node.all_input_nodes or node.op == "output"


def _tidy(module: fx.GraphModule) -> None:
    module.graph.eliminate_dead_code()
    module.recompile()


def _traced(node: fx.Node, function: Callable[..., Any], *, pre_dispatch: bool) -> fx.Graph | None:
    """What ``function`` does with the arguments of a node; None if it does not say."""
    inputs = node.all_input_nodes

    def call(*values: Any) -> Any:
        given = dict(zip(inputs, values, strict=True))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), given.__getitem__)
        return function(*args, **kwargs)

    try:
        with torch.no_grad():
            trace = make_fx(call, pre_dispatch=pre_dispatch)
            graph: fx.Graph = trace(*(n.meta["val"] for n in inputs)).graph
    except Exception:  # what PyTorch cannot trace stays whole, and is refused by its name
        return None
    graph.eliminate_dead_code()
    results: Any = graph.output_node().args[0]
    taken = [user.args[1] for user in node.users] if isinstance(results, list | tuple) else []
    whole = results is None or any(results[index] is None for index in taken)
    return None if whole or any(n.op == "get_attr" for n in graph.nodes) else graph


def _put(module: fx.GraphModule, node: fx.Node, parts: fx.Graph) -> set[fx.Node]:
    """The parts in the place of the node, said to stand where it stood."""
    place = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
    for part in parts.nodes:
        part.meta |= place
    return splice(module.graph, node, parts, node.all_input_nodes)


def _weighted(x: Any, factor: float) -> Any:
    return x if factor == 1 else factor * x


def _norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Tensor | None:
    if ord == 1:
        return x.abs().sum(dim, keepdim)
    return x.square().sum(dim, keepdim).sqrt() if ord == 2 else None


def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows along a dim, which become a last one."""
    starts = torch.arange(0, x.shape[dim] - size + 1, step, device=x.device)
    inside = torch.arange(size, device=x.device)
    index = (starts.unsqueeze(1) + inside).flatten()
    dim = dim % x.dim()
    return x.index_select(dim, index).unflatten(dim, [-1, size]).movedim(dim + 1, -1)


def _im2col(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor | None:
    if any(d != 1 for d in dilation) or x.dim() != 4:
        return None
    x = F.pad(x, [padding[1], padding[1], padding[0], padding[0]])
    windows = _unfold(_unfold(x, 2, kernel[0], stride[0]), 3, kernel[1], stride[1])
    return windows.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2, 3)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    if dropout or enable_gqa or (causal and mask is not None):
        return None
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        mask = _below(scores, 0)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -1e30)  # −∞ less −∞ would be no number
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ value


def _below(x: Tensor, diagonal: int) -> Tensor:
    """Where the lower triangle of a matrix is."""
    rows = torch.arange(x.shape[-2], device=x.device).unsqueeze(1)
    return torch.arange(x.shape[-1], device=x.device) <= rows + diagonal


def _prod(x: Tensor, dim: int, keepdim: bool = False, **_: Any) -> Tensor:
    out = reduce(torch.mul, x.unbind(dim))
    return out.unsqueeze(dim) if keepdim else out


def _threshold(x: Tensor, threshold: float, value: float) -> Tensor | None:
    return x.clamp_min(value) if threshold == value else None


# In plain torch, of ops that have rules; None for a use that has no such form.
_MADE_OF: dict[Any, Callable[..., Any]] = {
    aten.addbmm.default: lambda c, a, b, *, beta=1, alpha=1: (
        _weighted(c, beta) + _weighted(torch.bmm(a, b).sum(0), alpha)
    ),
    aten.addcdiv.default: lambda x, a, b, *, value=1: x + _weighted(a / b, value),
    aten.addcmul.default: lambda x, a, b, *, value=1: x + _weighted(a * b, value),
    aten.addmm.default: lambda c, a, b, *, beta=1, alpha=1: (
        _weighted(c, beta) + _weighted(torch.mm(a, b), alpha)
    ),
    aten.amin.default: lambda x, *dims: -torch.amax(-x, *dims),
    aten.baddbmm.default: lambda c, a, b, *, beta=1, alpha=1: (
        _weighted(c, beta) + _weighted(torch.bmm(a, b), alpha)
    ),
    aten.bilinear.default: lambda a, b, weight, bias=None: (
        ((weight @ b[..., None, :, None]).squeeze(-1) @ a.unsqueeze(-1)).squeeze(-1)
        + (0 if bias is None else bias)
    ),
    aten._unsafe_view.default: torch.reshape,
    aten.cdist.default: lambda a, b, p=2.0, mode=None: (
        (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1).sqrt() if p == 2 else None
    ),
    aten.clamp_max.Tensor: lambda x, high: -torch.maximum(-x, -high),
    aten.clamp_min.Tensor: torch.maximum,
    aten.cumprod.default: lambda x, dim: torch.stack(
        list(accumulate(x.unbind(dim), torch.mul)), dim
    ),
    aten.glu.default: lambda x, dim=-1: torch.mul(*_gate(*x.chunk(2, dim))),
    aten.im2col.default: _im2col,
    aten.lerp.Scalar: lambda a, b, weight: (1 - weight) * a + weight * b,
    aten.lerp.Tensor: lambda a, b, weight: (1 - weight) * a + weight * b,
    aten.linalg_vector_norm.default: _norm,
    aten.max.default: lambda x: x.amax(),
    aten.max.dim: lambda x, dim, keep=False: (x.amax(dim, keep), x.argmax(dim, keep)),
    aten.max_pool2d_with_indices.default: lambda x, *window: (F.max_pool2d(x, *window), None),
    aten.max_pool3d_with_indices.default: lambda x, *window: (F.max_pool3d(x, *window), None),
    aten.mean.default: lambda x, **_: x.mean(list(range(x.dim()))),
    aten.min.default: lambda x: -torch.amax(-x),
    aten.min.dim: lambda x, dim, keep=False: (-torch.amax(-x, dim, keep), x.argmin(dim, keep)),
    aten.minimum.default: lambda a, b: -torch.maximum(-a, -b),
    aten.prod.dim_int: _prod,
    aten.scaled_dot_product_attention.default: _attention,
    aten.std.correction: lambda x, dim=None, **options: x.var(dim, **options).sqrt(),
    aten.std_mean.correction: lambda x, dim=None, **options: (
        x.var(dim, **options).sqrt(),
        x.mean(dim, options.get("keepdim", False)),
    ),
    aten.sum.default: lambda x, **_: x.sum(list(range(x.dim()))),
    aten.threshold.default: _threshold,
    aten.tril.default: lambda x, diagonal=0: x.masked_fill(~_below(x, diagonal), 0.0),
    aten.triu.default: lambda x, diagonal=0: x.masked_fill(_below(x, diagonal - 1), 0.0),
    aten.unfold.default: _unfold,
    aten.var_mean.correction: lambda x, dim=None, **options: (
        x.var(dim, **options),
        x.mean(dim, options.get("keepdim", False)),
    ),
}
# Dropout of weights (DropConnect): the rule of a layer is for uncertain inputs.
_WITH_UNCERTAIN_WEIGHTS = {
    **_MADE_OF,
    aten.linear.default: lambda x, weight, bias=None: (
        x @ weight.t() + (0 if bias is None else bias)
    ),
}


def _gate(values: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
    return values, gates.sigmoid()
