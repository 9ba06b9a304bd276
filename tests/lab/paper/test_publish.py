"""What is kept of a run: tables, figures and report, and a README half of which is a person's."""

import pytest
from lab.paper.written_trials import result

from onesigma.errors import InputError
from onesigma.lab.paper import pictures, publish, report_html, tables


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
    report_html.write([made], [folder / "speech"], folder / "report-speech.html")
    (folder / "report-speech-quick.html").write_text("a look")
    return folder


def test_tables_figures_and_report_are_copied_and_nothing_else(output, tmp_path):
    written = publish.publish(output, tmp_path / "results")
    found = {path for path in (tmp_path / "results").rglob("*") if path.is_file()}
    assert found == set(written)
    names = {path.name for path in found}
    assert {"README.md", "report-speech.html", "results.json", "goals.csv", "noise.svg"} <= names
    assert not [name for name in names if name.startswith("trial") or name.endswith(".png")]
    assert (tmp_path / "results/speech/goals.csv").read_text() == (
        output / "speech/goals.csv"
    ).read_text()


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


def test_a_report_too_large_for_a_repository_is_left_out(output, tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "MOST_BYTES", 10)
    publish.publish(output, tmp_path)
    assert not (tmp_path / "report-speech.html").exists()


def test_without_a_finished_run_nothing_is_written(tmp_path):
    (tmp_path / "out" / "speech").mkdir(parents=True)
    with pytest.raises(InputError, match="No finished run"):
        publish.publish(tmp_path / "out", tmp_path / "results")
    assert not (tmp_path / "results").exists()
