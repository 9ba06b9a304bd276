"""Structured ops that need no more than a few lines: picking by a table, the largest's place."""

from __future__ import annotations

from math import prod

from onesigma.exporters.c.render import File, renders
from onesigma.exporters.c.values import Node


@renders("Take")
def take(node: Node, file: File) -> list[str]:
    """y[a, i, b] = x[a, places[i], b]."""
    (x,), (y,) = node.reads, node.writes
    axis, places = node.attributes["axis"], node.attributes["places"]
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    table, old, new = file.table(places, "u16"), x.shape[axis], len(places)
    return [
        f"const float *x = {file.pointer(x)};",
        f"float *y = {file.pointer(y)};",
        f"for (int a = 0; a < {outer}; ++a, x += {old * inner})",
        f"    for (int i = 0; i < {new}; ++i)",
        f"        for (int b = 0; b < {inner}; ++b)",
        f"            *y++ = x[{table}[i] * {inner} + b];",
    ]


@renders("ArgMax")
def argmax(node: Node, file: File) -> list[str]:
    """The place of the largest along the last dimension, the first of equals."""
    (x,), (y,) = node.reads, node.writes
    n = x.shape[-1]
    return [
        f"const float *x = {file.pointer(x)};",
        f"float *y = {file.pointer(y)};",
        f"for (int a = 0; a < {y.size}; ++a, x += {n}) {{",
        "    int best = 0;",
        f"    for (int i = 1; i < {n}; ++i)",
        "        best = x[i] > x[best] ? i : best;",
        "    y[a] = (float)best;",
        "}",
    ]
