"""The pictures of methods side by side: written whole, and showing what they were given."""

import math

import pytest
from matplotlib.figure import Figure

from onesigma.lab.paper.pictures import draw_latency, draw_noise, draw_spotting


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved, to look into."""
    seen = []
    save = Figure.savefig

    def remember(figure, *arguments, **options):
        seen.append(figure)
        return save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", remember)
    return seen


def test_one_bar_per_method_as_long_as_its_time(figures, tmp_path):
    times = {"Ours": 1.5, "BackboneDNN": 1.0, "MCDrop-30": 12.0}
    draw_latency(times, tmp_path / "t.png", "QUICK LOOK")
    (axis,) = figures[0].axes
    assert [bar.get_width() for bar in axis.patches] == list(times.values())
    assert [text.get_text() for text in axis.texts] == ["1.5×", "1.0×", "12.0×"]
    assert any("QUICK LOOK" in text.get_text() for text in figures[0].texts)
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_one_line_per_method_through_its_means(figures, tmp_path):
    curves = {
        "Ours": {"NLL": [(0.3, 0.1), (0.9, math.nan)], "ECE": [(0.1, 0.0), (0.2, 0.0)]},
        "BackboneDNN": {"NLL": [(0.4, 0.1), (2.0, 0.2)], "ECE": [(0.1, 0.0), (0.3, 0.0)]},
    }
    draw_noise(["clean", "10 dB"], curves, tmp_path / "n.png", "")
    nll, ece = figures[0].axes
    lines = [container.lines[0].get_ydata().tolist() for container in nll.containers]
    assert lines == [[0.3, 0.9], [0.4, 2.0]]
    assert ece.get_ylim()[0] == 0
    assert [label.get_text() for label in nll.get_xticklabels()] == ["clean", "10 dB"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["n.png", "n.svg"]


def test_one_panel_per_kind_one_dot_per_score(figures, tmp_path):
    areas = {"Ours, epistemic": [(0.8, 0.02), (0.3, math.nan)], "plain": [(0.7, 0.0), (0.9, 0.0)]}
    draw_spotting(["unknown words", "noise"], areas, tmp_path / "f.png", "")
    panels = figures[0].axes
    assert [axis.get_title(loc="left") for axis in panels] == ["unknown words", "noise"]
    dots = [[c.lines[0].get_xdata()[0] for c in axis.containers] for axis in panels]
    assert dots == [[0.8, 0.7], [0.3, 0.9]]
    assert [text.get_text() for text in panels[1].texts] == ["0.30", "0.90"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == list(areas)
