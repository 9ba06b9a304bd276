"""A figure on disk: PNG and SVG, the same bytes for the same figure, whole or not at all."""

import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure

from onesigma.pages.figure_file import save


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
    with pytest.raises(OSError, match="No space"):
        save(figure(), tmp_path / "a.png")
    assert (tmp_path / "a.svg").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg"]
