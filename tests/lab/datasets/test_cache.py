import sys
from pathlib import Path

import pytest
from onesigma.lab.datasets.cache import cache_folder


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("ONESIGMA_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", "/home/me/.cache/onesigma"),
        ("darwin", "/home/me/Library/Caches/onesigma"),
        ("win32", "/home/me/AppData/Local/onesigma/Cache"),
    ],
)
def test_each_system_has_its_place(monkeypatch, platform, expected):
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_folder() == Path(expected)


def test_the_environment_goes_first(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "onesigma"
    monkeypatch.setenv("ONESIGMA_CACHE", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
