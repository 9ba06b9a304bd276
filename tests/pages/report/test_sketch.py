"""Drawings of inputs: the right kind for each shape, on one scale."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from onesigma.pages.report.sketch import sketches


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
def test_kinds(shape: tuple[int, ...], kind: str, count: int) -> None:
    samples = np.random.default_rng(0).normal(size=(2, *shape))
    made = sketches(samples)
    assert len(made) == 2
    for drawing in made:
        assert len(re.findall(f"<{kind} ", drawing)) == count
        assert re.search(r"<title>\d|alt=\"\d", drawing)
        assert len(drawing) < 60_000
        ET.fromstring(drawing.replace(">", "/>", 1) if kind == "img" else drawing)


def test_samples_share_their_scale() -> None:
    quiet, loud = sketches(np.stack([np.full(4, 1.0), np.full(4, 2.0)]))
    heights = [float(re.findall(r'height="([\d.]+)"', each)[0]) for each in (quiet, loud)]
    assert heights[1] == pytest.approx(2 * heights[0])


def test_constant_and_integer_inputs_are_drawn() -> None:
    (flat,) = sketches(np.zeros((1, 2, 30)))
    assert "nan" not in flat
    (counts,) = sketches(np.ones((1, 5), dtype=np.int64).astype(float))
    assert counts.count("<rect") == 5
