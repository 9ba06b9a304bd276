import sys
from pathlib import Path

import numpy as np
import pytest
from onesigma.lab.datasets.augment import NOISES
from onesigma.lab.datasets.recording import Recording


@pytest.fixture
def noise(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import noise

    yield noise
    sys.modules.pop("noise", None)


def recordings():
    signal = np.random.default_rng(0).normal(size=(700, 6)).astype(np.float32)
    return [Recording(signal, 50.0, np.zeros(700, dtype=int), "1", ((0, 1, 2), (3, 4, 5)))] * 3


def test_every_noise_is_shown_twice_the_second_time_stronger(noise):
    panels = noise.motion_panels(recordings())
    assert [panel.name for panel in panels[::2]] == list(NOISES)
    assert [panel.name for panel in panels[1::2]] == [""] * len(NOISES)
    for weak, strong in zip(panels[::2], panels[1::2], strict=True):
        assert np.array_equal(weak.before, strong.before)
        assert np.abs(weak.after - weak.before).mean() > 0
    scaled = panels[2 * list(NOISES).index("scaling") :][:2]
    factors = [np.log(p.after[0] / p.before[0]) for p in scaled]
    assert factors[1] == pytest.approx(2 * factors[0])


def test_the_picture_is_written_without_the_prepared_datasets_too(noise, tmp_path, monkeypatch):
    monkeypatch.setattr(noise, "watch_recordings", recordings)
    path = tmp_path / "noise.png"
    monkeypatch.setattr(sys, "argv", ["noise.py", "--out", str(path), "--data-root", str(tmp_path)])
    noise.main()
    assert path.read_bytes()[:4] == b"\x89PNG"
