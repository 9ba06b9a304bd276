"""The summary as a page: the verdict, every recording's course over time, what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from onesigma.answer import BROKEN, UNFAMILIAR
from onesigma.fleet.job import Course
from onesigma.fleet.summary import Summary, count
from onesigma.pages.html.page import folded, frame, page

_FIRST = 200  # recordings and remarks that are shown
_WIDTH, _HEIGHT = 180, 28
_STYLE = """
.cards { grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)) }
.card { color: var(--soft); font-size: .88rem; line-height: 1.35 }
.card b { display: block; font-size: 1.9rem; line-height: 1.25; color: var(--ink);
  white-space: nowrap }
@media (max-width: 30rem) { .card b { font-size: 1.45rem } }
li { max-width: 60rem; margin: .3rem 0 }
td svg { display: block; width: 180px } td.course { padding: .2rem .75rem }
thead th:nth-child(2) { text-align: left }
.acted { fill: var(--tint) } .edge { fill: none; stroke: var(--blue); stroke-width: 1.5 }
.odd { fill: none; stroke: var(--orange); stroke-width: 2 } .floor { stroke: var(--line) }
.key i { display: inline-block; width: 1rem; height: .2rem; vertical-align: middle;
  margin: 0 .3rem }
tr.drift > th { color: var(--red) }
"""


def summary_page(summary: Summary) -> str:
    """One file that links to no other."""
    cards = "".join(
        f'<div class="card"><b>{escape(figure)}</b>{escape(text)}</div>'
        for figure, text in _headlines(summary)
    )
    body = [
        '<main><header><p class="kicker">onesigma predict</p><h1>What the recordings say</h1>',
        f'<p class="lead">{escape(summary.verdict)}.</p></header><div class="cards">{cards}</div>',
        *_show_remarks(summary),
        *_show_devices(summary),
        "</main>",
    ]
    return page("What the recordings say", body, style=_STYLE)


def _headlines(summary: Summary) -> Iterator[tuple[str, str]]:
    before = f", {summary.skipped} done before" if summary.skipped else ""
    yield f"{summary.windows:,}", f"windows in {count(summary.parts, 'part')}{before}"
    if summary.coverage is not None:
        yield f"{100 * summary.coverage:.1f} %", "are acted on"
    for reason in (UNFAMILIAR, BROKEN):
        yield f"{100 * summary.reasons.get(reason, 0):.1f} %", f"are {reason}"
    yield str(len(summary.drifting)), f"of {count(len(summary.devices), 'recording')} drifting"
    if summary.failed:
        yield str(len(summary.failed)), f"of {count(summary.parts, 'part')} not scored"


def _show_remarks(summary: Summary) -> Iterator[str]:
    if summary.remarks:
        yield "<section><h2>Look at these</h2><ul>"
        yield from (f"<li>{escape(text)}</li>" for text in summary.remarks[:_FIRST])
        more = len(summary.remarks) - _FIRST
        yield (
            f"<li>and {more} more, in _summary.json</li>" if more > 0 else ""
        ) + "</ul></section>"


def _show_devices(summary: Summary) -> Iterator[str]:
    head, rows = summary.table(summary.devices[:_FIRST])
    heads = "".join(
        f'<th scope="col">{escape(name)}</th>' for name in [head[0], "over time", *head[1:]]
    )
    body = "".join(
        f'<tr{" class=drift" if device.alarms else ""}><th scope="row">{escape(name)}</th>'
        f'<td class="course">{_draw(device)}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for device, (name, *cells) in zip(summary.devices, rows, strict=False)
    )
    yield "<section><h2>Recordings, the oddest first</h2>"
    yield (
        '<p class="small key"><i style="background:var(--blue)"></i>share acted on, '
        '<i style="background:var(--orange)"></i>share unfamiliar or broken, from 0 to 100 %.</p>'
    )
    yield frame(heads, body, label="recordings")
    more = len(summary.devices) - _FIRST
    yield f"<p>And {more} more, in _summary.json.</p>" if more > 0 else ""
    yield folded("What drift means", f"<p>{escape(summary.guarantee)}</p>") + "</section>"


def _draw(device: Course) -> str:
    """Both shares over time, each point at its place in the order."""
    if not device.points:
        return ""
    odd = _path([share for _, _, share in device.points])
    acted = [share for _, share, _ in device.points if share is not None]
    first, last = device.points[0][0], device.points[-1][0]
    area = f'<path class="acted" d="{_path(acted)} V{_HEIGHT} H0 Z"/>' if acted else ""
    edge = f'<path class="edge" d="{_path(acted)}"/>' if acted else ""
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{escape(first)} to {escape(last)}'
        f'</title>{area}{edge}<path class="odd" d="{odd}"/>'
        f'<line class="floor" x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/></svg>'
    )


def _path(shares: list[float]) -> str:
    """Steps, because each share is that of a stretch of time."""
    wide = _WIDTH / len(shares)
    tops = [1 + (_HEIGHT - 2) * (1 - share) for share in shares]
    steps = " ".join(f"V{top:.1f} H{wide * (i + 1):.1f}" for i, top in enumerate(tops))
    return f"M0 {tops[0]:.1f} {steps}"
