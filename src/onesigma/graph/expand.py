"""Expand: an op without a rule is taken apart into ops that have one.

1. Many ops of PyTorch are nothing but a composition of others (``einsum``, ``hstack``), a second
   name (``torch.subtract``) or nothing at all (a conversion to the dtype that a tensor has already,
   which would hold a model that is made double to float). PyTorch itself knows: the op is traced,
   and what it called is put in its place. The same kernels run on the same numbers.
2. Others have a kernel of their own. Where noise meets one of those, ``MADE_OF`` says what it is
   made of; without noise it stays as it is.
3. Some hold a dropout: recurrent layers between their layers, attention in its weights. ``HOLDING``
   says where, and the dropout becomes a site like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from onesigma.graph.capture import RECURRENT, functional_form, held_rate, is_site, quiet
from onesigma.graph.flow import adds_noise
from onesigma.graph.inline import splice
from onesigma.rules.dropout import RATE_ARGUMENT
from onesigma.rules.table import RULES

aten = torch.ops.aten


def expand(module: fx.GraphModule) -> None:
    """Take apart, in place, what PyTorch itself composes of ops that are known."""
    for node in list(module.graph.nodes):
        if is_site(node):  # off, where it is on in eval mode too: the graph is without noise
            node.args = (*node.args[: RATE_ARGUMENT + 1], False)
        elif held_rate(node):
            parts = _traced(node, HOLDING[node.target], pre_dispatch=True)
            if parts is not None:
                splice(module.graph, node, parts, node.all_input_nodes)
        elif node.op == "call_function" and not _is_known(node):
            parts = _traced(node, node.target, pre_dispatch=False)
            if parts is not None and all(_is_known(n) or _is_whole(n) for n in parts.nodes):
                splice(module.graph, node, parts, node.all_input_nodes)
    module.graph.eliminate_dead_code()
    module.recompile()


def compose(module: fx.GraphModule, *, prior: bool, keep: fx.Node | None = None) -> None:
    """Take apart, in place, what noise meets and has no rule; with a prior, inputs are noise.

    ``keep`` stays whole: a last softmax, which the head takes over.
    """
    noisy = set(module.graph.find_nodes(op="placeholder") if prior else ())
    for node in list(module.graph.nodes):
        if adds_noise(node, RULES) or noisy & {*node.all_input_nodes}:
            noisy.add(node)
        made_of = _OTHERWISE if noisy & {*node.args[1:]} else MADE_OF
        if node in noisy and node.target in made_of and node is not keep:
            parts = _traced(node, made_of[node.target], pre_dispatch=True)
            if parts is not None:
                noisy |= splice(module.graph, node, parts, node.all_input_nodes)
    module.graph.eliminate_dead_code()
    module.recompile()


def _is_known(node: fx.Node) -> bool:
    """It has a rule, or a composition, or meets no tensor."""
    target = functional_form(node.target)
    return target in RULES or target in MADE_OF or not node.all_input_nodes or node.op == "output"


def _is_whole(node: fx.Node) -> bool:
    """A size, an index or a mask, which may be computed in any way."""
    value = node.meta.get("val")
    is_index = isinstance(value, Tensor) and not value.is_floating_point()
    return is_index or isinstance(value, int | torch.SymInt)


def _traced(node: fx.Node, function: Callable[..., Any], *, pre_dispatch: bool) -> fx.Graph | None:
    """What ``function`` does with the arguments of a node; None if it does not say."""
    inputs = node.all_input_nodes

    def call(*values: Any) -> Any:
        given = dict(zip(inputs, values, strict=True))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), given.__getitem__)
        return function(*args, **kwargs)

    try:
        with torch.no_grad(), quiet():
            # Objects of their own: dropout in eval mode returns its very input, and tracing tells
            # inputs apart by object: ``minimum(x, dropout(x))`` would become that of one value.
            examples = (n.meta["val"] for n in inputs)
            apart = [v.detach() if isinstance(v, Tensor) else v for v in examples]
            graph: fx.Graph = make_fx(call, pre_dispatch=pre_dispatch)(*apart).graph
    except Exception:  # what PyTorch cannot trace stays whole, and is refused by its name
        return None
    graph.eliminate_dead_code()
    results: Any = graph.output_node().args[0]
    taken = [user.args[1] for user in node.users] if isinstance(results, list | tuple) else []
    whole = results is None or any(results[index] is None for index in taken)
    return None if whole or any(n.op == "get_attr" for n in graph.nodes) else graph


def _plus(c: Tensor, product: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return torch.add(c if beta == 1 else beta * c, product, alpha=alpha)


def _norm(x: Tensor, ord: float = 2, dim: Any = None, keep: bool = False, **_: Any) -> Any:
    if ord == 1:
        return x.abs().sum(dim, keep)
    return x.square().sum(dim, keep).sqrt() if ord == 2 else None


def _var(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = dim or list(range(x.dim()))
    count = math.prod(x.shape[d] for d in dims) - (1 if correction is None else correction)
    result: Tensor = (x - x.mean(dims, keepdim=True)).square().sum(dims, keepdim) / count
    return result


def _between(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else -torch.maximum(-x, -high)


def _unfold(x: Tensor, dim: int, size: int, step: int) -> Any:
    """Windows along a dim, which become a last one."""
    starts = torch.arange(0, x.shape[dim] - size + 1, step, device=x.device).unsqueeze(1)
    index, dim = starts + torch.arange(size, device=x.device), dim % x.dim()
    shape = [*x.shape[:dim], len(starts), size, *x.shape[dim + 1 :]]
    return x.index_select(dim, index.flatten()).reshape(shape).movedim(dim + 1, -1)


def _im2col(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if x.dim() != 4 or any(d != 1 for d in dilation):
        return None
    x = F.pad(x, [padding[1], padding[1], padding[0], padding[0]])
    windows = _unfold(_unfold(x, 2, kernel[0], stride[0]), 3, kernel[1], stride[1])
    return windows.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2, 3)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any = None,
    p: float = 0,
    causal: bool = False,
    **more: Any,
) -> Any:
    scores = q @ k.transpose(-2, -1) * (more.get("scale") or q.shape[-1] ** -0.5)
    mask = _below(scores, 0) if causal else mask
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -1e30)  # −∞ less −∞ would be no number
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return (torch.dropout(weights, p, False) if p else weights) @ v


def _layers(kind: Any) -> Callable[..., Any]:
    """A recurrent op of several layers as one op for each, with its dropout between them."""

    def run(x: Tensor, states: Any, weights: list[Tensor], *given: Any) -> Any:
        biases, count, p, _, both_ways, batch_first = given
        begins = states if isinstance(states, list | tuple) else [states]
        each, ways, ends = len(weights) // count, 1 + both_ways, []
        options = (biases, 1, 0.0, False, both_ways, batch_first)
        for layer in range(count):
            own = [state.narrow(0, layer * ways, ways) for state in begins]
            x = torch.dropout(x, p, False) if layer else x
            begin = own if isinstance(states, list | tuple) else own[0]
            x, *end = kind(x, begin, weights[layer * each :][:each], *options)
            ends.append(end)
        return (x, *(torch.cat(parts) for parts in zip(*ends, strict=True)))

    return run


def _below(x: Tensor, diagonal: int) -> Tensor:
    """Where the lower triangle of a matrix is."""
    rows = torch.arange(x.shape[-2], device=x.device).unsqueeze(1)
    return torch.arange(x.shape[-1], device=x.device) <= rows + diagonal


def _fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return torch.where(mask, torch.zeros_like(x) + value, x)


def _pow(x: Tensor, exponent: float) -> Any:
    roots = {0.5: torch.sqrt, -0.5: torch.rsqrt, -1: torch.reciprocal}
    if exponent in roots:
        return roots[exponent](x)
    if exponent == 0:
        return torch.ones_like(x)
    if exponent != int(exponent):
        return (exponent * x.log()).exp()
    if exponent < 0:
        return x.pow(-exponent).reciprocal() if exponent >= -3 else None
    return x.pow(3) * x.pow(exponent - 3) if 3 < exponent < 7 else None


def _glu(x: Tensor, dim: int = -1) -> Tensor:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * x.narrow(dim, half, half).sigmoid()


# In plain torch, of ops that have rules; None for a use that has no such form.
MADE_OF: dict[Any, Callable[..., Any]] = {
    aten.addbmm.default: lambda c, a, b, **k: _plus(c, torch.bmm(a, b).sum(0), **k),
    aten.addcdiv.default: lambda x, a, b, value=1: torch.add(x, a / b, alpha=value),
    aten.addcmul.default: lambda x, a, b, value=1: torch.add(x, a * b, alpha=value),
    aten.addmm.default: lambda c, a, b, **k: _plus(c, torch.mm(a, b), **k),
    aten.amin.default: lambda x, *dims: -torch.amax(-x, *dims),
    aten.aminmax.default: lambda x, dim=None, keepdim=False: (
        -torch.amax(-x, dim or (), keepdim),
        torch.amax(x, dim or (), keepdim),
    ),
    aten.baddbmm.default: lambda c, a, b, **k: _plus(c, torch.bmm(a, b), **k),
    aten.bilinear.default: lambda a, b, w, bias=None: (
        ((w @ b[..., None, :, None]).squeeze(-1) @ a.unsqueeze(-1)).squeeze(-1)
        + (0 if bias is None else bias)
    ),
    aten.cdist.default: lambda a, b, p=2.0, mode=None: _norm(
        a.unsqueeze(-2) - b.unsqueeze(-3), p, [-1]
    ),
    aten.clamp.Tensor: _between,
    aten.clamp_max.Tensor: lambda x, high: -torch.maximum(-x, -high),
    aten.clamp_min.Tensor: torch.maximum,
    aten.constant_pad_nd.default: lambda x, pad, value=0: F.pad(x, pad, value=value),
    aten.div.Tensor_mode: lambda a, b, rounding_mode=None: None if rounding_mode else a / b,
    aten.exp2.default: lambda x: (math.log(2) * x).exp(),
    aten.expm1.default: lambda x: x.exp() - 1,
    aten.glu.default: _glu,
    aten.hypot.default: lambda a, b: (a.square() + b.square()).sqrt(),
    aten.im2col.default: _im2col,
    aten.lerp.Scalar: lambda a, b, weight: (1 - weight) * a + weight * b,
    aten.lerp.Tensor: lambda a, b, weight: (1 - weight) * a + weight * b,
    aten.linalg_vector_norm.default: _norm,
    aten.log10.default: lambda x: x.log() / math.log(10),
    aten.log1p.default: lambda x: (1 + x).log(),
    aten.log2.default: lambda x: x.log() / math.log(2),
    aten.log_softmax.int: lambda x, dim, dtype=None: x.softmax(dim, dtype).log(),
    aten.logaddexp.default: lambda a, b: (
        torch.stack((a, b), -1).logsumexp(-1) if a.shape == b.shape else None
    ),
    aten.masked_fill.Scalar: _fill,
    aten.masked_fill.Tensor: _fill,
    aten.max.default: lambda x: x.amax(),
    aten.max.dim: lambda x, dim, keep=False: (x.amax(dim, keep), x.argmax(dim, keep)),
    aten.max_pool2d_with_indices.default: lambda x, *window: (F.max_pool2d(x, *window), None),
    aten.max_pool3d_with_indices.default: lambda x, *window: (F.max_pool3d(x, *window), None),
    aten.mean.default: lambda x, **_: x.mean(list(range(x.dim()))),
    aten.min.default: lambda x: -torch.amax(-x),
    aten.min.dim: lambda x, dim, keep=False: (-torch.amax(-x, dim, keep), x.argmin(dim, keep)),
    aten.minimum.default: lambda a, b: -torch.maximum(-a, -b),
    aten.mv.default: torch.matmul,
    aten.pairwise_distance.default: lambda a, b, p=2.0, eps=1e-6, keepdim=False: _norm(
        a - b + eps, p, [-1], keepdim
    ),
    aten.pow.Scalar: lambda base, x: (math.log(base) * x).exp() if base > 0 else None,
    aten.pow.Tensor_Scalar: _pow,
    aten.pow.Tensor_Tensor: lambda x, exponent: (exponent * x.log()).exp(),
    aten.rrelu.default: lambda x, low=1 / 8, high=1 / 3, *_: F.leaky_relu(x, (low + high) / 2),
    aten.scaled_dot_product_attention.default: _attention,
    aten.std.correction: lambda x, dim=None, **k: _var(x, dim, **k).sqrt(),
    aten.std_mean.correction: lambda x, dim=None, keepdim=False, **k: (
        _var(x, dim, keepdim=keepdim, **k).sqrt(),
        x.mean(dim, keepdim),
    ),
    aten.sum.default: lambda x, **_: x.sum(list(range(x.dim()))),
    aten.tril.default: lambda x, diagonal=0: _fill(x, ~_below(x, diagonal), 0.0),
    aten.triu.default: lambda x, diagonal=0: _fill(x, _below(x, diagonal - 1), 0.0),
    aten.unfold.default: _unfold,
    aten.var.correction: _var,
    aten.var_mean.correction: lambda x, dim=None, keepdim=False, **k: (
        _var(x, dim, keepdim=keepdim, **k),
        x.mean(dim, keepdim),
    ),
}
# The ops that hold a dropout (``capture.held_rate``), with it in plain sight.
HOLDING: dict[Any, Callable[..., Any]] = {
    aten.scaled_dot_product_attention.default: _attention,
    **{kind: _layers(kind) for kind in RECURRENT},
}
# Where an argument after the first is uncertain: the weights of a layer (DropConnect), a divisor.
_OTHERWISE: dict[Any, Callable[..., Any]] = {
    **MADE_OF,
    aten.div.Tensor: lambda a, b: a * b.reciprocal(),
    aten.linear.default: lambda x, w, bias=None: x @ w.t() + (0 if bias is None else bias),
}
