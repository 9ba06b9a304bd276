"""Weights and what goes through them: mean and variance are two lanes of one layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesigma.exporters.c.render import File, filled
from onesigma.exporters.c.values import Array, Node

BLOCK = 4  # filters at once

_LANE = """\
typedef @weight@ weight;

/* One value that goes through a layer: a mean, or a variance, for which weights are squared. */
struct lane {
    const float *x;
    float *y;
    const float *bias;
    const float *factor; /* of the weights, or of their squares, of each filter */
    int power;
};
"""


@dataclass
class Layer:
    """A step with weights, ready to be rendered: C names of its tables, and C for its lanes."""

    weights: str
    lanes: list[str]
    powers: tuple[int, ...]


def layer(node: Node, groups: int, file: File) -> Layer:
    """Write the weights of a layer and describe its lanes, as ``lanes`` in C."""
    nodes: list[Node] = node.attributes["lanes"]
    file.function("lane", filled(_LANE, weight="int8_t" if file.int8 else "float"))
    weights, factors = _packed(nodes, groups, file)
    lines = []
    for x, y, lane, factor in zip(node.reads, node.writes, nodes, factors, strict=True):
        bias, power = lane.attributes["bias"], lane.attributes["power"]
        table = "NULL" if bias is None else file.table(bias)
        lines.append(f"    {{{file.pointer(x)}, {file.pointer(y)}, {table}, {factor}, {power}}},")
    declared = [f"const struct lane lanes[{len(nodes)}] = {{", *lines, "};"]
    return Layer(weights, declared, tuple(lane.attributes["power"] for lane in nodes))


def _packed(lanes: list[Node], groups: int, file: File) -> tuple[str, list[str]]:
    """The table of weights, and for each lane that of what multiplies them (or their squares)."""
    weight = lanes[0].attributes["weight"]
    factors = [lane.attributes["factor"] for lane in lanes]
    if not file.int8:
        names = ["NULL" if factor is None else file.table(factor) for factor in factors]
        return file.table(blocked(weight, groups)), names
    steps = int8_steps(weight)
    for i, lane in enumerate(lanes):
        own = 1.0 if factors[i] is None else factors[i]
        factors[i] = own * steps ** lane.attributes["power"]
    codes = np.rint(weight / steps[:, None])
    return file.table(blocked(codes, groups), "i8"), [file.table(f) for f in factors]


def int8_steps(weight: Array) -> Array:
    """For each filter (row), what one step of an eight-bit integer is worth."""
    largest = np.abs(weight).max(1)
    return np.where(largest > 0, largest / 127, 1).astype(np.float32)


def blocked(weight: Array, groups: int) -> Array:
    """Weights (filters, taps) so that those of four filters for one tap are neighbours."""
    parts = []
    for group in np.split(weight, groups):
        whole = len(group) // BLOCK * BLOCK
        parts += [np.ravel(group[i : i + BLOCK].T) for i in range(0, whole, BLOCK)]
        parts += list(group[whole:])
    return np.concatenate(parts)
