import struct

import numpy as np
import pytest
from onesigma.lab.datasets.schedule import Period
from onesigma.lab.plots.augment import Panel, noises

WORDS = {"title": "t", "when": "w", "footnote": "f"}


def panel(lines=3, **changes):
    before = np.random.default_rng(0).normal(size=(100, lines))
    return Panel("jitter", "what", before, before + 0.1, 50.0)._replace(**changes)


def png_height(path):
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[-8:-4] == b"IEND"
    return struct.unpack(">II", content[16:24])[1]


def test_two_panels_to_a_row_and_nothing_else_in_the_folder(tmp_path):
    path = tmp_path / "noise.png"
    periods = [Period(10.0, 40.0, "jitter"), Period(200.0, 300.0, "crop")]
    heights = []
    for count in (1, 2, 3):
        sound = panel(1, clean_on_top=True)
        noises([panel()] * (count - 1) + [sound], periods, 600.0, path, **WORDS)
        heights.append(png_height(path))
    assert heights[0] == heights[1] < heights[2]
    assert sorted(tmp_path.iterdir()) == [path, path.with_suffix(".svg")]


def test_a_stream_of_many_lines_that_stands_still_is_drawn(tmp_path):
    still = np.zeros((50, 9))
    noises([panel(before=still, after=still)], [], 60.0, tmp_path / "n.png", **WORDS)
    assert png_height(tmp_path / "n.png") > 300


def test_nothing_to_draw_is_refused(tmp_path):
    with pytest.raises(ValueError, match="No noise"):
        noises([], [], 60.0, tmp_path / "n.png", **WORDS)
