"""``onesigma demo`` and ``onesigma reproduce`` from the command line (``bench``: tests/lab)."""

import json
from types import SimpleNamespace

import pytest

import onesigma
from onesigma.cli import main as cli
from onesigma.lab.datasets import watch
from onesigma.lab.demo import figures
from onesigma.lab.demo.playback import FITTED
from onesigma.pages.report.findings import OURS, PLAIN


@pytest.mark.long
def test_demo_prints_figures_and_draws(tmp_path, capsys):
    assert cli.main(["demo", "--quick", "--json", "--output", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out)
    rows = {row["method"]: row for row in result["rows"]}
    plain, bare, ours, sampled = (rows[n] for n in (PLAIN, figures.BARE, OURS, figures.SAMPLING))
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert "What to do next" in (tmp_path / "demo.html").read_text("utf-8")
    assert onesigma.load(tmp_path / "demo.safetensors").abstain is not None
    # The shipped network is better than chance (1/7) by far, whichever way it is used.
    assert min(row["accuracy"] for row in rows.values()) > 0.75
    # The point of the product, far outside the noise of 552 windows: less over-confident than
    # the plain network, at least as good as the sampled reference, and alert to foreign input.
    for row in (bare, ours):
        assert row["nll"] < plain["nll"] - 0.05
        assert row["nll"] < sampled["nll"] + 0.02
        assert row["auroc_foreign"] > plain["auroc_foreign"] + 0.03
    assert set(plain["times"].values()) == {1.0}
    assert "PyTorch" in ours["times"]


@pytest.mark.long
def test_the_demo_does_not_act_on_foreign_and_broken_input(tmp_path, capsys):
    """By the shipped model, which is what ``live --demo`` shows."""
    ready, kinds = onesigma.load(FITTED), figures.make_kinds(watch.load())
    acted = {kind: float(ready.predict(x).act.double().mean()) for kind, x in kinds.items()}
    assert acted.pop(figures.KNOWN) > 0.3
    assert max(acted.values()) < 0.05
    said = ready.explain(ready.predict(kinds[figures.DEAD][:1]))
    assert said[0].startswith("channel acc z: ")
    assert said[0].endswith("flat line?")


def test_demo_prints_a_table(tmp_path, monkeypatch, capsys):
    row = figures.Row(OURS, 0.5, 0.4, 0.3, 0.2, {"PyTorch": 1.25})
    acts = figures.Acts(OURS, figures.DEAD, 0.125, 0.0625, "broken input: channel acc z")
    skipped = (("ONNX Runtime", "not installed (onnxruntime)"),)
    result = figures.Result((row,), (acts,), 7, skipped)
    found = SimpleNamespace(converted=None)
    monkeypatch.setattr(figures, "run", lambda *_, **__: (result, found, "untimed"))
    monkeypatch.setattr("onesigma.pages.report.write.write", lambda *_, **__: None)
    monkeypatch.setattr("onesigma.storage.model_file.save", lambda *_, **__: None)
    assert cli.main(["demo", "--output", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    for words in ("50.0 %", "1.25×", "12 %", "6.2 %", "channel acc z", "not installed"):
        assert words in captured.out
    assert "demo.html" in captured.err
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_reproduce_prints_its_results_as_json(tmp_path, monkeypatch, capsys):
    report, results = tmp_path / "report.html", [{"task": "speech"}]
    monkeypatch.setattr(
        "onesigma.lab.paper.reproduce.reproduce", lambda *_, **__: (report, results)
    )
    assert cli.main(["reproduce", "speech", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(report), "results": results}
