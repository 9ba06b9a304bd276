import struct
import sys

import numpy as np
import pytest
from lab.quick_figures import coarse  # noqa: F401

from onesigma.lab.bench import noise_picture
from onesigma.lab.bench.noise_picture import Panel, draw
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.motion import Recording
from onesigma.lab.datasets.noise import NOISES, Period


def panel(lines=3, **changes):
    before = np.random.default_rng(0).normal(size=(100, lines))
    return Panel("jitter", "what", before, before + 0.1, 50.0)._replace(**changes)


def png_height(path):
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[-8:-4] == b"IEND"
    return struct.unpack(">II", content[16:24])[1]


@pytest.mark.usefixtures("coarse")
def test_two_panels_to_a_row_and_nothing_else_in_the_folder(tmp_path):
    path = tmp_path / "noise.png"
    periods = [Period(10.0, 40.0, "jitter"), Period(200.0, 300.0, "crop")]
    heights = []
    for count in (1, 2, 3):
        sound = panel(1, clean_on_top=True)
        draw([panel()] * (count - 1) + [sound], periods, 600.0, path)
        heights.append(png_height(path))
    assert heights[0] == heights[1] < heights[2]
    assert sorted(tmp_path.iterdir()) == [path, path.with_suffix(".svg")]


def test_a_stream_of_many_lines_that_stands_still_is_drawn(tmp_path):
    still = np.zeros((50, 9))
    draw([panel(before=still, after=still)], [], 60.0, tmp_path / "n.png")
    assert png_height(tmp_path / "n.png") > 300


def test_nothing_to_draw_is_refused(tmp_path):
    with pytest.raises(ValueError, match="No noise"):
        draw([], [], 60.0, tmp_path / "n.png")


def recordings():
    signal = np.random.default_rng(0).normal(size=(700, 6)).astype(np.float32)
    return [Recording(signal, 50.0, np.zeros(700, dtype=int), "1", ((0, 1, 2), (3, 4, 5)))] * 3


def test_every_noise_is_shown_twice_the_second_time_stronger():
    panels = noise_picture.motion_panels(recordings())
    assert [panel.name for panel in panels[::2]] == list(NOISES)
    assert [panel.name for panel in panels[1::2]] == [""] * len(NOISES)
    for weak, strong in zip(panels[::2], panels[1::2], strict=True):
        assert np.array_equal(weak.before, strong.before)
        assert np.abs(weak.after - weak.before).mean() > 0
    scaled = panels[2 * list(NOISES).index("scaling") :][:2]
    factors = [np.log(p.after[0] / p.before[0]) for p in scaled]
    assert factors[1] == pytest.approx(2 * factors[0])


@pytest.mark.usefixtures("coarse")
def test_the_picture_is_written_without_the_prepared_datasets_too(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "recordings", recordings)
    path = tmp_path / "noise.png"
    monkeypatch.setattr(sys, "argv", ["noise.py", "--out", str(path), "--data-root", str(tmp_path)])
    noise_picture.main()
    assert path.read_bytes()[:4] == b"\x89PNG"
