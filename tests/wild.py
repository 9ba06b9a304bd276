"""Random moments far beyond any network, and networks of one rule each to put them through.

The law: for means and variances below ``LARGEST`` in size, a rule returns finite numbers, and no
variance below 0. ``broken`` counts what breaks it, in PyTorch, ONNX Runtime or C.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import CASES, Case, op_name
from oracles import outputs, replaced
from torch import Tensor, nn

from onesigma import head
from onesigma.graph import capture
from onesigma.rules import RULES, rules_for
from onesigma.rules.corrections import (
    Correction,
    Factors,
    Gain,
    MaximumCorrelation,
    Parts,
    Share,
    SumCorrelation,
    Together,
)
from onesigma.values.gaussian import Gaussian, Uncertain

aten = torch.ops.aten

LARGEST = 1e12
_SMALLEST = 1e-30
_KINKS = np.array([0.0, -0.0, 1, -1, 3, -3, 0.5, -0.5, 6, 2, 17, -17, 8.5, -8.5, 20, 1e12, -1e12])
_RUNS = np.array([1, 1, 2, 3, 8, 64, 512])


def moments(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances: log-uniform from 1e-30 to 1e12, in runs of neighbours of one kind."""
    random = np.random.default_rng(seed)
    mean, var = (_sizes(random, count) for _ in range(2))
    mean *= random.choice([-1.0, 1.0], count)
    lengths = random.choice(_RUNS, count)
    starts = np.cumsum(lengths) - lengths
    first = np.repeat(starts, lengths)[:count]  # of the run that an element belongs to
    near = mean[first] * (1 + 2e-7 * random.standard_normal(count))
    far = random.choice([-1.0, 1.0], count) * _sizes(random, count, 1e6)
    kinds = [
        (mean, var),
        (mean[first], var[first]),  # ties
        (mean[first], var),
        (mean, var[first]),
        (near, 1e-12 * var[first]),  # nearly ties
        (random.uniform(-45, 45, count) * np.sqrt(var), var),  # the tails of a normal
        (far, _sizes(random, count, 1e-30, 1e-6)),
        (far, _sizes(random, count, 1e6)),
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


class Network(nn.Module):
    """One rule as a network: flat means and variances of all its uncertain inputs, one row each.

    It returns what must be finite, and what must be finite and not negative. A ``wide`` network
    takes many samples at once, in the batch that the rule itself sees.
    """

    def __init__(
        self,
        name: str,
        rule: str,
        shapes: Sequence[Sequence[int]],
        function: Callable[[list[Gaussian]], tuple[list[Tensor], list[Tensor]]],
        wide: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.rule, self.wide = name, rule, wide
        self.shapes, self.function = [tuple(shape) for shape in shapes], function
        self.sizes = [math.prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def forward(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        values, start = [], 0
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            parts = (t[:, start : start + size].reshape(shape) for t in (mean, var))
            values.append(Gaussian(*parts))
            start += size
        results = self.function(values)
        either, positive = (torch.cat([t.reshape(1, -1) for t in side], 1) for side in results)
        return either, positive


def _both(values: Any) -> tuple[list[Tensor], list[Tensor]]:
    uncertain = [value for value in outputs(values) if isinstance(value, Uncertain)]
    return [value.mean for value in uncertain], [value.expanded().var for value in uncertain]


def of_case(case: Case, dtype: torch.dtype, rows: int = 1) -> Network:
    """The rule of a case, its batch ``rows`` times as large if the rule allows it."""
    args = case.arguments(dtype)
    distinct: dict[int, Gaussian] = {}
    replaced(args, lambda g: distinct.setdefault(id(g), g))
    keys = list(distinct)
    shapes = [distinct[key].mean.shape for key in keys]
    wide = rows > 1 and _widens(case, args, rows)
    if wide:
        shapes = [(rows * shape[0], *shape[1:]) for shape in shapes]

    def function(values: list[Gaussian]) -> tuple[list[Tensor], list[Tensor]]:
        at = dict(zip(keys, values, strict=True))
        return _both(RULES[case.op].function(*replaced(args, lambda g: at[id(g)]), **case.kwargs))

    return Network(case.name, op_name(case.op), shapes, function, wide)


def _widens(case: Case, args: tuple[Any, ...], rows: int) -> bool:
    """Whether more rows come in as more rows and go out as such, and nothing else has to change."""

    def first_sizes(times: int) -> list[int]:
        def more(g: Gaussian) -> Tensor:
            return g.mean.repeat(times, *[1] * (g.mean.dim() - 1))

        found = outputs(case.op(*replaced(args, more), **case.kwargs))
        return [t.shape[0] if isinstance(t, Tensor) and t.dim() else 0 for t in found]

    try:
        return first_sizes(rows) == [rows * n for n in first_sizes(1)] != [0]
    except (RuntimeError, IndexError):
        return False


def _pair(rule: Any, *corrections: Correction) -> Extra:
    def function(values: list[Gaussian]) -> tuple[list[Tensor], list[Tensor]]:
        return _both(rule.apply(tuple(values), {}, corrections))

    return [(4,), (4,)], function


def _alone(rule: Any, *args: Any, corrections: tuple[Correction, ...] = ()) -> Extra:
    def function(values: list[Gaussian]) -> tuple[list[Tensor], list[Tensor]]:
        weights = [a.to(values[0].mean.dtype) if isinstance(a, Tensor) else a for a in args]
        return _both(rule.apply((values[0], *weights), {}, corrections))

    return [(2, 8)], function


def _head(*corrections: Correction, shift: bool = False) -> Extra:
    """Probabilities and entropies of logits, behind a linear layer."""

    def function(values: list[Gaussian]) -> tuple[list[Tensor], list[Tensor]]:
        logits: Uncertain = values[0]
        if corrections:
            rule = RULES[aten.linear.default]
            logits = rule.apply((logits, _random(3, 5).to(logits.mean)), {}, corrections)
        if shift:
            logits = head.shift_logits(logits, _random(5, 6), 1)
        draws = head.fixed_draws(16, logits.mean.shape[1]).to(logits.mean)
        return [logits.mean], [logits.var.contiguous(), *head.classify(logits, draws, 1)]

    return [(5,)], function


def _low_rank(share: bool) -> Extra:
    """A network in factors; every value on the way is looked at."""

    def function(values: list[Gaussian]) -> tuple[list[Tensor], list[Tensor]]:
        rules = rules_for(variance="lowrank", mean="frozen" if share else "matched")
        calls: list[tuple[Any, tuple[Any, ...], tuple[Correction, ...]]] = [
            (aten.conv1d.default, (_random(4, 2, 3), _random(4)), ()),
            (aten.relu.default, (), (Share(_random(4, 1).abs()),) if share else ()),
            (aten.dropout.default, (0.3, False), ()),
            (aten.conv1d.default, (torch.cat([_random(3, 4, 2), torch.zeros(1, 4, 2)]),), ()),
            (aten.relu.default, (), ()),
            (aten.flatten.using_ints, (1,), ()),
            (aten.dropout.default, (0.3, False), (Parts(2.0, 0.5),)),
            (aten.linear.default, (_random(3, 20), _random(3)), ()),
        ]
        value: Any = values[0]
        means, variances = [], []
        for op, args, corrections in calls:
            weights = [a.to(value.mean) if isinstance(a, Tensor) else a for a in args]
            value = rules[op].apply((value, *weights), {}, corrections)
            means.append(value.mean)
            variances.append(value.expanded().var)
        return means, variances

    return [(2, 8)], function


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).double()


Function = Callable[[list[Gaussian]], tuple[list[Tensor], list[Tensor]]]
Extra = tuple[list[tuple[int, ...]], Function]
_LOADINGS = 0.5 * _random(5, 2)
# What no case of one op shows: corrections, other forms, the head. Shapes are without the batch.
EXTRAS: dict[str, Extra] = {
    "add, correlated by −1": _pair(RULES[aten.add.Tensor], SumCorrelation(-1.0)),
    "sub, correlated by 1": _pair(RULES[aten.sub.Tensor], SumCorrelation(1.0)),
    "maximum, correlated by 0.5": _pair(RULES[aten.maximum.default], MaximumCorrelation(0.5)),
    "maximum, correlated by 1": _pair(RULES[aten.maximum.default], MaximumCorrelation(1.0)),
    "max_pool, correlated": _alone(
        RULES[aten.max_pool1d.default], [4], corrections=(MaximumCorrelation(0.5),)
    ),
    "dropout in parts": _alone(
        RULES[aten.dropout.default], 0.4, False, corrections=(Parts(3.0, 0.5),)
    ),
    "classic dropout": _alone(rules_for("classic")[aten.dropout.default], 0.4, False),
    "linear with a gain": _alone(
        RULES[aten.linear.default], _random(3, 8), corrections=(Gain(_random(3).abs()),)
    ),
    "frozen relu": _alone(rules_for(mean="frozen")[aten.relu.default]),
    "low rank": _low_rank(share=False),
    "low rank, frozen": _low_rank(share=True),
    "head": _head(),
    "head, shifted": _head(shift=True),
    "linear with factors": _head(Factors(_LOADINGS, 0.0)),
    "linear with factors behind dropout": _head(Factors(_LOADINGS, 0.4)),
    "covariance": _head(Together()),
    "covariance with factors": _head(Factors(_LOADINGS, 0.4), Together()),
}


def networks(dtype: torch.dtype, elements: int = 1) -> Iterator[Network]:
    """All of them, each of so many elements as far as its rule allows."""
    for case in CASES:
        size = of_case(case, dtype).size
        yield of_case(case, dtype, max(1, elements // size))
    for name, (shapes, function) in EXTRAS.items():
        batch = max(1, elements // sum(math.prod(shape) for shape in shapes))
        yield Network(name, name, [(batch, *s) for s in shapes], function, wide=batch > 1)


@dataclass(frozen=True)
class Broken:
    """How many numbers break the law."""

    nan: int = 0
    infinite: int = 0
    negative: int = 0

    def __add__(self, other: Broken) -> Broken:
        return Broken(
            self.nan + other.nan, self.infinite + other.infinite, self.negative + other.negative
        )


def broken(either: np.ndarray, positive: np.ndarray) -> Broken:
    both = (either, positive)
    return Broken(
        sum(int(np.isnan(a).sum()) for a in both),
        sum(int(np.isinf(a).sum()) for a in both),
        int((positive < 0).sum()),
    )


Run = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def in_torch(network: Network) -> Run:
    """It runs on rows of moments (n, size) at once."""

    def run(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m, v = (torch.from_numpy(a).unsqueeze(1) for a in (mean, var))
        if network.wide or len(m) == 1:
            parts = [network(*row) for row in zip(m, v, strict=True)]
            return tuple(torch.cat(side).numpy() for side in zip(*parts, strict=True))
        return tuple(t.numpy() for t in torch.func.vmap(network)(m, v))

    return torch.no_grad()(run)


def as_onnx(network: Network) -> Any:
    """The network in ONNX, as ``onesigma.export`` writes it."""
    from onesigma.exporters.onnx import Interface, torch_writer
    from onesigma.exporters.onnx.ops import UnwritableError
    from onesigma.exporters.onnx.writer import write

    examples = tuple(torch.ones(1, network.size) for _ in range(2))
    graph = capture.plain_module(capture.export(network, examples, dynamic=False))
    interface = Interface(18, ("mean", "var"), ("either", "positive"), dynamic=False)
    try:
        return write(graph, examples, interface)
    except UnwritableError:
        return torch_writer.write(graph, examples, interface)


def in_onnx(network: Network) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(as_onnx(network).SerializeToString(), options)

    def run(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = zip(mean[:, None], var[:, None], strict=True)
        parts = [session.run(["either", "positive"], {"mean": m, "var": v}) for m, v in rows]
        return tuple(np.concatenate(side) for side in zip(*parts, strict=True))

    return run


_DRIVER = """
#include <string.h>
#include "net.h"
int run(long count, const float *mean, const float *var, float *either, float *positive)
{
    static struct net_prediction out;
    for (long i = 0; i < count; ++i) {
        if (net_predict(mean + SIZE * i, var + SIZE * i, &out))
            return 1;
        memcpy(either + EITHER * i, &out.either, sizeof out.either);
        memcpy(positive + POSITIVE * i, &out.positive, sizeof out.positive);
    }
    return 0;
}
"""


def in_c(network: Network, folder: Path) -> Run:
    """Compiled as a library; the loop over the rows is C, too."""
    from onesigma.exporters.c import generate

    generated = generate(as_onnx(network), folder, name="net")
    sizes = {name: size for name, (_, size) in generated.outputs.items()}
    (folder / "driver.c").write_text(_DRIVER)
    defines = [f"-D{name.upper()}={size}" for name, size in (*sizes.items(), ("size", network.size))]
    flags = ["-O2", "-shared", "-fPIC", *defines]
    files = [str(folder / name) for name in ("net.c", "driver.c")]
    library = str(folder / f"{len(list(folder.iterdir()))}.so")
    subprocess.run(["gcc", *flags, *files, "-o", library, "-lm"], check=True, capture_output=True)
    function = ctypes.CDLL(library).run

    def run(mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        results = tuple(
            np.empty((len(mean), sizes[name]), np.float32) for name in ("either", "positive")
        )
        arrays = [np.ascontiguousarray(a) for a in (mean, var)] + list(results)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in arrays]
        assert function(ctypes.c_long(len(mean)), *pointers) == 0
        return results

    return run


def count_broken(network: Network, run: Run, pool: tuple[np.ndarray, np.ndarray], at_once: int) -> Broken:
    """Put the whole pool through a network, so many moments at once."""
    total, rows = Broken(), max(1, at_once // network.size)
    step = rows * network.size
    for start in range(0, len(pool[0]), step):
        found = [a[start : start + step] for a in pool]
        if len(found[0]) < step:
            found = [np.resize(a, step) if len(a) < network.size else a for a in found]
        n = len(found[0]) // network.size
        total += broken(*run(*(a[: n * network.size].reshape(n, -1) for a in found)))
    return total
