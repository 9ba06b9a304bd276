"""The whole page: alone, well-formed, and in a real browser light and dark, wide and on a phone."""

import re
from dataclasses import replace

import pytest
import torch
from pages.page_reader import Page
from pages.report.small_reports import COST, HOSTILE, PASSES, labelled, regression

from onesigma.errors import FileError
from onesigma.pages.report.write import report_page, write
from onesigma.report import Candidate, Closeness

WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def text() -> str:
    return report_page(labelled(), cost=COST, command="onesigma report m.safetensors x.npy")


def test_it_is_well_formed_and_alone(text: str) -> None:
    read = Page(text)
    assert all(a.startswith(("#", "data:")) for a in read.addresses)
    assert {a[1:] for a in read.addresses if a.startswith("#")} <= set(read.names)
    assert len(read.names) == len(set(read.names))
    assert not re.findall(r"url\(|@import|<script|<link|http", text)


def test_what_fit_tried_is_told(text: str) -> None:
    assert "What fit tried" not in text
    found = labelled()
    kinds = (Closeness("clean", 0.001, 123.4, 5.6, 0.98), Closeness("noise", 0.01, 45.6, 7.8, 0.9))
    tried = (Candidate("distilled", 1.08, kinds, chosen=True), Candidate("moments", 7.65, kinds))
    report = replace(found.converted.report, candidates=tried)
    fitted = replace(found, converted=found.converted.with_changes(report=report))
    said = " ".join(" ".join(Page(report_page(fitted)).words).split())
    assert "What fit tried" in said
    assert "distilled, chosen 1.08 123 ± 6 46 ± 8 moments 7.65" in said


def test_it_says_how_it_was_made(text: str) -> None:
    said = " ".join(" ".join(Page(text).words).split())
    for needed in (
        "onesigma report m.safetensors x.npy",
        f"torch {torch.__version__}",
        f"{PASSES} passes, seed 0",
        "assumes elements independent of each other",
        "Limits",
        "60 inputs of 2 × 12 values with labels",
    ):
        assert needed in said


def test_the_words_are_ours(text: str) -> None:
    assert "doubt" not in text.lower()


def test_names_are_text(text: str) -> None:
    assert HOSTILE not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "run &amp; jump" in text
    made = report_page(replace(labelled(), name=HOSTILE), command=f"onesigma report '{HOSTILE}'")
    assert HOSTILE not in made
    assert Page(made).words


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(FileError, match="full"):
        write(labelled(), path)
    assert [f.read_text() for f in tmp_path.iterdir()] == ["old"]


@pytest.fixture(scope="module", params=["classes", "numbers"])
def opened(browser, request, tmp_path_factory):
    """The page, and what went wrong in it: messages, errors, dialogs, and further requests."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    write(labelled() if request.param == "classes" else regression(), path, cost=COST)
    page = browser.new_page()
    page.troubles = []
    page.on("console", lambda message: page.troubles.append(message.text))
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("dialog", lambda dialog: page.troubles.append(dialog.message))
    page.on("request", lambda request: page.troubles.append(request.url))
    page.goto(path.as_uri())
    assert page.troubles.pop(0) == path.as_uri()
    yield page
    page.close()


def lightness(page, selector: str, colour: str) -> float:
    """From 0 to 255."""
    found = page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{colour}")
    return sum(map(float, re.findall(r"[\d.]+", found)[:3])) / 3


def test_it_needs_nothing_and_complains_of_nothing(opened) -> None:
    assert all(url.startswith("data:") for url in opened.troubles)
    assert opened.inner_text("h1") == "m.safetensors"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(opened, scheme: str) -> None:
    opened.emulate_media(color_scheme=scheme)
    dark = scheme == "dark"
    assert (lightness(opened, "body", "backgroundColor") < 60) == dark
    assert (lightness(opened, ".card", "backgroundColor") < 60) == dark
    assert (lightness(opened, ".chart .name", "fill") > 180) == dark


def test_a_phone_scrolls_down_only(opened) -> None:
    opened.set_viewport_size(PHONE)
    assert opened.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    # Nothing sticks out, except what lies in a frame that scrolls.
    out = opened.evaluate(
        """() => [...document.querySelectorAll('main *')]
            .filter(e => !e.closest('.scroll, pre, svg') && e.getBoundingClientRect().right > 391)
            .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert out == []
    # The keyboard reaches what scrolls.
    stuck = opened.evaluate(
        """() => [...document.querySelectorAll('.scroll')].filter(
            e => e.scrollWidth > e.clientWidth && e.tabIndex < 0).length"""
    )
    assert stuck == 0


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_what_is_drawn_can_be_seen(opened, size: dict[str, int]) -> None:
    opened.set_viewport_size(size)
    sizes = opened.evaluate(
        """() => [...document.querySelectorAll('svg, .sample img')].map(e => {
            const r = e.getBoundingClientRect(); return Math.min(r.width, r.height)})"""
    )
    assert len(sizes) > 10
    assert min(sizes) > 5


def test_screen_readers_find_names(opened) -> None:
    unnamed = opened.evaluate(
        """() => [...document.querySelectorAll('svg')].filter(
            e => !e.querySelector('title') && !e.hasAttribute('aria-hidden')).length"""
    )
    assert unnamed == 0
    assert opened.evaluate("document.querySelectorAll('table th[scope=col]').length") > 5
    classes = opened.locator("#classes").count()  # none of a regression
    assert opened.get_by_role("region", name="Confusion matrix").count() == classes
    assert opened.get_by_role("heading", level=1).count() == 1
