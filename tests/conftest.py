import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

# Two xdist workers on two cores: more threads per worker only get in each other's way, most of all
# those of the programs that tests start, which spin while they wait.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


# Whole files that take many seconds each: emulators, browsers, fuzzing, trainings, examples.
LONG = (
    *("examples/", "fuzz/", "lab/bench/", "lab/test_c_verify", "lab/paper/test_reproduce"),
    *("test_site", "pages/live/test_live_page", "importers/test_keras", "fleet/test_engines"),
)
# Files of many tests that share nothing. Of any other file, one worker runs all tests.
SPREAD = ("rules/", "truth/", "fuzz/", "graph/test_expand", "graph/test_capture")
HERE = Path(__file__).parent


def place(path: Path) -> str:
    return path.relative_to(HERE).as_posix()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where all of a file would be deselected, it is not even imported: some take seconds."""
    quick = config.option.markexpr == "not long" and collection_path.suffix == ".py"
    return True if quick and place(collection_path).startswith(LONG) else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        file = place(item.path)
        if file.startswith(LONG):
            item.add_marker(pytest.mark.long)
        # So that what is slow to make for several tests is made once.
        if not file.startswith(SPREAD) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(file))


def pytest_collection_finish() -> None:
    """What is imported stays: Python need not look through half a million objects for garbage."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# Not of the whole session: while it is open, an event loop runs and asyncio.run is refused.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser without a screen: ``browser.new_page(color_scheme="dark", viewport=…)``."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    quiet = ("first-run", "sandbox")
    off = ("background-networking", "component-update", "gpu", "sync")
    flags = [*(f"--no-{name}" for name in quiet), *(f"--disable-{name}" for name in off)]
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()
