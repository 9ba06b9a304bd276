"""Squared weights are not stored: a variance layer reads the weights of its mean layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onesigma.exporters.c.values import Array, Node

# Squares in float32, and one product with a factor, are rounded by less.
_ROUNDING = 1e-6


def share_squares(nodes: Sequence[Node]) -> None:
    """Where a layer's weights are f·w² of another's w, f per filter: let it use those, in place."""
    layers = [node for node in nodes if "weight" in node.attributes]
    for node in layers:
        weight = node.attributes["weight"]
        for other in layers:
            base = other.attributes["weight"]
            if base is weight or other.attributes["power"] != 1 or base.shape != weight.shape:
                continue
            factor = factor_of_squares(weight, base)
            if factor is not None:
                node.attributes |= {"weight": base, "power": 2, "factor": factor}
                break
    _share_equal(layers)


def _share_equal(layers: Sequence[Node]) -> None:
    """One array for weights that are the same numbers: fusing compares by identity."""
    known: dict[tuple[object, bytes], Array] = {}
    for node in layers:
        weight = node.attributes["weight"]
        node.attributes["weight"] = known.setdefault((weight.shape, weight.tobytes()), weight)


def factor_of_squares(weight: Array, base: Array) -> Array | None:
    """f with weight = f·base², one for each filter (row), or None."""
    if float(weight.min()) < 0:
        return None
    squares = base.astype(np.float64) ** 2
    totals = squares.sum(1)
    factor = weight.sum(1, dtype=np.float64) / np.where(totals > 0, totals, 1)
    wanted = factor[:, None] * squares
    if (np.abs(weight - wanted) > _ROUNDING * wanted + np.finfo(np.float32).tiny).any():
        return None
    return np.asarray(factor, dtype=np.float32)
