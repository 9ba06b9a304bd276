import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

# Two xdist workers on two cores: more threads per worker only get in each other's way.
torch.set_num_threads(1)


# Whole files that take many seconds each: emulators, browsers, fuzzing, trainings, examples.
LONG = (
    *("examples/", "fuzz/", "lab/bench/", "lab/test_c_verify", "lab/paper/test_reproduce"),
    *("test_site", "pages/live/test_live_page", "importers/test_keras", "fleet/test_engines"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(LONG):
            item.add_marker(pytest.mark.long)


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
