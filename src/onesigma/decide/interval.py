"""Intervals for regression: where the true value lies, from labelled examples, with a guarantee.

    mean ± factor · √(var + noise)

``noise`` is what the data scatter besides the network's own uncertainty: the mean of (y − mean)²
less that of var, on one half of the examples. On the other half n scores |y − mean| / √(var +
noise) give the factor: the ⌈(n + 1)(1 − risk)⌉-th smallest. So a new value lies inside with
probability at least 1 − risk, if it is like the examples, whatever the network (split conformal
prediction, Papadopoulos et al. 2002).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onesigma.decide.threshold import fewest
from onesigma.errors import InputError
from onesigma.prediction import Prediction

_ROOM = 1.00001  # for the rounding of another runtime


@dataclass(frozen=True)
class Interval:
    """From mean and variance to ``low`` and ``high``; made by ``fit_interval``.

    Attributes:
        factor: for each output, how many standard deviations to either side.
        noise: for each output, the variance of the data themselves.
        risk: the share of true values that may lie outside.
        n: how many labelled examples gave the factor.
        covered: the share of the other half's values that lie inside, a check on other examples.
    """

    factor: tuple[float, ...]
    noise: tuple[float, ...]
    risk: float
    n: int
    covered: float = math.nan

    def __post_init__(self) -> None:
        good = all(math.isfinite(x) and x >= 0 for x in (*self.factor, *self.noise))
        if not good or len(self.factor) != len(self.noise) or not 0 < self.risk < 1:
            raise InputError("An interval has a factor and a noise for each output, none below 0.")

    def apply(self, prediction: Prediction) -> Prediction:
        """The prediction with ``low`` and ``high``."""
        mean, dim = prediction.mean, prediction.class_dim
        shape = [-1 if place == dim else 1 for place in range(mean.dim())]
        factor, noise = (torch.tensor(x).to(mean).view(shape) for x in (self.factor, self.noise))
        half = factor * (prediction.var + noise).sqrt()
        return replace(prediction, low=mean - half, high=mean + half)

    def __str__(self) -> str:
        return self.guarantee

    @property
    def guarantee(self) -> str:
        return (
            f"At least {100 * (1 - self.risk):.3g} % of new values lie between low and high, if "
            f"they are like the {self.n} examples of calibration; {100 * self.covered:.1f} % of "
            "the others did."
        )

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Interval:
        lists = {name: tuple(map(float, content[name])) for name in ("factor", "noise")}
        return cls(**{**content, **lists})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def fit_interval(prediction: Prediction, values: Tensor, first: Tensor, risk: float) -> Interval:
    """The interval that at most a share ``risk`` of new values lies outside of.

    Args:
        prediction: of the labelled inputs.
        values: their true values, of the same shape as ``prediction.mean``.
        first: a mask of the rows that give the noise; the others give the factor.
        risk: the share of values that may lie outside.
    """
    if not 0 < risk < 1:
        raise InputError(f"risk={risk}: it is a share, between 0 and 1.")
    if values.shape != prediction.mean.shape or not bool(torch.isfinite(values).all()):
        raise InputError(
            f"labelled: values of shape {tuple(values.shape)} for answers of shape "
            f"{tuple(prediction.mean.shape)}. Give a finite number for each."
        )
    n = int((~first).sum())
    rank = math.ceil((n + 1) * (1 - risk) - 1e-9)
    if rank > n:
        needed = 2 * fewest(risk, None)
        raise InputError(f"risk={risk} needs {needed} labelled inputs or more, not {len(first)}.")
    dim = prediction.class_dim
    error = (values - prediction.mean).double().movedim(dim, -1)
    var = prediction.var.double().movedim(dim, -1)
    spare = list(range(error.dim() - 1))
    noise = (error.square() - var)[first].mean(spare).clamp(min=0)
    scores = error.abs() / (var + noise).sqrt().clamp(min=1e-30)
    # Positions of one map are not independent: the example is the input, by its worst position.
    each = scores.flatten(1, -2).amax(1) if scores.dim() > 2 else scores
    factor = _ROOM * each[~first].sort(0).values[rank - 1]
    found = Interval(tuple(factor.tolist()), tuple(noise.tolist()), risk, n)
    return replace(found, covered=float((each[first] <= factor).double().mean()))
