"""How a model's inputs were standardised; needs no PyTorch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Scaling:
    """(x − mean) / std; one number, or one per channel: along the first dimensions of a sample."""

    mean: Array
    std: Array

    @staticmethod
    def read(path: Path) -> Scaling:
        """From a JSON file such as ``{"mean": [0.1, 9.8], "std": [1, 2.5]}``."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            with np.errstate(over="ignore"):  # too large is infinite, and refused below
                mean, std = (np.array(content[key], np.float32) for key in ("mean", "std"))
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise DataError(
                f"{path.name} does not hold a mean and a std as JSON: {error!r}"
            ) from error
        finite = np.isfinite(mean).all() and np.isfinite(std).all()
        if mean.shape != std.shape or not finite or not (std > 0).all():
            raise DataError(f"{path.name}: as many std as means, all finite, every std above 0.")
        return Scaling(mean, std)

    def apply(self, x: Array) -> Array:
        if self.mean.ndim and self.mean.shape != x.shape[1 : 1 + self.mean.ndim]:
            raise DataError(
                f"There are {self.mean.shape} means for samples of shape {x.shape[1:]}: one number "
                "is needed, or one per channel."
            )
        along = (1, *self.mean.shape, *[1] * (x.ndim - 1 - self.mean.ndim))
        return np.asarray((x - self.mean.reshape(along)) / self.std.reshape(along), np.float32)
