"""The graph as rows with lanes at their side, coloured by the doubt that flows through."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from onesigma.pages.report import lanes, words
from onesigma.pages.report.doubt_flow import Stop
from onesigma.pages.report.gather import Findings
from onesigma.report import Entry

# Upper ends of spread / signal, and the class of page's style that colours it; the last is open.
LEVELS = ((0.1, "d1"), (0.25, "d2"), (0.5, "d3"), (1.0, "d4"), (math.inf, "d5"))
_LANE, _HEIGHT, _DOT = 18, 46, 5.5
_LONG = 40  # rows; beyond, the diagram scrolls within its own frame


def section(found: Findings) -> Iterator[str]:
    flow = found.flow
    yield f"<p>{words.FLOW}</p>{_legend()}"
    kind = "scroll flow long" if len(flow) > _LONG else "scroll flow"
    rows = "".join(_rows(flow, found.shares))
    names = (
        '<th scope="col"><span class="unseen">graph</span></th><th scope="col">operation</th>'
        '<th scope="col" class="how">rule</th><th scope="col">doubt ÷ signal</th>'
    )
    yield (
        f'<div class="{kind}" tabindex="0" role="region" aria-label="Diagram of the graph"><table>'
        f"<thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    if found.shares:
        yield f'<p class="small">{words.SHARES}</p>'


def level(relative: float) -> str:
    """The class of a relative doubt: "d0" where there is none."""
    if relative == 0:
        return "d0"
    return next(name for end, name in LEVELS if relative < end or end == math.inf)


def _legend() -> str:
    low, keys = 0.0, ['<li class="d0">certain</li>']
    for end, name in LEVELS:
        upto = f"–{100 * end:.0f} %" if end < math.inf else " % and more"
        keys.append(f'<li class="{name}">{100 * low:.0f}{upto}</li>')
        low = end
    return f'<ul class="legend">{"".join(keys)}<li class="source">noise enters</li></ul>'


def _rows(flow: Sequence[Stop], shares: dict[str, float]) -> Iterator[str]:
    rows = lanes.assign([(stop.entry.node, stop.inputs) for stop in flow])
    width = _LANE * (1 + max(max([row.lane, *(n for n, _ in row.passes)]) for row in rows)) + 6
    levels = {stop.entry.node: level(stop.relative) for stop in flow}
    longest = min(2.0, max(1.0, *(s.relative for s in flow)))
    for stop, row in zip(flow, rows, strict=True):
        entry = stop.entry
        where = escape(entry.module or entry.node)
        yield (
            f'<tr class="{entry.status}" title="{escape(about(stop))}">'
            f"<td>{_lanes(row, stop, levels, width)}</td>"
            f'<th scope="row">{where}<small>{escape(_what(stop, shares))}</small></th>'
            f'<td class="how"><small>{escape(_how(entry))}</small></td>'
            f"<td>{_bar(stop, longest)}</td></tr>"
        )


def _lanes(row: lanes.Row, stop: Stop, levels: dict[str, str], width: int) -> str:
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
    ring = f'<circle class="ring" cx="{own}" cy="{middle}" r="{_DOT + 3.5}"/>'
    parts.append(ring if stop.entry.status == "noise" else "")
    parts.append(f'<circle class="{kind}" cx="{own}" cy="{middle}" r="{_DOT}"/>')
    return (
        f'<svg width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}" role="img">'
        f"<title>{escape(about(stop))}</title>{''.join(parts)}</svg>"
    )


def _what(stop: Stop, shares: dict[str, float]) -> str:
    op = stop.entry.op.removeprefix("aten.").partition(".")[0]
    if (share := shares.get(stop.entry.node)) is not None:
        return f"{op}: {100 * share:.0f} % of doubt"
    return f"{op} → {' × '.join(map(str, stop.shape))}" if stop.shape else op


def _how(entry: Entry) -> str:
    known = (entry.status, entry.note)
    return "" if entry.status == "certain" else ": ".join(part for part in known if part)


def _bar(stop: Stop, longest: float) -> str:
    if stop.relative == 0:
        return '<span class="none">certain</span>'
    share = min(1.0, stop.relative / longest)
    number = f"{100 * stop.relative:.0f} %" if stop.relative < math.inf else "∞"
    filled = f'<i class="{level(stop.relative)}" style="width:{100 * share:.0f}%"></i>'
    return f'<span class="track">{filled}</span> {number}'


def about(stop: Stop) -> str:
    """All that is known of a node, for those who ask."""
    entry = stop.entry
    lines = [
        f"{entry.node}: {entry.op}" + (f" in {entry.module}" if entry.module else ""),
        f"rule: {entry.rule or 'none needed'}, {entry.status}",
        entry.note,
        f"signal {stop.signal:.3g}, spread {stop.spread:.3g} (root mean squares)",
        entry.source,
    ]
    return "\n".join(line for line in lines if line)
