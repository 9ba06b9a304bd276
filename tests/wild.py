"""Random moments far beyond any network, and small networks, one per rule, to put them through.

The law: for means and variances below ``LARGEST`` in size, a rule returns finite numbers and no
variance below 0. ``count_broken`` counts what breaks it, in PyTorch, ONNX Runtime and C.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import CASES, Case, op_name
from oracles import outputs, replaced
from torch import Tensor, nn

from onesigma import head
from onesigma.graph import capture
from onesigma.rules import RULES, Rule, rules_for
from onesigma.rules.corrections import (
    Correction,
    Factors,
    Gain,
    MaximumCorrelation,
    Parts,
    SumCorrelation,
    Together,
)
from onesigma.values.gaussian import Gaussian, Uncertain

aten = torch.ops.aten
Moments = tuple[np.ndarray, np.ndarray]
# What must be finite, and what must be finite and not negative.
Results = tuple[list[Tensor], list[Tensor]]
Function = Callable[[list[Gaussian]], Results]

# ---------------------------------------------------------------- moments

LARGEST = 1e12
_SMALLEST = 1e-30
_KINKS = np.array([0.0, -0.0, 1, -1, 3, -3, 0.5, -0.5, 6, 2, 17, -17, 8.5, -8.5, 20, 1e12, -1e12])
_RUNS = np.array([1, 1, 2, 3, 8, 64, 512])
_PIECE = 2**20


@cache
def moments(count: int, seed: int = 0) -> Moments:
    """Means and variances: log-uniform from 1e-30 to 1e12, in runs of neighbours of one kind."""
    pieces = [_moments(min(count, _PIECE), seed + i) for i in range(-(-count // _PIECE))]
    mean, var = (np.concatenate(side)[:count] for side in zip(*pieces, strict=True))
    return mean, var


def _moments(count: int, seed: int) -> Moments:
    random = np.random.default_rng(seed)
    mean, var = (_sizes(random, count) for _ in range(2))
    mean *= random.choice([-1.0, 1.0], count)
    lengths = random.choice(_RUNS, count)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)[:count]  # of an element's run
    near = mean[first] * (1 + 2e-7 * random.standard_normal(count))
    large = np.sign(mean) * _sizes(random, count, 1e6)
    kinds = [
        (mean, var),
        (mean[first], var[first]),  # ties
        (mean[first], var),
        (mean, var[first]),
        (near, 1e-12 * var[first]),  # nearly ties
        (random.uniform(-45, 45, count) * np.sqrt(var), var),  # the tails of a normal
        (large, _sizes(random, count, 1e-30, 1e-6)),
        (large, _sizes(random, count, 1e6)),
        (random.choice(_KINKS, count), var),
        (mean, np.zeros(count)),
        (np.zeros(count), var),
        (np.sign(mean) * LARGEST, np.full(count, LARGEST)),
    ]
    kind = random.integers(0, len(kinds), count)[first]
    mean, var = (np.choose(kind, values) for values in zip(*kinds, strict=True))
    var[random.random(count) < 0.02] = 0
    return mean.clip(-LARGEST, LARGEST), var.clip(0, LARGEST)


def _sizes(
    random: np.random.Generator, count: int, low: float = _SMALLEST, high: float = LARGEST
) -> np.ndarray:
    return np.exp(random.uniform(math.log(low), math.log(high), count))


# ---------------------------------------------------------------- networks


class Network(nn.Module):
    """One rule as a network: a row of means and one of variances, of all its uncertain inputs.

    A ``wide`` network takes many samples in a row, as a larger batch of the rule itself.
    """

    def __init__(
        self, name: str, shapes: Sequence[Sequence[int]], function: Function, wide: bool
    ) -> None:
        super().__init__()
        self.name, self.wide = name, wide
        self.shapes, self.function = [tuple(shape) for shape in shapes], function
        self.size = sum(map(math.prod, self.shapes))

    def forward(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        values, start = [], 0
        for shape in self.shapes:
            end = start + math.prod(shape)
            values.append(Gaussian(*(t[:, start:end].reshape(shape) for t in (mean, var))))
            start = end
        either, positive = self.function(values)
        return _row(either), _row(positive)


def _row(values: list[Tensor]) -> Tensor:
    return torch.cat([value.reshape(1, -1) for value in values], 1)


def _both(values: Any) -> Results:
    uncertain = [value for value in outputs(values) if isinstance(value, Uncertain)]
    return [value.mean for value in uncertain], [value.expanded().var for value in uncertain]


# Where the op itself has no value for a certain 0 or less, and no network computes it there.
_OF_POSITIVE = (aten.log.default, aten.sqrt.default, aten.rsqrt.default, aten.reciprocal.default)


def of_case(case: Case, dtype: torch.dtype, elements: int = 1) -> Network:
    """The rule of a case; of so many elements, if more samples are only a larger batch to it."""
    args = case.arguments(dtype)
    distinct: dict[int, Gaussian] = {}
    replaced(args, lambda g: distinct.setdefault(id(g), g))
    shapes = [g.mean.shape for g in distinct.values()]
    times = max(1, elements // sum(map(math.prod, shapes)))
    wide = times > 1 and _widens(case, args, times)
    if wide:
        shapes = [(times * shape[0], *shape[1:]) for shape in shapes]

    def function(values: list[Gaussian]) -> Results:
        if case.op in _OF_POSITIVE:
            values = [Gaussian(x.mean.abs().clamp(min=1e-9), x.var) for x in values]
        at = dict(zip(distinct, values, strict=True))
        return _both(RULES[case.op].function(*replaced(args, lambda g: at[id(g)]), **case.kwargs))

    return Network(case.name, shapes, function, wide)


def _widens(case: Case, args: tuple[Any, ...], times: int) -> bool:
    """Whether more rows come in as more rows and go out as such, and nothing else has to change."""

    def rows(times: int) -> list[int]:
        def more(g: Gaussian) -> Tensor:
            return g.mean.repeat(times, *[1] * (g.mean.dim() - 1))

        found = outputs(case.op(*replaced(args, more), **case.kwargs))
        return [t.shape[0] if isinstance(t, Tensor) and t.dim() else 0 for t in found]

    try:
        return rows(times) == [times * n for n in rows(1)] != [0]
    except (RuntimeError, IndexError):
        return False


# What no case shows: corrections, other forms, the head. Each takes the dtype, and returns the
# shapes of its inputs without the batch, and what is computed of them.
Extra = Callable[[torch.dtype], tuple[list[tuple[int, ...]], Function]]


def _alone(rule: Rule, *args: Any, with_: tuple[Correction, ...] = ()) -> Extra:
    def make(dtype: torch.dtype) -> tuple[list[tuple[int, ...]], Function]:
        rest = [a.to(dtype) if isinstance(a, Tensor) else a for a in args]
        return [(2, 8)], lambda values: _both(rule.apply((values[0], *rest), {}, with_))

    return make


def _pair(op: Any, correction: Correction) -> Extra:
    def make(dtype: torch.dtype) -> tuple[list[tuple[int, ...]], Function]:
        return [(4,), (4,)], lambda values: _both(RULES[op].apply(tuple(values), {}, (correction,)))

    return make


def _head(*corrections: Correction) -> Extra:
    """Probabilities and entropies of logits, behind a linear layer if there are corrections."""

    def make(dtype: torch.dtype) -> tuple[list[tuple[int, ...]], Function]:
        weight = _random(4, 5).to(dtype)
        draws = head.fixed_draws(16, 4 if corrections else 5).to(dtype)

        def function(values: list[Gaussian]) -> Results:
            logits: Uncertain = values[0]
            if corrections:
                logits = RULES[aten.linear.default].apply((logits, weight), {}, corrections)
            return [logits.mean], [logits.var, *head.classify(logits, draws, 1)]

        return [(5,)], function

    return make


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).double()


_FACTORS, _BEHIND_DROPOUT = (Factors(0.5 * _random(5, 2), rate) for rate in (0.0, 0.4))
_HALF = (MaximumCorrelation(0.5),)
EXTRAS: dict[str, Extra] = {
    "add, correlated by −1": _pair(aten.add.Tensor, SumCorrelation(-1.0)),
    "sub, correlated by 1": _pair(aten.sub.Tensor, SumCorrelation(1.0)),
    "maximum, correlated by 0.5": _pair(aten.maximum.default, MaximumCorrelation(0.5)),
    "maximum, correlated by 1": _pair(aten.maximum.default, MaximumCorrelation(1.0)),
    "max_pool, correlated": _alone(RULES[aten.max_pool1d.default], [4], with_=_HALF),
    "dropout in parts": _alone(RULES[aten.dropout.default], 0.4, False, with_=(Parts(3.0, 0.5),)),
    "classic dropout": _alone(rules_for("classic")[aten.dropout.default], 0.4, False),
    "linear with a gain": _alone(
        RULES[aten.linear.default], _random(3, 8), with_=(Gain(_random(3).abs()),)
    ),
    "head": _head(),
    "linear with factors": _head(_FACTORS),
    "linear with factors behind dropout": _head(_BEHIND_DROPOUT),
    "covariance": _head(Together()),
    "covariance with factors": _head(_BEHIND_DROPOUT, Together()),
}


def _cases() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in CASES:
        found[op_name(case.op)].append(case)
    return dict(found)


_BY_RULE = _cases()
NAMES = [*_BY_RULE, *EXTRAS]


def networks(name: str, dtype: torch.dtype, elements: int = 1) -> Iterator[Network]:
    """Those of one rule, one for each case; of so many elements as far as the rule allows."""
    for case in _BY_RULE.get(name, ()):
        yield of_case(case, dtype, elements)
    if name in EXTRAS:
        shapes, function = EXTRAS[name](dtype)
        times = max(1, elements // sum(map(math.prod, shapes)))
        yield Network(name, [(times, *shape) for shape in shapes], function, wide=times > 1)


# ---------------------------------------------------------------- targets

# From rows of moments (n, size) to what must be finite and what must not be negative (n, …).
Run = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def in_torch(network: Network) -> Run:
    @torch.no_grad()
    def run(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m, v = (torch.from_numpy(a).unsqueeze(1) for a in (mean, var))
        if network.wide:
            rows = [network(*row) for row in zip(m, v, strict=True)]
            either, positive = (torch.cat(side) for side in zip(*rows, strict=True))
        else:
            either, positive = torch.func.vmap(network)(m, v)
        return either.numpy(), positive.numpy()

    return run


def as_onnx(network: Network, *, by_torch: bool = False) -> Any:
    """The network as ``onesigma.export`` writes it; ``by_torch`` for ops that our table lacks."""
    from onesigma.exporters.onnx import Interface, torch_writer, writer

    examples = (torch.ones(1, network.size), torch.ones(1, network.size))
    graph = capture.as_graph(network, examples, dynamic=False)
    interface = Interface(18, ("mean", "var"), ("either", "positive"), dynamic=False)
    return (torch_writer if by_torch else writer).write(graph, examples, interface)


def in_onnx(model: Any) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def run(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = zip(mean[:, None], var[:, None], strict=True)
        found = [session.run(["either", "positive"], {"mean": m, "var": v}) for m, v in rows]
        either, positive = (np.concatenate(side) for side in zip(*found, strict=True))
        return either, positive

    return run


_DRIVER = """
#include <string.h>
#include "net.h"
int run(long count, const float *mean, const float *var, float *either, float *positive)
{
    static struct net_prediction out;
    for (long i = 0; i < count; ++i) {
        if (net_predict(mean + NET_MEAN_INPUT_SIZE * i, var + NET_VAR_INPUT_SIZE * i, &out))
            return 1;
        memcpy(either + EITHER * i, &out.either, sizeof out.either);
        memcpy(positive + POSITIVE * i, &out.positive, sizeof out.positive);
    }
    return 0;
}
"""


def in_c(model: Any, folder: Path, *flags: str) -> Run:
    """Compiled as a library; the loop over the rows is C, too."""
    from onesigma.exporters.c import generate

    generated = generate(model, folder, name="net")
    sizes = [generated.outputs[name][1] for name in ("either", "positive")]
    (folder / "driver.c").write_text(_DRIVER)
    defines = [f"-DEITHER={sizes[0]}", f"-DPOSITIVE={sizes[1]}"]
    files = [str(folder / name) for name in ("net.c", "driver.c", "net.so")]
    command = ["gcc", *flags, "-shared", "-fPIC", *defines, *files[:2], "-o", files[2], "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    function = ctypes.CDLL(files[2]).run

    def run(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        either, positive = (np.empty((len(mean), size), np.float32) for size in sizes)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (mean, var, either, positive)]
        assert function(ctypes.c_long(len(mean)), *pointers) == 0
        return either, positive

    return run


# ---------------------------------------------------------------- the count


@dataclass(frozen=True)
class Broken:
    """How many numbers break the law."""

    nan: int = 0
    infinite: int = 0
    negative: int = 0

    def __add__(self, other: Broken) -> Broken:
        return Broken(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def count_broken(size: int, run: Run, pool: Moments, at_once: int = 2**16) -> Broken:
    """Put all moments of a pool through a network of so many elements, some rows at once."""
    total = Broken()
    rows = max(1, len(pool[0]) // size)
    mean, var = (np.resize(a, (rows, size)) for a in pool)  # repeats what is too short
    step = max(1, at_once // size)
    for start in range(0, rows, step):
        either, positive = run(mean[start : start + step], var[start : start + step])
        total += Broken(
            int(np.isnan(either).sum() + np.isnan(positive).sum()),
            int(np.isinf(either).sum() + np.isinf(positive).sum()),
            int((positive < 0).sum()),
        )
    return total
