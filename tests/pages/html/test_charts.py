"""Drawings: where a mark lies is what its numbers say, and text stays text."""

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from onesigma.pages.html.charts import Axis, Chart, png, sketches


def draw(x: Axis, y: Axis, kind: str, *arguments: object) -> ET.Element:
    """A chart with one mark; XML is stricter than a browser."""
    chart = Chart(x, y)
    getattr(chart, kind)(*arguments)
    return ET.fromstring(chart.figure("A <title>", "and & words", [("ours", "<b>")]))


def numbers(text: str | None) -> list[float]:
    return [float(n) for n in re.findall(r"-?[\d.]+", text or "")]


def test_points_lie_where_their_values_are() -> None:
    points = [(0, 0), (1, 5), (2, 10)]
    (line,) = draw(Axis(0, 2, "x"), Axis(0, 10, "y"), "line", points, "ours").iter("polyline")
    (x0, y0), (x1, y1), (x2, y2) = zip(*[iter(numbers(line.get("points")))] * 2, strict=True)
    assert x0 < x1 < x2
    assert y0 > y1 > y2  # up is less, in SVG
    assert (x1 - x0, y0 - y1) == pytest.approx((x2 - x1, y1 - y2))


def test_bars_are_as_high_as_their_share_and_empty_ones_are_left_out() -> None:
    edges, heights = [0, 1, 2, 3], [0.25, 0.0, 0.5]
    made = draw(Axis(0, 3, "x"), Axis(0, 1, "y"), "bars", edges, heights, "right")
    drawn = [float(bar.get("height", "")) for bar in made.iter("rect")]
    assert drawn == pytest.approx([drawn[0], 2 * drawn[0]], rel=0.01)


def test_steps_outline_the_same_bars() -> None:
    axes, shape = (Axis(0, 2, "x"), Axis(0, 1, "y")), ([0, 1, 2], [0.5, 1.0])
    (bar, _) = draw(*axes, "bars", *shape, "right").iter("rect")
    (line,) = draw(*axes, "steps", *shape, "wrong").iter("polyline")
    points = numbers(line.get("points"))
    assert points[3] == float(bar.get("y", ""))
    assert points[1] == points[-1] == pytest.approx(points[3] + float(bar.get("height", "")))


def test_values_beyond_the_axes_stay_in_the_picture() -> None:
    assert Axis(0, 1, "").share(7) == 1
    assert Axis(0, 1, "").share(-7) == 0


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 1, ""), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis(0, 1.95, ""), [0, 0.5, 1, 1.5]),
        (Axis(0, 0.034, ""), [0, 0.01, 0.02, 0.03]),
        (Axis(0, 120, ""), [0, 25, 50, 75, 100]),
    ],
)
def test_ticks_are_round(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)


def test_a_chart_says_what_it_shows() -> None:
    figure = draw(Axis(0, 1, "share", True), Axis(0, 1, "y"), "upright", 0.5, "<here>")
    texts = "".join(figure.itertext())
    for needed in ("A <title>", "and & words", "<b>", "<here>", "share", "20 %"):
        assert needed in texts
    svg = figure.find("svg")
    assert svg is not None
    assert [child.tag for child in svg][:2] == ["title", "desc"]


@pytest.mark.parametrize(
    ("shape", "kind", "count"),
    [
        ((6, 128), "polyline", 6),
        ((128, 6), "polyline", 6),  # time first
        ((2, 3, 250), "polyline", 6),
        ((1, 100), "polyline", 1),
        ((500,), "polyline", 1),
        ((12,), "rect", 12),
        ((), "rect", 1),
        ((1, 20, 20), "img", 1),
        ((3, 300, 300), "img", 1),
        ((16, 20, 20), "img", 1),
        ((40, 50), "img", 1),  # a spectrogram
    ],
)
def test_kinds_of_sketches(shape: tuple[int, ...], kind: str, count: int) -> None:
    made = sketches(np.random.default_rng(0).normal(size=(2, *shape)))
    assert len(made) == 2
    for drawing in made:
        assert len(re.findall(f"<{kind} ", drawing)) == count
        assert re.search(r"<title>\d|alt=\"\d", drawing)
        assert len(drawing) < 60_000
        ET.fromstring(drawing.replace(">", "/>", 1) if kind == "img" else drawing)


def test_sketches_share_their_scale() -> None:
    quiet, loud = sketches(np.stack([np.full(4, 1.0), np.full(4, 2.0)]))
    heights = [float(re.findall(r'height="([\d.]+)"', each)[0]) for each in (quiet, loud)]
    assert heights[1] == pytest.approx(2 * heights[0])


def test_constant_inputs_are_drawn() -> None:
    (flat,) = sketches(np.zeros((1, 2, 30)))
    assert "nan" not in flat
    (counts,) = sketches(np.ones((1, 5)))
    assert counts.count("<rect") == 5


@pytest.mark.parametrize("channels", [1, 3], ids=["grey", "colour"])
def test_another_program_reads_the_pictures(channels: int) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow comes with matplotlib")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 2, channels), dtype=np.uint8)
    with image.open(io.BytesIO(png(pixels))) as read:
        assert np.array_equal(np.asarray(read).reshape(pixels.shape), pixels)
