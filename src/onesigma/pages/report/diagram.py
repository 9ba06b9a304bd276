"""The graph, one row per node, with lines at its side coloured by the uncertainty they carry.

The lines run in lanes, as in the history of a repository. A value keeps its lane until its last
reader, so a residual connection runs straight down beside the branch that it goes around.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from onesigma.pages.html.page import frame
from onesigma.pages.report.findings import Findings
from onesigma.pages.report.uncertainty_flow import Stop
from onesigma.pages.report.words import TEXTS

# The classes of report.css that colour spread / signal, and where each begins.
LEVELS = {"d1": 0.0, "d2": 0.1, "d3": 0.25, "d4": 0.5, "d5": 1.0}
_LANE, _HEIGHT, _DOT = 18, 46, 5.5
_LONG = 40  # rows; a longer diagram scrolls within its own frame
_HEADS = (
    '<th scope="col"><span class="unseen">graph</span></th><th scope="col">operation</th>'
    '<th scope="col" class="how">rule</th><th scope="col">uncertainty ÷ signal</th>'
)


@dataclass(frozen=True)
class Row:
    """What one row shows."""

    lane: int  # where the node sits
    joins: tuple[tuple[int, str], ...]  # (lane, name) of the values from above that it reads
    passes: tuple[tuple[int, str], ...]  # (lane, name) of the values from above that go on below
    goes_on: bool  # whether its own value does


def assign_lanes(nodes: Sequence[tuple[str, Sequence[str]]]) -> list[Row]:
    """A row for each (name, names it reads), given in an order that can be computed."""
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


def show_graph(found: Findings) -> Iterator[str]:
    yield f"<p>{TEXTS['flow']}</p>{_legend()}"
    kind = "flow long" if len(found.flow) > _LONG else "flow"
    rows = "".join(_rows(found.flow, found.shares))
    yield frame(_HEADS, rows, kind=kind, label="Diagram of the graph")
    if found.shares:
        yield f'<p class="small">{TEXTS["shares"]}</p>'


def _level(relative: float) -> str:
    """The class that colours a relative uncertainty: "d0" where there is none."""
    return next((name for name in reversed(LEVELS) if relative and relative >= LEVELS[name]), "d0")


def _legend() -> str:
    starts = [f"{100 * start:.0f}" for start in LEVELS.values()]
    texts = [*(f"{a}–{b} %" for a, b in pairwise(starts)), f"{starts[-1]} % and more"]
    keys = "".join(f'<li class="{n}">{t}</li>' for n, t in zip(LEVELS, texts, strict=True))
    return (
        f'<ul class="legend"><li class="d0">certain</li>{keys}<li class="source">noise enters</li>'
        "</ul>"
    )


def _rows(flow: Sequence[Stop], shares: dict[str, float]) -> Iterator[str]:
    rows = assign_lanes([(stop.entry.node, stop.inputs) for stop in flow])
    width = _LANE * (1 + max(max([row.lane, *(n for n, _ in row.passes)]) for row in rows)) + 6
    levels = {stop.entry.node: _level(stop.relative) for stop in flow}
    longest = min(2.0, max(1.0, *(s.relative for s in flow)))
    for stop, row in zip(flow, rows, strict=True):
        entry = stop.entry
        known = () if entry.status == "certain" else (entry.status, entry.note)
        yield (
            f'<tr class="{entry.status}" title="{escape(_about(stop))}">'
            f"<td>{_draw_lanes(row, stop, levels, width)}</td>"
            f'<th scope="row">{escape(entry.module or entry.node)}'
            f"<small>{escape(_what(stop, shares))}</small></th>"
            f'<td class="how"><small>{escape(": ".join(filter(None, known)))}</small></td>'
            f"<td>{_bar(stop, longest)}</td></tr>"
        )


def _draw_lanes(row: Row, stop: Stop, levels: dict[str, str], width: int) -> str:
    def x(lane: int) -> float:
        return _LANE * (lane + 0.5) + 3

    middle, own = _HEIGHT / 2, x(row.lane)
    parts = [
        f'<path class="{levels[name]}" d="M{x(lane)} 0V{_HEIGHT}"/>' for lane, name in row.passes
    ]
    for lane, name in row.joins:
        bend = f"C{x(lane)} {middle / 2} {own} {middle / 2} {own} {middle}"
        parts.append(f'<path class="{levels[name]}" d="M{x(lane)} 0{bend}"/>')
    kind = levels[stop.entry.node]
    if row.goes_on:
        parts.append(f'<path class="{kind}" d="M{own} {middle}V{_HEIGHT}"/>')
    dots = [(kind, _DOT)]
    if stop.entry.status == "noise":
        dots.insert(0, ("ring", _DOT + 3.5))
    parts += [f'<circle class="{kind}" cx="{own}" cy="{middle}" r="{r}"/>' for kind, r in dots]
    return (
        f'<svg width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}" role="img">'
        f"<title>{escape(_about(stop))}</title>{''.join(parts)}</svg>"
    )


def _what(stop: Stop, shares: dict[str, float]) -> str:
    op = stop.entry.op.removeprefix("aten.").partition(".")[0]
    if (share := shares.get(stop.entry.node)) is not None:
        return f"{op}: share {100 * share:.0f} %"
    return f"{op} → {' × '.join(map(str, stop.shape))}" if stop.shape else op


def _bar(stop: Stop, longest: float) -> str:
    if stop.relative == 0:
        return '<span class="none">certain</span>'
    share = min(1.0, stop.relative / longest)
    number = f"{100 * stop.relative:.0f} %" if stop.relative < math.inf else "∞"
    filled = f'<i class="{_level(stop.relative)}" style="width:{100 * share:.0f}%"></i>'
    return f'<span class="track">{filled}</span> {number}'


def _about(stop: Stop) -> str:
    """All that is known of a node, for those who ask."""
    entry = stop.entry
    lines = [
        f"{entry.node}: {entry.op}" + (f" in {entry.module}" if entry.module else ""),
        f"rule: {entry.rule or 'none needed'}, {entry.status}",
        entry.note,
        f"signal {stop.signal:.3g}, spread {stop.spread:.3g} (root mean squares)",
        entry.source,
    ]
    return "\n".join(filter(None, lines))
