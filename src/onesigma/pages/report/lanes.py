"""Lanes for a graph drawn row by row, as a history of versions is: one row, one node.

A value keeps its lane until its last reader. So what a residual branch goes around runs straight
down beside the branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """What one row shows.

    Attributes:
        lane: where the node sits.
        joins: (lane, name) of the values from above that it reads.
        passes: (lane, name) of the values from above that go on below.
        goes_on: whether its own value does.
    """

    lane: int
    joins: tuple[tuple[int, str], ...]
    passes: tuple[tuple[int, str], ...]
    goes_on: bool


def assign(nodes: Sequence[tuple[str, Sequence[str]]]) -> list[Row]:
    """A row for each (name, names it reads), which come in an order that can be computed."""
    last = {name: index for index, (_, reads) in enumerate(nodes) for name in reads}
    lanes: dict[int, str] = {}
    rows = []
    for index, (name, reads) in enumerate(nodes):
        joins = tuple((lane, value) for lane, value in sorted(lanes.items()) if value in reads)
        passes = tuple((lane, v) for lane, v in sorted(lanes.items()) if last[v] > index)
        taken = dict(passes)
        ended = [lane for lane, _ in joins if lane not in taken]
        free = (lane for lane in range(len(taken) + 1) if lane not in taken)
        lane = min(ended) if ended else next(free)
        goes_on = name in last
        lanes = {**taken, lane: name} if goes_on else taken
        rows.append(Row(lane, joins, passes, goes_on))
    return rows
