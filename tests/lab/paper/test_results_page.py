"""The report: well-formed, in one file, and honest about whose data it shows."""

import re

import pytest
from lab.paper.written_trials import result
from lab.quick_figures import coarse_figures
from pages.page_reader import Page

from onesigma.lab.paper import pictures, results_page


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """One of the paper's data, and one of a stand-in whose name needs escaping."""
    folder = tmp_path_factory.mktemp("report")
    with coarse_figures():
        pictures.draw(result(trials=3), folder)
    made = {}
    for name, data in (("same", "Speech Commands"), ("other", "A & B (stand-in for HHAR)")):
        each = result(data, trials=3)
        results_page.write([each], [folder], folder / f"{name}.html")
        made[name] = (folder / f"{name}.html").read_text()
    return made


def test_nothing_is_fetched_and_no_two_things_share_a_name(reports):
    for text in reports.values():
        page = Page(text)
        assert all(address.startswith("#") for address in page.addresses)
        assert {address[1:] for address in page.addresses} <= set(page.names)
        assert not re.findall(r"url\((?!#)|@import|<script", text)
        assert len(page.names) == len(set(page.names))


def test_every_figure_is_drawn_in_the_colours_of_the_page(reports):
    text = reports["same"]
    assert text.count("<figure>") == len(pictures.CAPTIONS)
    drawn = text[text.index("<svg") :]
    assert "#ffffff" not in drawn
    assert "var(--blue)" in drawn


def test_the_papers_numbers_stand_beside_its_own_data_only(reports):
    assert "82.12 %" in reports["same"]
    assert "the paper’s dataset" in reports["same"]
    assert "82.12 %" not in reports["other"]
    assert "A &amp; B (stand-in for HHAR): not the paper’s data" in reports["other"]


def test_it_says_how_it_was_made(reports):
    words = " ".join(Page(reports["same"]).words)
    for needed in (
        "onesigma reproduce speech --data-root DATA --output OUT",
        "2 h 0 min",
        "15, trained for 25 min",
        "9 train, 8 validation, 7 test",
        "10 of 10 hold",
        "network i has seed i",
    ):
        assert needed in words


def test_the_best_of_a_row_is_bold(reports):
    row = reports["same"].split('<th scope="row">NLL</th>')[1].split("</tr>")[0]
    assert re.findall(r'<td class="([^"]*best)">([\d.]+)', row) == [("ours best", "0.400")]


@pytest.mark.parametrize(
    ("changes", "tail"),
    [
        ({}, ""),
        ({"quick": True, "trials": 1}, " --quick"),
        ({"trials": 5, "seed": 7}, " --trials 5 --seed 7"),
    ],
)
def test_the_command_names_what_was_asked_for(changes, tail):
    made = result(trials=3)
    made["plan"] |= changes
    wanted = "onesigma reproduce speech --data-root DATA --output OUT" + tail
    assert results_page.command(made) == wanted


def test_times_in_words():
    assert results_page.duration(29) == "0 min"
    assert results_page.duration(3599) == "1 h 0 min"
    assert results_page.duration(150) == "2 min"
