"""The docs site builds without a warning, is complete, and asks nobody else for anything."""

import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import onesigma
from onesigma.rules import RULES

pytestmark = pytest.mark.xdist_group("site")  # what is slow to make, once

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="pip install '.[docs]'")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


class Loads(HTMLParser):
    """What a page loads by itself, in contrast to what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag != "a":
            self.addresses += [v for k, v in attributes if k in ("src", "href", "srcset") and v]


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert not [a for a in loads.addresses if re.match(r"(\w+:)?//", a)], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text())


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = (site / "api.html").read_text(encoding="utf-8")
    for name in set(onesigma.__all__) - {"__version__"}:
        value = getattr(onesigma, name)
        assert f'id="{value.__module__}.{value.__qualname__}"' in text, name


def test_pages_from_elsewhere_keep_their_links(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="deployed.html#where-it-falls-short"' in text  # docs/deployed.md#… in the README
    assert 'href="rules.html"' in text  # src/onesigma/rules/README.md
    assert 'href="src/' not in text  # not part of the site


def test_a_page_in_the_browser(site: Path, browser) -> None:
    """From the disk, with no request but for its own files, and nothing wider than a phone."""
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        for name in ("index", "supported-ops", "api"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (shade == "rgb(255, 255, 255)") == (scheme == "light")
        page.close()


def test_the_search_works_from_the_disk(site: Path, browser) -> None:
    page = browser.new_page()
    page.goto((site / "quickstart.html").as_uri())
    page.locator("input.md-search__input").click()
    page.keyboard.type("threshold")
    found = page.locator(".md-search-result__link").first
    found.wait_for(state="attached", timeout=20_000)
    assert ".html" in found.get_attribute("href")
    page.close()


def test_the_page_of_ops_is_current() -> None:
    pytest.importorskip("onnx")
    written = (ROOT / "docs" / "supported-ops.md").read_text(encoding="utf-8")
    page = runpy.run_path(str(ROOT / "tools" / "ops_page.py"))["page"]
    assert page() == written, "run: python tools/ops_page.py"


def test_the_page_of_ops_names_every_rule() -> None:
    written = (ROOT / "docs" / "supported-ops.md").read_text(encoding="utf-8")
    for op in RULES:
        short = str(op).removeprefix("aten.").split(".")[0]
        assert f"`{short}`" in written or "getitem" in short
