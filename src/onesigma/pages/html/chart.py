"""Charts as SVG that wear the colours of the page: lines, bars, marks on two axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 420, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 20, 28, 44


@dataclass(frozen=True)
class Axis:
    """A linear scale: from, to, what it measures, and whether in per cent."""

    low: float
    high: float
    name: str
    percent: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, 0 at the low end and 1 at the high one; what is beyond stays in."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def ticks(self) -> list[float]:
        """Four to six round numbers."""
        rough = (self.high - self.low) / 5
        power = 10 ** math.floor(math.log10(rough))
        step = next(power * n for n in (1, 2, 2.5, 5, 10) if power * n >= rough)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def show(self, value: float) -> str:
        return f"{100 * value:.4g} %" if self.percent else f"{value:.4g}"


class Chart:
    """Marks on two axes; the later mark lies on top. The kinds are classes of page.css."""

    def __init__(self, x: Axis, y: Axis) -> None:
        self.x, self.y = x, y
        self._marks: list[str] = []

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> Chart:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._at(*point) for point in points))
        self._marks.append(f'<polyline class="line {kind}" points="{path}"/>')
        return self

    def dots(self, points: Iterable[tuple[float, float, float]], kind: str) -> Chart:
        """Where, and how large: the area is in proportion to the third, 1 being the largest."""
        for x, y, size in points:
            (left, top), radius = self._at(x, y), 1.5 + 6.5 * math.sqrt(size)
            place = f'cx="{left:.1f}" cy="{top:.1f}" r="{radius:.1f}"'
            self._marks.append(f'<circle class="dot {kind}" {place}/>')
        return self

    def steps(self, edges: Sequence[float], heights: Sequence[float], kind: str) -> Chart:
        """The outline of bars, to lie over others."""
        levels = [self.y.low, *heights, self.y.low]
        corners = [(x, y) for i, x in enumerate(edges) for y in (levels[i], levels[i + 1])]
        return self.line(corners, kind)

    def bars(self, edges: Sequence[float], heights: Sequence[float], kind: str) -> Chart:
        """One bar between each two edges."""
        _, floor = self._at(self.x.low, self.y.low)
        for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True):
            (left, top), (right, _) = self._at(low, height), self._at(high, height)
            if floor - top > 0.05:
                self._marks.append(
                    f'<rect class="bar {kind}" x="{left + 0.5:.1f}" y="{top:.1f}" '
                    f'width="{max(0.5, right - left - 1):.1f}" height="{floor - top:.1f}"/>'
                )
        return self

    def upright(self, value: float, label: str) -> Chart:
        """A vertical line at a value, its label beside it."""
        x, _ = self._at(value, self.y.low)
        right = self.x.share(value) < 0.6
        self._marks += [
            f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>',
            _text(label, x + 5 if right else x - 5, _TOP + 9, "start" if right else "end", "note"),
        ]
        return self

    def figure(self, title: str, text: str, legend: Iterable[tuple[str, str]] = ()) -> str:
        """The chart with its title, what it shows, and (kind, name) of what is drawn in it."""
        names = "".join(f'<li class="{kind}">{escape(name)}</li>' for kind, name in legend)
        keys = f'<ul class="legend">{names}</ul>' if names else ""
        return (
            f'<figure class="chart"><h3>{escape(title)}</h3>'
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
            f"<title>{escape(title)}</title><desc>{escape(text)}</desc>"
            f"{self._grid()}{''.join(self._marks)}</svg>{keys}"
            f"<figcaption>{escape(text)}</figcaption></figure>"
        )

    def _at(self, x: float, y: float) -> tuple[float, float]:
        wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + wide * self.x.share(x), _TOP + high * (1 - self.y.share(y))

    def _grid(self) -> str:
        floor, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        parts = [_flat("axis", floor)]
        for value in self.x.ticks():
            x, _ = self._at(value, self.y.low)
            parts.append(_text(self.x.show(value), x, floor + 15, "middle"))
        for value in self.y.ticks():
            _, y = self._at(self.x.low, value)
            parts += [_flat("grid", y), _text(self.y.show(value), _LEFT - 6, y + 4, "end")]
        parts.append(_text(self.x.name, (_LEFT + end) / 2, _HEIGHT - 8, "middle", "name"))
        parts.append(_text(self.y.name, 2, 12, "start", "name"))
        return "".join(parts)


def _flat(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(words: str, x: float, y: float, anchor: str, kind: str = "tick") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'
