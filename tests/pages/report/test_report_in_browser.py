"""The page in a real browser: light and dark, wide and on a phone, alone."""

import re

import pytest
from pages.report.small_reports import labelled, regression

from onesigma.pages.report.write import write

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module", params=["classes", "numbers"])
def address(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write(labelled() if request.param == "classes" else regression(), path)
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """Opens the page and gathers what goes wrong, and every request but the first."""
    pages = []

    def visit(**options):
        page = browser.new_page(**options)
        pages.append(page)
        page.troubles = []
        page.on("console", lambda message: page.troubles.append(message.text))
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("dialog", lambda dialog: page.troubles.append(dialog.message))
        page.on("request", lambda request: page.troubles.append(request.url))
        page.goto(address)
        assert page.troubles.pop(0) == address
        return page

    yield visit
    for page in pages:
        page.close()


def lightness(page, selector: str) -> float:
    """Of the background, 0 to 255."""
    colour = page.evaluate(
        f"getComputedStyle(document.querySelector('{selector}')).backgroundColor"
    )
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


def nothing_but_pictures_in_it(page) -> bool:
    return all(url.startswith("data:") for url in page.troubles)


def test_it_needs_nothing_and_complains_of_nothing(opened) -> None:
    page = opened()
    assert nothing_but_pictures_in_it(page)
    assert page.inner_text("h1") == "m.safetensors"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(opened, scheme: str) -> None:
    page = opened(color_scheme=scheme)
    dark = scheme == "dark"
    assert (lightness(page, "body") < 60) == dark
    assert (lightness(page, ".card") < 60) == dark
    ink = page.evaluate("getComputedStyle(document.querySelector('.chart .name')).fill")
    assert (sum(map(int, re.findall(r"\d+", ink))) / 3 > 180) == dark


def test_a_phone_scrolls_down_only(opened) -> None:
    page = opened(viewport=PHONE, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    # Nothing sticks out, but for what lies in a frame that scrolls.
    out = page.evaluate(
        """() => [...document.querySelectorAll('main *')]
            .filter(e => !e.closest('.scroll, pre, svg') && e.getBoundingClientRect().right > 391)
            .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert out == []


def test_what_is_drawn_can_be_seen(opened) -> None:
    page = opened(viewport=PHONE)
    sizes = page.evaluate(
        """() => [...document.querySelectorAll('svg, .sample img')].map(e => {
            const r = e.getBoundingClientRect(); return Math.min(r.width, r.height)})"""
    )
    assert len(sizes) > 10
    assert min(sizes) > 5


def test_screen_readers_find_names(opened) -> None:
    page = opened()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('svg')].filter(
            e => !e.querySelector('title') && !e.hasAttribute('aria-hidden')).length"""
    )
    assert unnamed == 0
    assert page.evaluate("document.querySelectorAll('table th[scope=col]').length") > 5
    assert page.get_by_role("region", name="Diagram of the graph").count() == 1
    assert page.get_by_role("heading", level=1).count() == 1


def test_the_keyboard_reaches_what_scrolls(opened) -> None:
    page = opened(viewport=PHONE)
    stuck = page.evaluate(
        """() => [...document.querySelectorAll('.scroll')].filter(
            e => e.scrollWidth > e.clientWidth && e.tabIndex < 0).length"""
    )
    assert stuck == 0
