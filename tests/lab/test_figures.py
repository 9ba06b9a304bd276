"""Figures on disk: PNG and SVG, the same bytes for the same figure, whole or not at all."""

import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure

from onesigma.calibration.comparison import LayerAudit
from onesigma.errors import FileError
from onesigma.lab.figures import draw_audit, save


def figure():
    drawn = Figure(figsize=(2, 1))
    drawn.subplots().plot([0, 1, 0])
    return drawn


def test_two_files_that_are_the_same_every_time(tmp_path):
    for name in ("a", "b"):
        save(figure(), tmp_path / f"{name}.png")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]
    for kind in ("png", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert ET.parse(tmp_path / "a.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_full_disk_leaves_the_old_files(tmp_path, monkeypatch):
    save(figure(), tmp_path / "a.png")
    before = (tmp_path / "a.svg").read_bytes()

    def fail(self, target, **_):
        target.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(FileError, match="No space"):
        save(figure(), tmp_path / "a.png")
    assert (tmp_path / "a.svg").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg"]


def test_an_audit_is_drawn_layer_by_layer(tmp_path):
    layers = [
        LayerAudit(name, name, "aten.linear", 0.1, ratio, 0.5 * ratio, 1.5 * ratio, 0.9)
        for name, ratio in (("first", 0.8), ("second", 1.2))
    ]
    draw_audit(layers, tmp_path / "audit.png", mean_noise=0.05)
    text = (tmp_path / "audit.svg").read_text()
    assert "<!-- first  linear -->" in text  # matplotlib draws text as paths, and says what it is
    assert "dashed: noise of the passes" in text
    with pytest.raises(ValueError, match="the audit is empty"):
        draw_audit([], tmp_path / "none.png")
