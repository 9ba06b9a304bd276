"""Inputs as small drawings: lines for channels, pictures for maps, bars for vectors.

All drawings of one call share their scale, channel by channel, so that they compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from onesigma.pages.html.png import data_uri

Floats = npt.NDArray[np.float64]
_WIDTH, _STRIP, _LEAST = 240, 22, 88
_MOST_LINES, _MOST_BARS, _MOST_POINTS, _MOST_PIXELS = 12, 64, 240, 128


def sketches(samples: Floats) -> list[str]:
    """One drawing for each sample; the samples come first in the shape."""
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
    step = -(-samples.shape[2] // _MOST_POINTS)
    count, channels, points = samples[:, :, ::step].shape
    strip = max(_STRIP, _LEAST / channels)
    shares = 0.08 + 0.84 * _scaled(samples[:, :, ::step], (0, 2))
    y = strip * (np.arange(channels)[:, None] + 1 - shares)
    x = np.linspace(0, _WIDTH, max(2, points))[:points]
    words = f"{channels} channel{'s' * (channels > 1)}, {samples.shape[2]} values each"
    return [
        _svg(
            "".join(
                f'<polyline class="c{channel % 6}" points="{_path(x, y[index, channel])}"/>'
                for channel in range(channels)
            ),
            strip * channels,
            words,
        )
        for index in range(count)
    ]


def _bars(samples: Floats) -> list[str]:
    top, low = max(0.0, float(samples.max())), min(0.0, float(samples.min()))
    scale = _LEAST / ((top - low) or 1.0)
    wide = _WIDTH / samples.shape[1]
    drawn = []
    for values in samples:
        boxes = (
            f'<rect class="c0" x="{wide * i + 0.1 * wide:.1f}" width="{0.8 * wide:.1f}" '
            f'y="{scale * (top - max(0.0, v)):.1f}" height="{max(0.3, scale * abs(v)):.1f}"/>'
            for i, v in enumerate(values)
        )
        drawn.append(_svg("".join(boxes), _LEAST, f"{samples.shape[1]} values"))
    return drawn


def _pictures(samples: Floats) -> list[str]:
    """Grey or colour, of shape (n, height, width, 1 or 3)."""
    down, across = (-(-size // _MOST_PIXELS) for size in samples.shape[1:3])
    pixels = (255 * _scaled(samples[:, ::down, ::across], (0, 1, 2))).round().astype(np.uint8)
    words = f"{samples.shape[1]} × {samples.shape[2]} values"
    return [
        f'<img src="{data_uri(each[..., 0] if each.shape[-1] == 1 else each)}" alt="{words}">'
        for each in pixels
    ]


def _scaled(values: Floats, over: Sequence[int]) -> Floats:
    """From 0 to 1, with one scale over those dimensions."""
    low, high = values.min(tuple(over), keepdims=True), values.max(tuple(over), keepdims=True)
    return np.asarray((values - low) / np.where(high > low, high - low, 1.0))


def _path(x: Floats, y: Floats) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _svg(content: str, height: float, words: str) -> str:
    return (
        f'<svg class="sketch" viewBox="0 0 {_WIDTH} {height:.0f}" preserveAspectRatio="none" '
        f'role="img"><title>{escape(words)}</title>{content}</svg>'
    )
