from pathlib import Path

from onesigma.lab.bench.growth import draw


def test_it_draws_whatever_was_measured(tmp_path: Path) -> None:
    lines = {"moments": [(8, 2.0), (64, 2.4)], "fitted": [(8, 1.6), (64, 0.9)]}
    one = {"moments": [(2, 2.1)], "fitted": [(2, 40.0)]}
    curves = {"filters per layer": lines, "classes": one}
    draw(curves, tmp_path / "scaling.png", title="Time", note="measured nowhere")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
