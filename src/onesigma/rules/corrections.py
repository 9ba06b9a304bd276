"""Corrections: what the diagonal pass cannot know, as ``calibrate`` found it, node by node.

Each rule names the kinds it accepts (``Rule.accepts``) and gets them as keywords; a ``Gain`` is
applied to whatever the rule returns. They are constants: at run time a gain is part of the squared
weights, and the rest is part of a formula that is there anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from onesigma.errors import FileError

Numbers: TypeAlias = float | Tensor


@dataclass(frozen=True, eq=False)
class Correction:
    """Base of all kinds. ``keyword`` is what a rule calls it."""

    keyword: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            numbers = torch.as_tensor(getattr(self, field.name), dtype=torch.float64)
            low, high = self.limits.get(field.name, (0.0, math.inf))
            if not bool((torch.isfinite(numbers) & (numbers >= low) & (numbers <= high)).all()):
                raise FileError(
                    f"{type(self).__name__}.{field.name} is not a finite number within "
                    f"{low:g} … {high:g}: this file was not written by onesigma.calibrate."
                )

    # Of each field; 0 … ∞ where nothing is said.
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the kind by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}
        return {"kind": type(self).__name__, **lists}


@dataclass(frozen=True, eq=False)
class Gain(Correction):
    """Multiplies a variance: one number, or one for each channel (it broadcasts)."""

    factor: Numbers


@dataclass(frozen=True, eq=False)
class SumCorrelation(Correction):
    """How much the two branches of a sum vary together, from −1 to 1."""

    value: float

    keyword: ClassVar[str] = "correlation"
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {"value": (-1.0, 1.0)}


@dataclass(frozen=True, eq=False)
class MaximumCorrelation(Correction):
    """How much the members of a maximum vary together, from 0 to 1."""

    value: float

    keyword: ClassVar[str] = "correlation"
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {"value": (0.0, 1.0)}


UNCORRELATED = MaximumCorrelation(0.0)


@dataclass(frozen=True, eq=False)
class Parts(Correction):
    """Factors of the two parts of what leaves a dropout: what came in, and the masks' own."""

    inherited: float
    fresh: float

    keyword: ClassVar[str] = "parts"


@dataclass(frozen=True, eq=False)
class Factors(Correction):
    """How the inputs of a linear layer vary together: their correlation is U Uᵀ off the diagonal.

    ``rate`` is that of a dropout right before the layer, whose own part is independent, or 0.
    """

    loadings: Tensor
    rate: float

    keyword: ClassVar[str] = "factors"
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {
        "loadings": (-math.inf, math.inf),
        "rate": (0.0, 1.0),
    }


@dataclass(frozen=True, eq=False)
class Together(Correction):
    """Asks a last linear layer for the covariance of its outputs."""

    keyword: ClassVar[str] = "together"


Corrections: TypeAlias = Mapping[str, tuple[Correction, ...]]
_KINDS = {
    kind.__name__: kind
    for kind in (Gain, SumCorrelation, MaximumCorrelation, Parts, Factors, Together)
}


def constant(numbers: Numbers, like: Tensor) -> Numbers:
    """Numbers as what they multiply: a float stays one, because it can move into weights.

    From a list, so that a traced graph holds a constant that follows ``.to()``.
    """
    if not isinstance(numbers, Tensor):
        return numbers
    return torch.tensor(numbers.tolist(), dtype=like.dtype, device=like.device)


def encode_corrections(corrections: Corrections) -> dict[str, list[dict[str, Any]]]:
    """For JSON, by node."""
    return {node: [each.to_dict() for each in found] for node, found in corrections.items()}


def decode_corrections(content: Any) -> Corrections:
    """What ``encode_corrections`` wrote.

    Raises:
        FileError: an unknown kind, a missing field, or numbers that no calibration gives.
    """
    try:
        return {
            str(node): tuple(_decode(**each) for each in found) for node, found in content.items()
        }
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise FileError(f"The file holds corrections that cannot be read: {error!r}.") from error


def _decode(kind: str, **values: Any) -> Correction:
    numbers = {
        name: torch.tensor(value, dtype=torch.float64) if isinstance(value, list) else float(value)
        for name, value in values.items()
    }
    return _KINDS[kind](**numbers)  # type: ignore[arg-type]
