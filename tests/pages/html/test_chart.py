"""Charts: where a mark lies is what its numbers say, and text stays text."""

import re
import xml.etree.ElementTree as ET

import pytest

from onesigma.pages.html.chart import Axis, Chart


def drawn(chart: Chart) -> ET.Element:
    made = chart.figure("A <title>", "and & words", [("ours", "<b>")])
    return ET.fromstring(made)  # XML is stricter than a browser


def numbers(text: str) -> list[float]:
    return [float(n) for n in re.findall(r"-?[\d.]+", text)]


def test_points_lie_where_their_values_are() -> None:
    chart = Chart(Axis(0, 2, "x"), Axis(0, 10, "y")).line([(0, 0), (1, 5), (2, 10)], "ours")
    (line,) = drawn(chart).iter("polyline")
    (x0, y0), (x1, y1), (x2, y2) = zip(*[iter(numbers(line.get("points", "")))] * 2, strict=True)
    assert x0 < x1 < x2
    assert y0 > y1 > y2  # up is less, in SVG
    assert (x1 - x0, y0 - y1) == pytest.approx((x2 - x1, y1 - y2))


def test_bars_are_as_high_as_their_share_and_empty_ones_are_left_out() -> None:
    chart = Chart(Axis(0, 3, "x"), Axis(0, 1, "y")).bars([0, 1, 2, 3], [0.25, 0.0, 0.5], "right")
    heights = [float(bar.get("height", "")) for bar in drawn(chart).iter("rect")]
    assert heights == pytest.approx([heights[0], 2 * heights[0]], rel=0.01)


def test_steps_outline_the_same_bars() -> None:
    x, y = Axis(0, 2, "x"), Axis(0, 1, "y")
    (bar, _) = drawn(Chart(x, y).bars([0, 1, 2], [0.5, 1.0], "right")).iter("rect")
    (line,) = drawn(Chart(x, y).steps([0, 1, 2], [0.5, 1.0], "wrong")).iter("polyline")
    points = numbers(line.get("points", ""))
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


def test_it_says_what_it_shows() -> None:
    figure = drawn(Chart(Axis(0, 1, "share", True), Axis(0, 1, "y")).upright(0.5, "<here>"))
    texts = "".join(figure.itertext())
    for needed in ("A <title>", "and & words", "<b>", "<here>", "share", "20 %"):
        assert needed in texts
    svg = figure.find("svg")
    assert svg is not None
    assert [child.tag for child in svg][:2] == ["title", "desc"]
