"""The tables, from rows written by hand."""

import csv
import json

import pytest
from lab.paper.written_trials import result

from onesigma.lab.paper import tables
from onesigma.lab.paper.summary import papers_numbers


def test_the_papers_numbers_stand_only_beside_its_own_data():
    assert papers_numbers("Speech Commands")["accuracy"]["Ours"] == pytest.approx(0.8212)
    assert papers_numbers("MotionSense (stand-in for HHAR)") == {}
    same = list(tables.table_1(result()))
    other = list(tables.table_1(result("DSADS-A (stand-in for Opportunity)")))
    assert [row[0] for row in same if "paper" in row[0]] == [
        "accuracy (the paper's)", "F1 (the paper's)", "NLL (the paper's)",
    ]  # fmt: skip
    assert not [row for row in other if "paper" in row[0]]
    assert same[2][2] == "82.12 %"


def test_files_hold_the_same_figures(tmp_path):
    tables.write(result(quick=True), tmp_path)
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["quick look"] is True
    rows = list(csv.DictReader((tmp_path / "labelled.csv").read_text().splitlines()))
    found = {(r["condition"], r["method"], r["figure"]): r for r in rows}
    assert float(found["clean", "Ours", "NLL"]["mean"]) == pytest.approx(0.35)
    assert found["clean", "Ours", "NLL"]["quick look"] == "True"
    text = (tmp_path / "results.txt").read_text()
    assert text.startswith("QUICK LOOK")
    assert "0.350 ± 0.071" in text
    assert (tmp_path / "table1.csv").read_text().startswith("quick look,")
    goals = list(csv.DictReader((tmp_path / "goals.csv").read_text().splitlines()))
    assert {goal["verdict"] for goal in goals} == {"not judged"}
    assert len(content["goals"]) == len(goals)
