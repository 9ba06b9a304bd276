"""The table of cases: at least one per rule, each with its oracle. See ``oracles.py``.

Arguments are made in float64 but hold float32 numbers, so that one oracle serves both dtypes.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from oracles import Expected, jacobian, monte_carlo, quadrature
from scipy.special import expit, ndtr
from torch import Tensor

from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten

BATCH = 3


class Maker:
    """Makes the arguments of one case, the same ones each time."""

    def __init__(self, name: str) -> None:
        self._random = torch.Generator().manual_seed(zlib.crc32(name.encode()))

    def tensor(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._random).double()

    def positive(self, *shape: int) -> Tensor:
        return (0.2 + torch.rand(shape, generator=self._random)).double()

    def gaussian(self, *shape: int) -> Gaussian:
        """Means of either sign, variances from 0.02 to 2."""
        uniform = torch.rand(shape, generator=self._random)
        return Gaussian(self.tensor(*shape), torch.exp(-4 + 4.7 * uniform).float().double())

    def even(self, *shape: int) -> Gaussian:
        """Variances within a factor of 4: what an approximation can be expected to be good at."""
        var = 0.2 + 0.6 * torch.rand(shape, generator=self._random)
        return Gaussian(self.tensor(*shape), var.double())

    def spread_out(self) -> Gaussian:
        """For activations: means on and around their kinks, variances from 1e-5 to 300."""
        kinks = torch.tensor([0.0, -0.0, 3.0, -3.0, 1.0, -1.0, 0.5, -0.5, 6.0, 2.0])
        mean = torch.cat([kinks, 4 * torch.randn(BATCH * 4 * 7 - 10, generator=self._random)])
        uniform = torch.rand(len(mean), generator=self._random)
        var = torch.exp(-11.5 + 17.2 * uniform)
        return Gaussian(
            mean.reshape(BATCH, 4, 7).double(), var.float().reshape(BATCH, 4, 7).double()
        )

    def far_from_zero(self, *shape: int) -> Gaussian:
        """Positive means, 6 to 20 deviations from 0: what divisors and roots should be."""
        var = 0.05 + 0.2 * torch.rand(shape, generator=self._random)
        return Gaussian(2 * self.positive(*shape) + 2.6, var.double())

    def mask(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._random) < 0.5


@dataclass(frozen=True)
class Tolerance:
    """How good a documented approximation is: measured, rounded up, and kept from getting worse.

    ``mean`` in units of the output's std; ``std`` and its median ``typical`` as a ratio off 1.
    """

    mean: float
    std: float
    typical: float


@dataclass(frozen=True, eq=False)
class Case:
    """One way to call one op.

    Attributes:
        op: the key in the rule table.
        label: which options it exercises.
        make: the arguments; a Gaussian wherever the engine would pass one.
        kind: which oracle answers.
        kwargs: keyword arguments of the op.
        reference: what the oracle runs, if not the op itself (dropout in training mode).
        curve: for ``quadrature``, the function in numpy.
        kinks: where ``curve`` bends.
        fold: for ``monte carlo``, whether the first axis is a batch.
        tolerance: for approximations.
        rtol: relative tolerance by dtype.
    """

    op: Callable[..., Any]
    label: str
    make: Callable[[Maker], tuple[Any, ...]]
    kind: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    curve: Callable[[np.ndarray], np.ndarray] | None = None
    kinks: tuple[float, ...] = ()
    fold: bool = True
    tolerance: Tolerance | None = None
    rtol: tuple[float, float] = (1e-5, 1e-12)

    @property
    def name(self) -> str:
        label = f":{self.label}" if self.label else ""
        return f"{op_name(self.op)}{label}-{self.kind.replace(' ', '_')}"

    @property
    def floor(self) -> float:
        """Below it no oracle looks: 50 000 draws do not see what is rarer than one in them."""
        return 1e-6 if self.kind == "monte carlo" else 1e-12

    def arguments(self, dtype: torch.dtype) -> tuple[Any, ...]:
        return _cast(self.make(Maker(self.name)), dtype)

    def plain(self, *args: Any) -> Any:
        """The op itself, as the original network calls it."""
        return self.op(*args, **self.kwargs)

    def tolerance_for(self, dtype: torch.dtype) -> float:
        return self.rtol[0] if dtype == torch.float32 else self.rtol[1]


def op_name(op: Any) -> str:
    return str(op).removeprefix("aten.") if isinstance(op, torch._ops.OpOverload) else op.__name__


def _cast(values: Any, dtype: torch.dtype) -> Any:
    seen: dict[int, Any] = {}  # x·x must stay the product of one thing with itself

    def cast(value: Any) -> Any:
        if isinstance(value, Gaussian):
            twin = Gaussian(value.mean.to(dtype), value.var.to(dtype))
            return seen.setdefault(id(value), twin)
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.to(dtype)
        if isinstance(value, list | tuple):
            return type(value)(cast(v) for v in value)
        return value

    return cast(values)


@cache
def expected(case: Case) -> list[Expected]:
    """What the case's oracle says."""
    args = case.arguments(torch.float64)
    if case.kind == "quadrature":
        assert case.curve is not None
        x = args[0]
        mean, var, _ = quadrature(case.curve, x.mean.numpy(), x.var.numpy(), case.kinks)
        return [Expected(torch.from_numpy(mean), torch.from_numpy(var))]
    reference = case.reference or partial(case.op, **case.kwargs)
    if case.kind == "jacobian":
        return jacobian(reference, args)
    return monte_carlo(reference, args, fold=case.fold)


CASES: list[Case] = []


def exactly(op: Any, label: str, make: Callable[[Maker], tuple[Any, ...]], **options: Any) -> None:
    CASES.append(Case(op, label, make, "jacobian", **options))


def sampled(op: Any, label: str, make: Callable[[Maker], tuple[Any, ...]], **options: Any) -> None:
    # Where the rule is exact, its float64 error is that of the fitted tails, 4.4e-8.
    CASES.append(Case(op, label, make, "monte carlo", rtol=(1e-5, 1e-6), **options))


# ---------------------------------------------------------------- affine

exactly(aten.linear.default, "", lambda g: (g.gaussian(3, 5), g.tensor(4, 5), g.tensor(4)))
exactly(aten.linear.default, "no bias", lambda g: (g.gaussian(3, 5), g.tensor(4, 5)))
exactly(
    aten.linear.default, "sequence", lambda g: (g.gaussian(3, 2, 5), g.tensor(4, 5), g.tensor(4))
)


def conv(shape: tuple[int, ...], weight: tuple[int, ...], *options: Any, bias: int = 0) -> Any:
    """Arguments of a convolution; ``bias`` filters, or as many as the weight has."""
    return lambda g: (
        g.gaussian(*shape),
        g.tensor(*weight),
        g.tensor(bias or weight[0]),
        *options,
    )


exactly(aten.conv1d.default, "", conv((3, 2, 7), (4, 2, 3)))
exactly(aten.conv1d.default, "no bias", lambda g: (g.gaussian(3, 2, 7), g.tensor(4, 2, 3)))
exactly(aten.conv1d.default, "stride, padding", conv((3, 2, 7), (4, 2, 3), [2], [1]))
exactly(aten.conv1d.default, "dilated", conv((3, 2, 7), (4, 2, 3), [1], [2], [2]))
exactly(aten.conv1d.default, "grouped", conv((3, 4, 7), (6, 2, 3), [1], [1], [1], 2))
exactly(aten.conv1d.default, "depthwise", conv((3, 4, 7), (4, 1, 3), [1], [1], [1], 4))
exactly(aten.conv1d.padding, "same", conv((3, 2, 7), (4, 2, 4), [1], "same"))
exactly(aten.conv1d.padding, "valid", conv((3, 2, 7), (4, 2, 3), [2], "valid"))
exactly(aten.conv2d.default, "", conv((2, 3, 5, 4), (4, 3, 3, 2)))
exactly(aten.conv2d.default, "no bias", lambda g: (g.gaussian(2, 3, 5, 4), g.tensor(4, 3, 3, 2)))
exactly(
    aten.conv2d.default,
    "bias None, padding",
    lambda g: (g.gaussian(2, 3, 5, 4), g.tensor(4, 3, 3, 3), None, [1, 1], [1, 1]),
)
exactly(aten.conv2d.default, "stride, padding", conv((2, 3, 5, 6), (4, 3, 3, 2), [2, 1], [1, 0]))
exactly(aten.conv2d.default, "dilated", conv((2, 2, 7, 6), (3, 2, 3, 2), [1, 1], [0, 1], [2, 3]))
exactly(aten.conv2d.default, "grouped", conv((2, 4, 4, 5), (6, 2, 3, 3), [1, 1], [1, 1], [1, 1], 2))
exactly(
    aten.conv2d.default, "depthwise", conv((2, 4, 4, 5), (8, 1, 3, 3), [1, 1], [1, 1], [1, 1], 4)
)
exactly(aten.conv2d.padding, "same", conv((2, 3, 5, 4), (4, 3, 3, 2), [1, 1], "same"))
exactly(
    aten.conv2d.padding,
    "same, dilated, grouped",
    conv((2, 4, 5, 4), (4, 2, 3, 2), [1, 1], "same", [2, 1], 2),
)
exactly(aten.conv3d.default, "", conv((2, 2, 3, 4, 3), (2, 2, 2, 2, 2)))
exactly(
    aten.conv3d.default,
    "stride, padding, grouped",
    conv((2, 2, 3, 4, 3), (4, 1, 2, 2, 2), [1, 2, 1], [1, 1, 0], [1, 1, 1], 2),
)
exactly(aten.conv3d.padding, "same", conv((2, 2, 3, 3, 3), (2, 2, 3, 2, 1), [1, 1, 1], "same"))
exactly(aten.conv_transpose1d.default, "", conv((3, 2, 5), (2, 4, 3), bias=4))
exactly(
    aten.conv_transpose1d.default,
    "output padding, grouped",
    conv((3, 4, 5), (4, 2, 3), [2], [1], [1], 2, bias=4),
)
exactly(
    aten.conv_transpose2d.input,
    "output padding",
    conv((2, 3, 3, 4), (3, 2, 3, 3), [2, 2], [1, 1], [1, 0], bias=2),
)
exactly(
    aten.conv_transpose2d.input,
    "grouped, dilated",
    conv((2, 4, 3, 3), (4, 1, 2, 2), [1, 1], [0, 1], [0, 0], 2, [2, 1], bias=2),
)
exactly(
    aten.conv_transpose3d.input,
    "output padding",
    conv((2, 2, 2, 3, 2), (2, 2, 2, 2, 2), [2, 2, 2], [0, 1, 0], [1, 0, 0], bias=2),
)
exactly(
    aten.convolution.default,
    "grouped",
    conv((2, 4, 4, 5), (6, 2, 3, 3), [1, 2], [1, 0], [1, 1], False, [0, 0], 2),
)
exactly(
    aten.convolution.default,
    "transposed",
    conv((2, 4, 3, 4), (4, 2, 3, 3), [2, 2], [1, 0], [1, 1], True, [1, 0], 2, bias=4),
)

exactly(aten.mm.default, "constant right", lambda g: (g.gaussian(3, 5), g.tensor(5, 4)))
exactly(aten.mm.default, "constant left", lambda g: (g.tensor(4, 3), g.gaussian(3, 5)))
sampled(aten.mm.default, "both", lambda g: (g.gaussian(3, 4), g.gaussian(4, 2)), fold=False)
exactly(aten.bmm.default, "constant right", lambda g: (g.gaussian(3, 2, 5), g.tensor(3, 5, 4)))
exactly(aten.bmm.default, "constant left", lambda g: (g.tensor(3, 4, 2), g.gaussian(3, 2, 5)))
sampled(aten.bmm.default, "both", lambda g: (g.gaussian(3, 2, 4), g.gaussian(3, 4, 2)))
exactly(aten.matmul.default, "constant right", lambda g: (g.gaussian(3, 2, 5), g.tensor(5, 4)))
exactly(aten.matmul.default, "constant vector", lambda g: (g.gaussian(3, 2, 5), g.tensor(5)))
exactly(aten.matmul.default, "constant left", lambda g: (g.tensor(4, 2), g.gaussian(3, 2, 5)))
exactly(aten.matmul.default, "batch of left", lambda g: (g.tensor(3, 4, 2), g.gaussian(3, 2, 5)))
exactly(aten.matmul.default, "across the batch", lambda g: (g.tensor(4, 3), g.gaussian(3, 5)))
sampled(
    aten.matmul.default, "both", lambda g: (g.gaussian(3, 2, 4), g.gaussian(3, 4, 2)), fold=False
)

# ---------------------------------------------------------------- arithmetic

exactly(aten.add.Tensor, "both", lambda g: (g.gaussian(3, 4), g.gaussian(3, 4)))
exactly(aten.add.Tensor, "constant", lambda g: (g.gaussian(3, 4), g.tensor(3, 4)))
exactly(aten.add.Tensor, "constant first", lambda g: (g.tensor(3, 4), g.gaussian(3, 4)))
exactly(aten.add.Tensor, "number", lambda g: (g.gaussian(3, 4), 2.5))
exactly(aten.add.Tensor, "row to all", lambda g: (g.gaussian(3, 4), g.tensor(4)))
exactly(aten.add.Tensor, "widened", lambda g: (g.gaussian(3, 1, 4), g.tensor(3, 5, 1)))
exactly(aten.add.Tensor, "more dims", lambda g: (g.gaussian(3, 4), g.tensor(2, 1, 4)))
exactly(aten.add.Tensor, "broadcast both", lambda g: (g.gaussian(3, 1, 4), g.gaussian(3, 5, 1)))
exactly(
    aten.add.Tensor,
    "alpha",
    lambda g: (g.gaussian(3, 4), g.gaussian(3, 4)),
    kwargs={"alpha": -3},
)
exactly(aten.add.Scalar, "", lambda g: (g.gaussian(3, 4), 2))
exactly(aten.sub.Tensor, "both", lambda g: (g.gaussian(3, 4), g.gaussian(3, 4)))
exactly(aten.sub.Tensor, "constant first", lambda g: (g.tensor(3, 4), g.gaussian(3, 4)))
exactly(
    aten.sub.Tensor,
    "alpha",
    lambda g: (g.gaussian(3, 4), g.gaussian(3, 4)),
    kwargs={"alpha": 0.5},
)
exactly(aten.sub.Scalar, "", lambda g: (g.gaussian(3, 4), 2))
exactly(aten.rsub.Scalar, "", lambda g: (g.gaussian(3, 4), 1))
exactly(aten.rsub.Scalar, "alpha", lambda g: (g.gaussian(3, 4), 1, 3))
exactly(aten.neg.default, "", lambda g: (g.gaussian(3, 4),))
exactly(aten.mul.Tensor, "constant", lambda g: (g.gaussian(3, 4), g.tensor(3, 4)))
exactly(aten.mul.Tensor, "constant first", lambda g: (g.tensor(3, 4), g.gaussian(3, 4)))
exactly(aten.mul.Tensor, "number", lambda g: (g.gaussian(3, 4), -2.5))
exactly(aten.mul.Tensor, "mask", lambda g: (g.gaussian(3, 4), g.mask(3, 4)))
exactly(aten.mul.Tensor, "per channel", lambda g: (g.gaussian(3, 4, 5), g.tensor(4, 1)))
exactly(aten.mul.Tensor, "widened", lambda g: (g.gaussian(3, 1), g.tensor(3, 5)))
sampled(aten.mul.Tensor, "both", lambda g: (g.gaussian(3, 4), g.gaussian(3, 4)))
sampled(
    aten.mul.Tensor,
    "broadcast both",
    lambda g: (g.gaussian(3, 2, 4), g.gaussian(3, 1, 4)),
)
sampled(aten.mul.Tensor, "by itself", lambda g: (g.gaussian(3, 4),) * 2)
exactly(aten.mul.Scalar, "", lambda g: (g.gaussian(3, 4), 3))
exactly(aten.div.Tensor, "constant", lambda g: (g.gaussian(3, 4), g.positive(3, 4)))
exactly(aten.div.Tensor, "number", lambda g: (g.gaussian(3, 4), 3))
exactly(aten.div.Tensor, "widened", lambda g: (g.gaussian(3, 1), g.positive(3, 5)))
exactly(aten.div.Scalar, "", lambda g: (g.gaussian(3, 4), 3))
# Taken as log-normal. Measured at 6 to 20 deviations from 0: mean 0.023, std −12.6 % (x⁻²) to
# +2.3 %, median −5.2 %. For x⁻¹ the std falls short by 17 % at 4 deviations.
POSITIVE = Tolerance(mean=0.03, std=0.14, typical=0.06)
for _op in (aten.sqrt.default, aten.rsqrt.default, aten.reciprocal.default, aten.log.default):
    sampled(_op, "", lambda g: (g.far_from_zero(3, 5),), tolerance=POSITIVE)
exactly(aten.pow.Tensor_Scalar, "1", lambda g: (g.gaussian(3, 4), 1))
sampled(aten.pow.Tensor_Scalar, "2", lambda g: (g.gaussian(3, 4), 2))
sampled(aten.maximum.default, "both", lambda g: (g.gaussian(3, 7), g.gaussian(3, 7)))
sampled(aten.maximum.default, "constant", lambda g: (g.gaussian(3, 7), g.tensor(3, 7)), fold=False)
sampled(
    aten.maximum.default, "constant first", lambda g: (g.tensor(7), g.gaussian(3, 7)), fold=False
)
sampled(aten.maximum.default, "widened", lambda g: (g.gaussian(3, 1), g.tensor(3, 4)), fold=False)
exactly(aten.mean.dim, "", lambda g: (g.gaussian(3, 4, 5), [1]))
exactly(aten.mean.dim, "keepdim", lambda g: (g.gaussian(3, 4, 5), [-1], True))
exactly(aten.mean.dim, "several", lambda g: (g.gaussian(3, 4, 5, 2), [-1, -2], False))
exactly(aten.mean.dim, "batch too", lambda g: (g.gaussian(3, 4), [0, 1]))
exactly(aten.mean.dim, "all", lambda g: (g.gaussian(3, 4), None))
exactly(aten.mean.dim, "no dims means all", lambda g: (g.gaussian(3, 4), []))
exactly(aten.sum.dim_IntList, "", lambda g: (g.gaussian(3, 4, 5), [1]))
exactly(aten.sum.dim_IntList, "several, keepdim", lambda g: (g.gaussian(3, 4, 5), [1, 2], True))
exactly(aten.sum.dim_IntList, "over batch", lambda g: (g.gaussian(3, 4), [0]))
exactly(aten.sum.dim_IntList, "no dims means all", lambda g: (g.gaussian(3, 4), [], True))
exactly(aten.cumsum.default, "", lambda g: (g.gaussian(3, 4, 5), 1))
exactly(aten.cumsum.default, "over batch", lambda g: (g.gaussian(3, 4), 0))
_INTO = torch.tensor([2, 0, 2, 1])
exactly(
    aten.index_add.default,
    "",
    lambda g: (g.tensor(3, 5), 1, _INTO, g.gaussian(3, 4)),
    kwargs={"alpha": 2},
)
exactly(aten.index_add.default, "both", lambda g: (g.gaussian(3, 5), 1, _INTO, g.gaussian(3, 4)))
exactly(
    aten.scatter_add.default,
    "",
    lambda g: (g.tensor(3, 5), 1, _INTO.expand(3, 4), g.gaussian(3, 4)),
)
exactly(aten.where.self, "both", lambda g: (g.mask(3, 4), g.gaussian(3, 4), g.gaussian(3, 4)))
exactly(aten.where.self, "constant", lambda g: (g.mask(3, 4), g.gaussian(3, 4), g.tensor(3, 4)))
exactly(aten.where.self, "constant first", lambda g: (g.mask(4), g.tensor(1), g.gaussian(3, 4)))
exactly(aten.where.self, "widened", lambda g: (g.mask(3, 4), g.gaussian(3, 1), g.tensor(1, 1)))

# ---------------------------------------------------------------- shape


def moved(
    op: Any, label: str, *options: Any, shape: tuple[int, ...] = (3, 4, 5), **kw: Any
) -> None:
    """An op that moves elements."""
    exactly(op, label, lambda g: (g.gaussian(*shape), *options), **kw)


moved(aten.view.default, "", [3, 20])
moved(aten.view.default, "batch gone", [-1])
moved(aten.reshape.default, "", [3, 2, 10])
moved(aten.reshape.default, "batch split", [12, 5])
moved(aten.flatten.using_ints, "", 1)
moved(aten.flatten.using_ints, "batch too", 0, 1)
moved(aten.unflatten.int, "", 1, [2, 2])
moved(aten.permute.default, "", [0, 2, 1])
moved(aten.permute.default, "batch moved", [2, 0, 1])
moved(aten.transpose.int, "", 1, 2)
moved(aten.transpose.int, "batch moved", 0, 1)
moved(aten.t.default, "", shape=(3, 4))
moved(aten.movedim.int, "", 0, -1)
moved(aten.squeeze.default, "", shape=(3, 1, 4, 1))
moved(aten.squeeze.dim, "", 1, shape=(3, 1, 4))
moved(aten.squeeze.dim, "nothing to do", 2, shape=(3, 1, 4))
moved(aten.squeeze.dims, "", [1, 3], shape=(3, 1, 4, 1))
moved(aten.unsqueeze.default, "", 1)
moved(aten.unsqueeze.default, "before the batch", 0)
moved(aten.slice.Tensor, "", 2, 1, 5, 2)
moved(aten.slice.Tensor, "batch", 0, 1, 3)
moved(aten.narrow.default, "", 1, 1, 2)
moved(aten.select.int, "", 1, -1)
moved(aten.select.int, "batch", 0, 2)
moved(aten.flip.default, "", [1, 2])
moved(aten.roll.default, "", [1, -2], [1, 2])
moved(aten.rot90.default, "", 1, [1, 2])
moved(aten.nan_to_num.default, "")
moved(aten.contiguous.default, "")
moved(aten.clone.default, "")
moved(aten.alias.default, "")
moved(aten.detach.default, "", reference=torch.clone)
moved(aten.pixel_shuffle.default, "", 2, shape=(3, 4, 2, 3))
moved(aten.pixel_unshuffle.default, "", 2, shape=(3, 1, 4, 6))
moved(aten.channel_shuffle.default, "", 2, shape=(3, 4, 2, 3))

moved(aten._to_copy.default, "float64", kwargs={"dtype": torch.float64})
moved(aten.split.Tensor, "", 2, 2)
moved(aten.split_with_sizes.default, "", [1, 3], 1)
moved(aten.chunk.default, "", 2, 2)
moved(aten.unbind.int, "", 1)
moved(aten.unsafe_split.Tensor, "", 2, 1)
moved(aten.diagonal.default, "", 0, 1, 2)
moved(aten._unsafe_view.default, "", [3, 20])
moved(aten.expand.default, "", [3, 4, 5], shape=(3, 1, 5))
moved(aten.repeat.default, "", [2, 1, 3])
moved(aten.reflection_pad1d.default, "", [2, 1])
moved(aten.reflection_pad2d.default, "", [1, 2, 0, 1], shape=(3, 1, 3, 4))
moved(aten.replication_pad1d.default, "", [2, 1])
moved(aten.replication_pad2d.default, "", [1, 2, 0, 1], shape=(3, 1, 3, 4))
moved(aten.upsample_nearest1d.vec, "size", [8], None)
moved(aten.upsample_nearest1d.vec, "scale", None, [1.7])
moved(aten.upsample_nearest2d.vec, "", None, [2.0, 1.5], shape=(2, 2, 3, 4))
moved(aten.upsample_nearest3d.vec, "", [4, 2, 3], None, shape=(2, 1, 2, 2, 3))
moved(aten._upsample_nearest_exact1d.vec, "", [8], None)
moved(aten._upsample_nearest_exact2d.vec, "", None, [2.0, 1.5], shape=(2, 2, 3, 4))
moved(aten._upsample_nearest_exact3d.vec, "", [4, 2, 3], None, shape=(2, 1, 2, 2, 3))
moved(aten.index.Tensor, "", [None, torch.tensor([2, 0, 2])])
moved(aten.index.Tensor, "batch", [torch.tensor([2, 0])])
moved(aten.index_select.default, "", 1, torch.tensor([3, 3, 0]))
moved(aten.index_select.default, "batch", 0, torch.tensor([1, 0]))
moved(aten.gather.default, "", 1, torch.tensor([[[3], [0]], [[1], [1]], [[2], [0]]]))
moved(aten.pad.default, "zeros", [1, 2])
moved(aten.pad.default, "constant", [1, 2, 0, 1], "constant", 7.0)
moved(aten.pad.default, "cropped", [-1, 2])
moved(aten.pad.default, "batch too", [0, 1, 1, 0, 1, 2])
moved(aten.pad.default, "reflect", [2, 1], "reflect")
moved(aten.pad.default, "replicate", [1, 1, 2, 0], "replicate", shape=(3, 1, 3, 4))
moved(aten.pad.default, "circular", [1, 1, 2, 0], "circular", shape=(3, 1, 3, 4))
exactly(operator.getitem, "", lambda g: ([g.gaussian(3, 2), g.gaussian(3, 4)], 1))
exactly(aten.cat.default, "", lambda g: ([g.gaussian(3, 2), g.gaussian(3, 4)], 1))
exactly(aten.cat.default, "certain too", lambda g: ([g.tensor(3, 2), g.gaussian(3, 4)], -1))
exactly(aten.cat.default, "batch", lambda g: ([g.gaussian(3, 4), g.gaussian(3, 4)],))
exactly(aten.stack.default, "", lambda g: ([g.gaussian(3, 4), g.tensor(3, 4)], 1))
exactly(aten.stack.default, "before batch", lambda g: ([g.gaussian(3, 4), g.gaussian(3, 4)],))

# ---------------------------------------------------------------- resize

moved(aten.upsample_linear1d.vec, "size", [8], False, None)
moved(aten.upsample_linear1d.vec, "corners", [8], True, None)
moved(aten.upsample_linear1d.vec, "scale", None, False, [1.7])
moved(aten.upsample_linear1d.vec, "scale down", None, False, [0.5])
moved(aten.upsample_bilinear2d.vec, "size", [5, 3], False, None, shape=(2, 2, 3, 4))
moved(aten.upsample_bilinear2d.vec, "corners", [5, 7], True, None, shape=(2, 2, 3, 4))
moved(aten.upsample_bilinear2d.vec, "scale", None, False, [2.0, 1.3], shape=(2, 2, 3, 4))
moved(aten.upsample_bilinear2d.vec, "scale corners", None, True, [2.0, 1.3], shape=(2, 2, 3, 4))
moved(aten.upsample_bilinear2d.vec, "scale down", None, False, [0.5, 0.7], shape=(2, 2, 4, 6))
moved(aten.upsample_bicubic2d.vec, "size", [5, 3], False, None, shape=(2, 2, 3, 4))
moved(aten.upsample_bicubic2d.vec, "scale corners", None, True, [2.0, 1.3], shape=(2, 2, 3, 4))
moved(aten.upsample_trilinear3d.vec, "size", [4, 2, 5], False, None, shape=(2, 1, 2, 2, 3))
moved(aten.upsample_trilinear3d.vec, "scale", None, True, [1.5, 2.0, 1.0], shape=(2, 1, 2, 2, 3))

# ---------------------------------------------------------------- pooling

moved(aten.avg_pool1d.default, "", [2])
moved(aten.avg_pool1d.default, "stride, padding", [3], [2], [1])
moved(aten.avg_pool1d.default, "real cells only", [3], [2], [1], False, False)
moved(aten.avg_pool1d.default, "ceil mode", [2], [2], [0], True)
moved(aten.avg_pool1d.default, "ceil mode, padding", [3], [3], [1], True, True)
moved(aten.avg_pool1d.default, "batch as channels", [3], [2], [1], shape=(3, 5))
_IMAGE = (2, 2, 5, 4)
moved(aten.avg_pool2d.default, "", [2, 2], shape=_IMAGE)
moved(aten.avg_pool2d.default, "one number", [2], shape=_IMAGE)
moved(aten.avg_pool2d.default, "overlapping", [3, 2], [1, 1], shape=_IMAGE)
moved(aten.avg_pool2d.default, "padding", [3, 3], [2, 2], [1, 1], shape=_IMAGE)
moved(
    aten.avg_pool2d.default, "real cells only", [3, 3], [2, 2], [1, 0], False, False, shape=_IMAGE
)
moved(aten.avg_pool2d.default, "ceil mode", [2, 3], [2, 3], [0, 0], True, shape=_IMAGE)
moved(
    aten.avg_pool2d.default,
    "ceil mode, padding, real cells only",
    *([3, 3], [2, 2], [1, 1], True, False),
    shape=_IMAGE,
)
moved(
    aten.avg_pool2d.default,
    "divisor override",
    *([3, 2], [2, 1], [1, 0], False, True, 5),
    shape=_IMAGE,
)
moved(aten.avg_pool2d.default, "batch as channels", [3, 3], [2, 2], [1, 1], shape=(3, 5, 4))
_CUBE = (2, 1, 3, 4, 3)
moved(aten.avg_pool3d.default, "", [2, 2, 3], shape=_CUBE)
moved(
    aten.avg_pool3d.default,
    "padding, ceil mode, real cells only",
    *([2, 2, 2], [2, 2, 2], [1, 0, 1], True, False),
    shape=_CUBE,
)
moved(
    aten.avg_pool3d.default,
    "divisor override",
    *([2, 2, 2], [1, 2, 1], [0, 1, 0], False, True, 3),
    shape=_CUBE,
)
moved(aten.adaptive_avg_pool1d.default, "", [1])
moved(aten.adaptive_avg_pool1d.default, "not dividing", [3])
moved(aten.adaptive_avg_pool2d.default, "", [1, 1], shape=_IMAGE)
moved(aten.adaptive_avg_pool2d.default, "not dividing", [3, 3], shape=_IMAGE)
moved(aten.adaptive_avg_pool2d.default, "larger than input", [7, 2], shape=_IMAGE)
moved(aten.adaptive_avg_pool3d.default, "not dividing", [2, 3, 2], shape=_CUBE)


def pooled(op: Any, label: str, *options: Any, shape: tuple[int, ...], **kw: Any) -> None:
    sampled(op, label, lambda g: (g.even(*shape), *options), **kw)


# One pair of independent normals is exact. More are an approximation: the maximum so far is
# taken as normal, and the spread shrinks with every further member.
# Measured: up to 4 elements mean 0.011, std −5.8 %, median −1.9 %; up to 12 mean 0.035, std
# −11.9 %, median −8.2 %. With variances that differ a hundredfold the std falls short by 30 %.
WINDOW = Tolerance(mean=0.015, std=0.06, typical=0.03)
LARGE = Tolerance(mean=0.04, std=0.13, typical=0.1)
pooled(aten.max_pool1d.default, "pairs", [2], shape=(3, 2, 6))
pooled(aten.max_pool1d.default, "padding", [2], [2], [1], shape=(3, 2, 6))
pooled(aten.max_pool1d.default, "dilated", [2], [1], [0], [3], shape=(3, 2, 6))
pooled(aten.max_pool1d.default, "ceil mode", [2], [2], [0], [1], True, shape=(3, 2, 5))
pooled(aten.max_pool1d.default, "triples", [3], [2], [1], shape=(3, 2, 6), tolerance=WINDOW)
pooled(aten.max_pool2d.default, "pairs", [1, 2], [1, 2], shape=(3, 2, 3, 4))
pooled(aten.max_pool2d.default, "", [2, 2], shape=(3, 2, 4, 4), tolerance=WINDOW)
pooled(aten.max_pool2d.default, "one number", [2], shape=(3, 2, 4, 4), tolerance=WINDOW)
pooled(
    aten.max_pool2d.default,
    "padding, ceil mode",
    *([3, 3], [2, 2], [1, 1], [1, 1], True),
    shape=(3, 1, 6, 5),
    tolerance=LARGE,
)
pooled(
    aten.max_pool2d.default,
    "dilated",
    *([2, 2], [1, 1], [0, 1], [2, 1]),
    shape=(3, 1, 5, 4),
    tolerance=WINDOW,
)
pooled(aten.max_pool3d.default, "pairs", [1, 2, 1], shape=(3, 1, 2, 4, 2))
pooled(aten.max_pool3d.default, "", [2, 2, 2], shape=(3, 1, 2, 4, 4), tolerance=LARGE)


def _values(op: Any) -> Callable[..., Tensor]:
    return lambda x, *options: op(x, *options)[0]


for _op, _shape, _size, _pairs in (
    (aten.adaptive_max_pool1d.default, (3, 2, 6), [3], True),
    (aten.adaptive_max_pool1d.default, (3, 2, 5), [2], False),
    (aten.adaptive_max_pool2d.default, (3, 2, 4, 3), [2, 3], True),
    (aten.adaptive_max_pool2d.default, (3, 2, 5, 4), [3, 2], False),
    (aten.adaptive_max_pool3d.default, (3, 1, 2, 2, 4), [2, 2, 2], True),
    (aten.adaptive_max_pool3d.default, (3, 1, 2, 3, 4), [1, 2, 2], False),
):
    pooled(
        _op,
        "pairs" if _pairs else "not dividing",
        _size,
        shape=_shape,
        reference=_values(_op),
        tolerance=None if _pairs else LARGE,
    )
pooled(aten.amax.default, "pair", [-1], shape=(3, 4, 2))
pooled(aten.amax.default, "pair, keepdim", [1], True, shape=(3, 2, 4))
pooled(aten.amax.default, "several", [-1, 1], shape=(3, 3, 4), tolerance=LARGE)
pooled(aten.amax.default, "batch", [0], shape=(2, 4), fold=False)
pooled(aten.amax.default, "no dims means all", shape=(2, 3), fold=False, tolerance=LARGE)
# The order is that of the means. Measured where these are 2 to 4 deviations apart: mean 0.025, std
# up to +6.5 %, median +2.2 %. Of five equal normals the largest is 1.16 deviations too low, and its
# std 1.5 times too large.
TOPK = Tolerance(mean=0.03, std=0.07, typical=0.03)
_APART = torch.tensor([0.0, 2.0, -2.0, 4.0, 6.0]).double()
for _largest in (True, False):
    sampled(
        aten.topk.default,
        "largest" if _largest else "smallest",
        lambda g: (Gaussian(g.even(3, 5).mean * 0.1 + _APART, g.even(3, 5).var), 2, 1),
        kwargs={"largest": _largest},
        reference=_values(partial(torch.topk, largest=_largest)),
        tolerance=TOPK,
    )

# ---------------------------------------------------------------- normalisation


def _batch_norm(g: Maker, shape: tuple[int, ...]) -> tuple[Any, ...]:
    channels = shape[1]
    weights = (g.tensor(channels), g.tensor(channels), g.tensor(channels), g.positive(channels))
    return (g.gaussian(*shape), *weights, False, 0.1, 1e-3, False)


def _plain_batch_norm(g: Maker) -> tuple[Any, ...]:
    return (g.gaussian(3, 4), None, None, g.tensor(4), g.positive(4), False, 0.1, 1e-5, True)


exactly(aten.batch_norm.default, "2d", lambda g: _batch_norm(g, (3, 4, 2, 3)))
exactly(aten.batch_norm.default, "1d", lambda g: _batch_norm(g, (3, 4)))
exactly(aten.batch_norm.default, "not affine", _plain_batch_norm)
exactly(aten.instance_norm.default, "stored statistics", lambda g: _batch_norm(g, (3, 4, 5)))


def _instance_norm(g: Maker) -> tuple[Any, ...]:
    x = g.even(3, 2, 5, 8)
    return (x, g.tensor(2), g.tensor(2), None, None, True, 0.1, 1e-5, False)


# The divisor is taken as certain. Over n elements it varies by about 1/√(2n) of itself (n = 40
# here). Measured: mean 0.036, std −1.7 % to +11.7 % (the outermost elements), median −0.3 %.
NORM = Tolerance(mean=0.04, std=0.13, typical=0.01)
sampled(aten.instance_norm.default, "own statistics", _instance_norm, tolerance=NORM)
sampled(
    aten.group_norm.default,
    "",
    lambda g: (g.even(3, 4, 20), 2, g.tensor(4), g.tensor(4), 1e-5, False),
    tolerance=NORM,
)
sampled(aten.group_norm.default, "not affine", lambda g: (g.even(3, 80), 2), tolerance=NORM)
sampled(
    aten.layer_norm.default,
    "",
    lambda g: (g.even(3, 40), [40], g.tensor(40), g.tensor(40)),
    tolerance=NORM,
)
sampled(
    aten.layer_norm.default,
    "two dims, not affine",
    lambda g: (g.even(3, 5, 8), [5, 8]),
    tolerance=NORM,
)

# ---------------------------------------------------------------- softmax

# Measured: mean 0.18, std −22 % to +5 %, median −6.1 %.
SOFTMAX = Tolerance(mean=0.2, std=0.23, typical=0.07)
sampled(aten.softmax.int, "", lambda g: (g.even(3, 5), 1), tolerance=SOFTMAX)
sampled(aten.softmax.int, "inner dim", lambda g: (g.even(3, 4, 2), 1), tolerance=SOFTMAX)
sampled(aten.logsumexp.default, "", lambda g: (g.even(3, 6), [1]), tolerance=SOFTMAX)
sampled(
    aten.logsumexp.default, "several", lambda g: (g.even(3, 2, 4), [1, 2], True), tolerance=SOFTMAX
)

# ---------------------------------------------------------------- dropout


def dropped(op: Any, label: str, p: float, shape: tuple[int, ...] = (3, 4, 2), **kw: Any) -> None:
    """The rule sees eval mode, as the graph has it; the oracle is the op in training mode."""

    def trained(x: Tensor, rate: float, _train: bool) -> Tensor:
        return op(x, rate, True)

    sampled(op, label, lambda g: (g.gaussian(*shape), p, False), reference=trained, **kw)


for _op in (
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
):
    for _p in (0.1, 0.5, 0.8):
        dropped(_op, f"p={_p}", _p)

# ---------------------------------------------------------------- activations


Curve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Activation:
    """A function of one element: the op with its options, and the same in numpy.

    A curve that levels off at a number other than 0 loses its digits there, even in float64.
    ``levelled`` is the curve less its level, for means below 0 and for means above.
    """

    op: Callable[..., Any]
    label: str
    curve: Curve
    kinks: tuple[float, ...] = ()
    options: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    levelled: tuple[Curve, Curve] | None = None

    @property
    def name(self) -> str:
        return f"{op_name(self.op).split('.')[0]}{f':{self.label}' if self.label else ''}"


def leaky(slope: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where(x > 0, x, slope * x)


def _elu(alpha: float, scale: float = 1, input_scale: float = 1) -> Any:
    return lambda x: scale * np.where(x > 0, x, alpha * np.expm1(input_scale * np.minimum(x, 0)))


def _elu_levelled(alpha: float, scale: float = 1, input_scale: float = 1) -> tuple[Curve, Curve]:
    def below(x: np.ndarray) -> np.ndarray:
        return scale * np.where(x > 0, x + alpha, alpha * np.exp(input_scale * np.minimum(x, 0)))

    return below, _elu(alpha, scale, input_scale)


def _elu_case(op: Any, label: str, options: tuple[Any, ...], *shape: float) -> Activation:
    return Activation(op, label, _elu(*shape), (0,), options, levelled=_elu_levelled(*shape))


def _softplus(beta: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.logaddexp(0, beta * x) / beta


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * expit(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def _softshrink(width: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.sign(x) * np.maximum(np.abs(x) - width, 0)


def _threshold(low: float, value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where(x > low, x, value)


def _clip(low: float | None, high: float | None) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.clip(x, low, high)


PIECEWISE = [
    Activation(aten.relu.default, "", _clip(0, None), (0,)),
    Activation(aten.relu6.default, "", _clip(0, 6), (0, 6)),
    Activation(aten.leaky_relu.default, "", leaky(0.01), (0,)),
    Activation(aten.leaky_relu.default, "0.2", leaky(0.2), (0,), (0.2,)),
    Activation(aten.leaky_relu.default, "1.5", leaky(1.5), (0,), (1.5,)),
    Activation(aten.leaky_relu.default, "-0.5", leaky(-0.5), (0,), (-0.5,)),
    Activation(aten.leaky_relu.default, "0", leaky(0.0), (0,), (0.0,)),
    Activation(aten.hardtanh.default, "", _clip(-1, 1), (-1, 1)),
    Activation(aten.hardtanh.default, "-0.5..2", _clip(-0.5, 2), (-0.5, 2), (-0.5, 2.0)),
    Activation(aten.hardsigmoid.default, "", lambda x: np.clip(x / 6 + 0.5, 0, 1), (-3, 3)),
    Activation(aten.clamp.default, "both", _clip(-1, 2), (-1, 2), (-1, 2)),
    Activation(aten.clamp.default, "low only", _clip(-0.5, None), (-0.5,), (-0.5,)),
    Activation(aten.clamp.default, "high only", _clip(None, 0.5), (0.5,), (None, 0.5)),
    Activation(aten.clamp.default, "crossed", lambda x: np.full_like(x, 1), (), (2, 1)),
    Activation(aten.clamp_min.default, "", _clip(0.5, None), (0.5,), (0.5,)),
    Activation(aten.clamp_max.default, "", _clip(None, 1), (1,), (1,)),
    Activation(aten.abs.default, "", np.abs, (0,)),
    Activation(aten.softshrink.default, "", _softshrink(0.5), (-0.5, 0.5)),
    Activation(aten.softshrink.default, "2", _softshrink(2), (-2, 2), (2.0,)),
    Activation(aten.threshold.default, "", _threshold(0.5, 0.5), (0.5,), (0.5, 0.5)),
]
JUMPS = [
    Activation(aten.threshold.default, "down", _threshold(0.5, -2), (0.5,), (0.5, -2.0)),
    Activation(aten.threshold.default, "up", _threshold(-1, 3), (-1,), (-1.0, 3.0)),
]
_SELU = (1.6732632423543772, 1.0507009873554805)
SMOOTH = [
    Activation(aten.sigmoid.default, "", expit, levelled=(expit, lambda x: -expit(-x))),
    Activation(
        aten.tanh.default,
        "",
        np.tanh,
        levelled=(lambda x: 2 * expit(2 * x), lambda x: -2 * expit(-2 * x)),
    ),
    Activation(aten.silu.default, "", lambda x: x * expit(x)),
    Activation(aten.mish.default, "", lambda x: x * np.tanh(np.logaddexp(0, x))),
    Activation(aten.hardswish.default, "", lambda x: x * np.clip(x + 3, 0, 6) / 6, (-3, 3)),
    Activation(aten.gelu.default, "", lambda x: x * ndtr(x)),
    Activation(aten.gelu.default, "tanh", _gelu_tanh, kwargs={"approximate": "tanh"}),
    Activation(aten.softplus.default, "", _softplus(1)),
    Activation(aten.softplus.default, "beta 3", _softplus(3), (), (3.0,)),
    Activation(aten.softplus.default, "beta 0.5", _softplus(0.5), (), (0.5, 40.0)),
    Activation(aten.log_sigmoid.default, "", lambda x: -np.logaddexp(0, -x)),
    _elu_case(aten.elu.default, "", (), 1),
    _elu_case(aten.elu.default, "alpha 0.3", (0.3,), 0.3),
    _elu_case(aten.elu.default, "all options", (2, 1.5, 0.5), 2, 1.5, 0.5),
    _elu_case(aten.celu.default, "", (), 1),
    _elu_case(aten.celu.default, "alpha 2", (2.0,), 2, 1, 0.5),
    _elu_case(aten.selu.default, "", (), *_SELU),
]


def _activation_case(activation: Activation, rtol: tuple[float, float]) -> Case:
    return Case(
        activation.op,
        activation.label,
        lambda g: (g.spread_out(), *activation.options),
        "quadrature",
        kwargs=activation.kwargs,
        curve=activation.curve,
        kinks=activation.kinks,
        rtol=rtol,
    )


CASES += [_activation_case(a, (1e-5, 5e-7)) for a in [*PIECEWISE, *JUMPS]]
CASES += [_activation_case(a, (1e-5, 1e-5)) for a in SMOOTH]
CASES += [
    _activation_case(Activation(aten.square.default, "", np.square), (1e-5, 1e-10)),
    _activation_case(
        Activation(aten.pow.Tensor_Scalar, "3", lambda x: x**3, (), (3,)), (1e-5, 1e-10)
    ),
]
_SLOPES = np.array([0.25, 1.5, -0.5, 0.0])


def _slopes() -> Tensor:
    return torch.from_numpy(_SLOPES)


def _first_column(x: Gaussian) -> Gaussian:
    return Gaussian(x.mean[:, :, 0], x.var[:, :, 0])


CASES += [
    Case(
        aten.prelu.default,
        "one slope",
        lambda g: (g.spread_out(), torch.tensor([0.25], dtype=torch.float64)),
        "quadrature",
        curve=leaky(0.25),
        kinks=(0,),
        rtol=(1e-5, 5e-7),
    ),
    Case(
        aten.prelu.default,
        "per channel",
        lambda g: (g.spread_out(), _slopes()),
        "quadrature",
        curve=lambda x: np.where(x > 0, x, _SLOPES[:, None] * x),
        kinks=(0,),
        rtol=(1e-5, 5e-7),
    ),
    Case(
        aten.prelu.default,
        "two dims",
        lambda g: (_first_column(g.spread_out()), _slopes()),
        "quadrature",
        curve=lambda x: np.where(x > 0, x, _SLOPES * x),
        kinks=(0,),
        rtol=(1e-5, 5e-7),
    ),
    *(
        Case(
            op, "", lambda g: (g.gaussian(3, 4, 5),), "quadrature", curve=curve, rtol=(1e-5, 1e-10)
        )
        for op, curve in (
            *((aten.exp.default, np.exp), (aten.sin.default, np.sin)),
            (aten.cos.default, np.cos),
        )
    ),
]

# ---------------------------------------------------------------- neither oracle

# What depends on the shape alone is certain: the rule returns no Gaussian.
OF_THE_SHAPE: dict[Any, tuple[Any, ...]] = {
    aten.sym_size.int: (1,),
    aten.sym_numel.default: (),
    aten.zeros_like.default: (),
    aten.ones_like.default: (),
    aten.full_like.default: (2.5,),
    aten.new_zeros.default: ([4],),
    aten.new_ones.default: ([4],),
    aten.new_full.default: ([4], 2.5),
}

# Known, and refused with a reason.
REFUSED = (
    aten.lstm.input,
    aten.gru.input,
    aten.rnn_tanh.input,
    aten.rnn_relu.input,
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.argmax.default,
    aten.argmin.default,
    *(aten.gt.Scalar, aten.ge.Scalar, aten.lt.Scalar, aten.le.Scalar, aten.eq.Scalar),
    *(aten.gt.Tensor, aten.ge.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.eq.Tensor),
    *(aten.ne.Scalar, aten.ne.Tensor),
)
