"""Three oracles, none of which calls the code under test.

jacobian      exact, for linear ops: var = (J∘J) var. A bias that leaked into var would show.
quadrature    float64, for functions of one element: relative 1e-10 for std from 1e-6 to 1000.
monte_carlo   seeded, float64, for the rest: the answer comes with its own standard error.

Each takes an op and its arguments, in which a ``Gaussian`` marks what is uncertain, and returns
one ``Expected`` per output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onesigma.values.gaussian import Gaussian

STANDARD_ERRORS = 5
DRAWS = 50_000


@dataclass(frozen=True)
class Expected:
    """Moments of one output, and how far off the oracle itself may be (0 if it is exact)."""

    mean: Tensor
    var: Tensor
    mean_slack: Tensor | float = 0.0
    var_slack: Tensor | float = 0.0


def assert_moments(actual: Gaussian, expected: Expected, *, rtol: float, atol: float = 0.0) -> None:
    """The rule's moments are the oracle's, to the oracle's slack plus relative rounding.

    The mean is compared at the scale of the output, √E[y²]: a mean of 0 has no relative error.
    """
    size = (expected.mean**2 + expected.var).sqrt()
    mean_error = (actual.mean.double() - expected.mean).abs()
    var_error = (actual.expanded().var.double() - expected.var).abs()
    assert_below(mean_error, expected.mean_slack + rtol * size + atol, "mean")
    assert_below(var_error, expected.var_slack + rtol * expected.var + atol, "variance")


def assert_below(error: Tensor, bound: Tensor | float, what: str) -> None:
    bound = torch.as_tensor(bound, dtype=error.dtype).expand_as(error)
    worst = int((error - bound).argmax())
    assert bool((error <= bound).all()), (
        f"{what} off by {error.flatten()[worst]:.3g} where {bound.flatten()[worst]:.3g} is allowed "
        f"(element {worst} of {tuple(error.shape)})"
    )


def replaced(values: Any, swap: Callable[[Gaussian], Any]) -> Any:
    """Nested arguments with each Gaussian put through ``swap``."""
    if isinstance(values, Gaussian):
        return swap(values)
    if isinstance(values, list | tuple):
        return type(values)(replaced(value, swap) for value in values)
    return values


def means(values: Any) -> Any:
    return replaced(values, lambda g: g.mean)


def outputs(result: Any) -> list[Any]:
    """What an op returned, as a list: split, chunk and unbind return several tensors."""
    return list(result) if isinstance(result, list | tuple) else [result]


def jacobian(op: Callable[..., Any], args: tuple[Any, ...]) -> list[Expected]:
    """Exact moments of a linear op: E[y] = op(m), Var[y] = (J∘J) v, J row by row from autograd."""
    uncertain = _distinct(args)

    def of_means(*values: Tensor) -> tuple[Tensor, ...]:
        return tuple(outputs(_call(op, args, uncertain, values)))

    inputs = tuple(g.mean for g in uncertain)
    slopes = torch.func.jacrev(of_means, argnums=tuple(range(len(inputs))), chunk_size=1)(*inputs)
    variances = [g.var for g in uncertain]
    return [
        Expected(mean, sum(_spread(j, v) for j, v in zip(row, variances, strict=True)))
        for mean, row in zip(of_means(*inputs), slopes, strict=True)
    ]


def _spread(slope: Tensor, var: Tensor) -> Tensor:
    return torch.tensordot(slope * slope, var, dims=var.dim())


def quadrature(
    function: Callable[[np.ndarray], np.ndarray],
    mean: np.ndarray,
    var: np.ndarray,
    kinks: Sequence[float] = (),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """E[f], Var[f] and E[|f|] of f(x), x ~ N(mean, var), by composite Gauss–Legendre in z.

    Panels are half a std wide, finer around each kink (where f bends) and around the origin
    (where a smooth f does): there both in std and in x, so that any ratio of the two is resolved.
    ``function`` takes the points as a new first axis.
    """
    std = np.sqrt(var)
    points, weights = np.polynomial.legendre.leggauss(16)
    edges = _edges(mean, std, kinks)
    total = np.zeros((3, *mean.shape))
    at_mean = function(mean[None])[0]
    steps = []
    for low, high in pairwise(edges):
        half, middle = 0.5 * (high - low), 0.5 * (high + low)
        z = middle + np.multiply.outer(points, half)
        mass = np.multiply.outer(weights, half) * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        value = function(mean + std * z)
        steps.append((mass, value - at_mean))
        total[0] += (mass * (value - at_mean)).sum(0)
        total[1] += (mass * np.abs(value)).sum(0)
    for mass, step in steps:
        total[2] += (mass * (step - total[0]) ** 2).sum(0)
    return at_mean + total[0], total[2], total[1]


_REFINED = np.array([0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 30, 40])


def _edges(mean: np.ndarray, std: np.ndarray, kinks: Sequence[float]) -> np.ndarray:
    """Panel edges in z, one column per element; clipped at 45 std, empty panels weigh nothing."""
    around = np.concatenate([-_REFINED, _REFINED])
    rows = [np.full(mean.shape, z) for z in np.linspace(-14, 14, 57)]
    for kink in {0.0, *kinks}:
        rows += [(kink + x - mean) / std for x in around]
        rows += [(kink - mean) / std + z for z in np.linspace(-3, 3, 31)]
    return np.sort(np.clip(np.stack(rows), -45, 45), axis=0)


def monte_carlo(
    op: Callable[..., Any], args: tuple[Any, ...], *, fold: bool = True, draws: int = DRAWS
) -> list[Expected]:
    """Moments over seeded draws, with five standard errors as slack.

    Draws go into the batch (``fold``), or through vmap for ops whose first axis is not a batch.
    """
    uncertain = _distinct(args)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        samples = [_draw(g, draws) for g in uncertain]
        if fold:
            flat = [s.flatten(0, 1) for s in samples]
            results = outputs(_call(op, args, uncertain, flat))
            results = [r.unflatten(0, [draws, -1]) for r in results]
        else:
            batched = torch.func.vmap(lambda *values: _call(op, args, uncertain, values))
            results = outputs(batched(*samples))
    return [_estimate(r) for r in results]


def _draw(g: Gaussian, draws: int) -> Tensor:
    noise = torch.randn(draws, *g.mean.shape, dtype=torch.float64)
    return g.mean + g.var.sqrt() * noise


def _estimate(samples: Tensor) -> Expected:
    """Mean, variance and their standard errors; that of the variance from the fourth moment."""
    n = len(samples)
    mean = samples.mean(0)
    centred = samples - mean
    var = centred.square().mean(0) * (n / (n - 1))
    fourth = centred.pow(4).mean(0)
    mean_error = (var / n).sqrt()
    var_error = ((fourth - var * var).clamp(min=0) / n).sqrt()
    return Expected(mean, var, STANDARD_ERRORS * mean_error, STANDARD_ERRORS * var_error)


def _distinct(args: Any) -> list[Gaussian]:
    """The uncertain arguments; one that appears twice is one source of noise."""
    found: dict[int, Gaussian] = {}
    replaced(args, lambda g: found.setdefault(id(g), g))
    return list(found.values())


def _call(
    op: Callable[..., Any], args: Any, uncertain: Sequence[Gaussian], values: Sequence[Tensor]
) -> Any:
    at = {id(g): value for g, value in zip(uncertain, values, strict=True)}
    return op(*replaced(args, lambda g: at[id(g)]))
