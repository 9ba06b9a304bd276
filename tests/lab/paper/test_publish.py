"""What is kept of a run: one page, half of which is a person's, and an asset for a release."""

import zipfile

import pytest
from lab.paper.written_trials import result

from onesigma.errors import InputError
from onesigma.lab.paper import pictures, publish, results_page, tables


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """A finished run, as reproduce leaves it."""
    folder = tmp_path_factory.mktemp("out")
    (folder / "speech" / "networks").mkdir(parents=True)
    (folder / "speech" / "trial-0.json").write_text("{}")
    made = result(trials=3)
    tables.write(made, folder / "speech")
    for name in pictures.CAPTIONS:  # empty: drawing has tests of its own, and takes seconds
        for kind in ("png", "svg"):
            (folder / "speech" / f"{name}.{kind}").write_text("<svg></svg>")
    results_page.write([made], [folder / "speech"], folder / "report-speech.html")
    (folder / "report-speech-quick.html").write_text("a look")
    return folder


def test_one_page_and_its_pictures_are_written_and_nothing_else(output, tmp_path):
    written = publish.publish(output, tmp_path / "results")
    found = {path for path in (tmp_path / "results").rglob("*") if path.is_file()}
    assert found == set(written)
    assert {path.name for path in found} == {"README.md", "speech-noise.png", "speech-foreign.png"}
    text = (tmp_path / "results" / "README.md").read_text()
    assert all(f"]({path.name})" in text for path in found if path.suffix == ".png")


def test_the_asset_holds_the_rest_but_no_networks(output, tmp_path):
    publish.main([str(output), str(tmp_path), "--asset", str(tmp_path / "results.zip")])
    with zipfile.ZipFile(tmp_path / "results.zip") as file:
        names = set(file.namelist())
        assert file.read("speech/goals.csv") == (output / "speech" / "goals.csv").read_bytes()
    assert {"report-speech.html", "speech/results.json", "speech/densities-clean.svg"} <= names
    assert not [name for name in names if "trial" in name or "quick" in name]


def test_the_readme_states_the_run_and_the_goals(output, tmp_path):
    publish.main([str(output), str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert "9 / 8 / 7" in text
    assert "2 h 0 min" in text
    assert "`onesigma reproduce speech --data-root DATA --output OUT`" in text
    assert "| foreign | epistemic AUROC 8 points higher | BackboneDNN | 1 of 1 |" in text
    assert "**10 of 10 hold**" in text
    assert "82.12 %" in text  # the paper's own, on its own data


def test_what_a_person_wrote_above_the_marker_stays(output, tmp_path):
    publish.publish(output, tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("# Results\n\nMy reading.\n\n" + publish.MARKER + "\n\nOUTDATED")
    publish.publish(output, tmp_path)
    text = readme.read_text()
    assert text.startswith("# Results\n\nMy reading.\n\n" + publish.MARKER)
    assert "OUTDATED" not in text
    assert text.count(publish.MARKER) == 1


def test_without_a_finished_run_nothing_is_written(tmp_path):
    (tmp_path / "out" / "speech").mkdir(parents=True)
    with pytest.raises(InputError, match="No finished run"):
        publish.publish(tmp_path / "out", tmp_path / "results")
    assert not (tmp_path / "results").exists()
