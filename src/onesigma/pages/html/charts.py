"""Drawings that wear the colours of the page: charts on two axes, and sketches of inputs."""

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# Of a chart, in its own units.
_WIDTH, _HEIGHT = 420, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 20, 28, 44
_FLOOR = _HEIGHT - _BOTTOM
# Of a sketch.
_SKETCH_WIDTH, _STRIP, _LEAST = 240, 22, 88
_MOST_LINES, _MOST_BARS, _MOST_POINTS, _MOST_PIXELS = 12, 64, 240, 128


@dataclass(frozen=True)
class Axis:
    """A linear scale: from, to, what it measures, and whether in per cent."""

    low: float
    high: float
    name: str
    percent: bool = False

    def share(self, value: float) -> float:
        """Where a value lies: 0 is the low end, 1 the high end; values beyond stay at the end."""
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
    """Marks on two axes; a later mark lies on top. The kinds are classes of page.css."""

    def __init__(self, x: Axis, y: Axis) -> None:
        self.x, self.y = x, y
        self._marks: list[str] = []

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._at(*point) for point in points))
        self._marks.append(f'<polyline class="line {kind}" points="{path}"/>')

    def dots(self, points: Iterable[tuple[float, float, float]], kind: str) -> None:
        """Where, and how large: the area is proportional to the third number, at most 1."""
        for x, y, size in points:
            (left, top), radius = self._at(x, y), 1.5 + 6.5 * math.sqrt(size)
            place = f'cx="{left:.1f}" cy="{top:.1f}" r="{radius:.1f}"'
            self._marks.append(f'<circle class="dot {kind}" {place}/>')

    def steps(self, edges: Sequence[float], heights: Sequence[float], kind: str) -> None:
        """The outline of bars, to lie over others."""
        levels = [self.y.low, *heights, self.y.low]
        self.line([(x, y) for i, x in enumerate(edges) for y in (levels[i], levels[i + 1])], kind)

    def bars(self, edges: Sequence[float], heights: Sequence[float], kind: str) -> None:
        """One bar between each two edges."""
        for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True):
            (left, top), (right, _) = self._at(low, height), self._at(high, height)
            if _FLOOR - top > 0.05:
                self._marks.append(
                    f'<rect class="bar {kind}" x="{left + 0.5:.1f}" y="{top:.1f}" '
                    f'width="{max(0.5, right - left - 1):.1f}" height="{_FLOOR - top:.1f}"/>'
                )

    def upright(self, value: float, label: str) -> None:
        """A vertical line at a value, with its label beside it."""
        x, _ = self._at(value, self.y.low)
        shift, anchor = (5, "start") if self.x.share(value) < 0.6 else (-5, "end")
        self._marks += [
            f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_FLOOR}"/>',
            _text(label, x + shift, _TOP + 9, anchor, "note"),
        ]

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
        wide, high = _WIDTH - _LEFT - _RIGHT, _FLOOR - _TOP
        return _LEFT + wide * self.x.share(x), _TOP + high * (1 - self.y.share(y))

    def _grid(self) -> str:
        parts = [_flat("axis", _FLOOR)]
        for value in self.x.ticks():
            x, _ = self._at(value, self.y.low)
            parts.append(_text(self.x.show(value), x, _FLOOR + 15, "middle"))
        for value in self.y.ticks():
            _, y = self._at(self.x.low, value)
            parts += [_flat("grid", y), _text(self.y.show(value), _LEFT - 6, y + 4, "end")]
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(_text(self.x.name, middle, _HEIGHT - 8, "middle", "name"))
        parts.append(_text(self.y.name, 2, 12, "start", "name"))
        return "".join(parts)


def _flat(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(words: str, x: float, y: float, anchor: str, kind: str = "tick") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def sketches(samples: Floats) -> list[str]:
    """One small drawing per sample: lines for channels, pictures for maps, bars for vectors.

    The samples come first in the shape. All drawings share one scale per channel, so they compare.
    """
    shape = samples.shape[1:]
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= 8:
        return _pictures(np.moveaxis(samples, 1, -1))
    if len(shape) == 3 and min(shape[1:]) > _MOST_LINES:  # maps of features: their average
        return _pictures(samples.mean(1)[..., None])
    if len(shape) <= 1:
        flat = samples.reshape(len(samples), -1)
        return _bars(flat) if flat.shape[1] <= _MOST_BARS else _lines(flat[:, None, :])
    if len(shape) == 2 and shape[1] <= _MOST_LINES < shape[0]:  # time first, channels last
        samples = np.swapaxes(samples, 1, 2)
    rows = samples.reshape(len(samples), -1, samples.shape[-1])
    return _lines(rows) if rows.shape[1] <= _MOST_LINES else _pictures(rows[..., None])


def _lines(samples: Floats) -> list[str]:
    """One strip for each channel."""
    drawn = samples[:, :, :: -(-samples.shape[2] // _MOST_POINTS)]
    _, channels, points = drawn.shape
    strip = max(_STRIP, _LEAST / channels)
    y = strip * (np.arange(channels)[:, None] + 0.92 - 0.84 * _scale(drawn, (0, 2)))
    x = np.linspace(0, _SKETCH_WIDTH, max(2, points))[:points]

    def polyline(channel: int, heights: Floats) -> str:
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, heights, strict=True))
        return f'<polyline class="c{channel % 6}" points="{path}"/>'

    words = f"{channels} channel{'s' * (channels > 1)}, {samples.shape[2]} values each"
    return [_svg(map(polyline, range(channels), each), strip * channels, words) for each in y]


def _bars(samples: Floats) -> list[str]:
    top, low = max(0.0, float(samples.max())), min(0.0, float(samples.min()))
    scale = _LEAST / ((top - low) or 1.0)
    wide = _SKETCH_WIDTH / samples.shape[1]

    def bar(place: int, value: float) -> str:
        return (
            f'<rect class="c0" x="{wide * (place + 0.1):.1f}" width="{0.8 * wide:.1f}" '
            f'y="{scale * (top - max(0.0, value)):.1f}" '
            f'height="{max(0.3, scale * abs(value)):.1f}"/>'
        )

    places, words = range(samples.shape[1]), f"{samples.shape[1]} values"
    return [_svg(map(bar, places, values), _LEAST, words) for values in samples]


def _svg(marks: Iterable[str], height: float, words: str) -> str:
    return (
        f'<svg class="sketch" viewBox="0 0 {_SKETCH_WIDTH} {height:.0f}" '
        f'preserveAspectRatio="none" role="img"><title>{escape(words)}</title>'
        f"{''.join(marks)}</svg>"
    )


def _pictures(samples: Floats) -> list[str]:
    """Grey or colour, of shape (n, height, width, 1 or 3)."""
    down, across = (-(-size // _MOST_PIXELS) for size in samples.shape[1:3])
    pixels = (255 * _scale(samples[:, ::down, ::across], (0, 1, 2))).round().astype(np.uint8)
    words = f"{samples.shape[1]} × {samples.shape[2]} values"
    return [
        f'<img src="data:image/png;base64,{base64.b64encode(png(each)).decode()}" alt="{words}">'
        for each in pixels
    ]


def _scale(values: Floats, over: tuple[int, ...]) -> Floats:
    """From 0 to 1, with one scale over those dimensions."""
    low, high = values.min(over, keepdims=True), values.max(over, keepdims=True)
    return np.asarray((values - low) / np.where(high > low, high - low, 1.0))


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A PNG file of shape (height, width, 1 for grey or 3 for colour); no library is needed."""
    height, width, channels = pixels.shape
    # Each row starts with the number of its filter: none.
    data = np.insert(pixels.reshape(height, -1), 0, 0, axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")):
        check = struct.pack(">I", zlib.crc32(kind + content))
        file += struct.pack(">I", len(content)) + kind + content + check
    return file
