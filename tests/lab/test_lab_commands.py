"""``onesigma demo`` and ``onesigma reproduce`` from the command line (``bench``: tests/lab)."""

import json
from types import SimpleNamespace

import pytest

from onesigma.cli import main as cli
from onesigma.lab.demo import figures


@pytest.mark.long
def test_demo_prints_figures_and_draws(tmp_path, capsys):
    assert cli.main(["demo", "--quick", "--json", "--output", str(tmp_path)]) == 0
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    plain, one_pass, sampled = (rows[n] for n in ("plain network", "one pass", "MC dropout, 30"))
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    # The shipped network is better than chance (1/7) by far, whichever way it is used.
    assert min(row["accuracy"] for row in rows.values()) > 0.75
    # The point of the product, far outside the noise of 552 windows: less over-confident than
    # the plain network, at least as good as the sampled reference, and alert to foreign input.
    assert one_pass["nll"] < plain["nll"] - 0.05
    assert one_pass["nll"] < sampled["nll"] + 0.02
    assert one_pass["auroc_walk"] > plain["auroc_walk"] + 0.03
    for row in rows.values():
        assert row["entropy_wrong"] > row["entropy_right"]
    assert plain["time_ratio"] == 1


def test_demo_prints_a_table(tmp_path, monkeypatch, capsys):
    result = figures.Result((figures.Row("one pass", *(0.5,) * 10),), 7, [])
    monkeypatch.setattr(figures, "run", lambda *_, **__: (result, SimpleNamespace(report="REPORT")))
    monkeypatch.setattr(figures, "draw", lambda _, folder: folder / "demo.png")
    assert cli.main(["demo", "--output", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("REPORT")
    assert "one pass" in captured.out
    assert "50.0 %" in captured.out
    assert "demo.png" in captured.err


def test_reproduce_prints_its_results_as_json(tmp_path, monkeypatch, capsys):
    report, results = tmp_path / "report.html", [{"task": "speech"}]
    monkeypatch.setattr(
        "onesigma.lab.paper.reproduce.reproduce", lambda *_, **__: (report, results)
    )
    assert cli.main(["reproduce", "speech", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(report), "results": results}
