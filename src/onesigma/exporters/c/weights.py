"""Squares are not stored: a variance layer reads its mean layer's weights, and squares them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onesigma.exporters.c.nodes import Array, Node

# Squares in float32, and one product with a factor, are rounded by less.
_ROUNDING = 1e-6


def share_squares(nodes: Sequence[Node]) -> None:
    """Where a layer's weights are f·w² of another's w, f per filter: let it use w, in place."""
    layers = [node.attributes for node in nodes if "weight" in node.attributes]
    for layer in layers:
        bases = [other["weight"] for other in layers if other["power"] == 1]
        for base in bases:
            factor = None if base is layer["weight"] else _factor_of_squares(layer["weight"], base)
            if factor is not None:
                layer |= {"weight": base, "power": 2, "factor": factor}
                break
    # One array for weights that are the same numbers: steps are compared by identity.
    shared: dict[tuple[object, bytes], Array] = {}
    for layer in layers:
        key = (layer["weight"].shape, layer["weight"].tobytes())
        layer["weight"] = shared.setdefault(key, layer["weight"])


def _factor_of_squares(weight: Array, base: Array) -> Array | None:
    """f with weight = f·base², one for each filter (row), or None."""
    if weight.shape != base.shape or float(weight.min()) < 0:
        return None
    squares = base.astype(np.float64) ** 2
    totals = squares.sum(1)
    factor = weight.sum(1, dtype=np.float64) / np.where(totals > 0, totals, 1)
    wanted = factor[:, None] * squares
    if (np.abs(weight - wanted) > _ROUNDING * wanted + np.finfo(np.float32).tiny).any():
        return None
    return np.asarray(factor, dtype=np.float32)
