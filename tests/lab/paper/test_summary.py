"""Means over trials and tables, from rows written by hand."""

import csv
import json
import math

import pytest
from lab.paper.written_trials import result, trial

from onesigma.lab.paper import paper, summary, tables
from onesigma.lab.paper.methods import COLUMNS
from onesigma.lab.paper.summary import Spread


def test_mean_and_sample_deviation():
    spread = Spread.of([1.0, None, 3.0])
    assert spread == (2.0, pytest.approx(math.sqrt(2)), 2)
    assert math.isnan(Spread.of([1.0]).std)
    assert math.isnan(Spread.of([None]).mean)
    table = summary.labelled(result())["clean"]
    assert table["BackboneDNN"]["NLL"].mean == pytest.approx(0.55)
    assert list(table) == list(COLUMNS)


def test_latency_is_relative_to_the_plain_network():
    assert summary.slower(result())["Ours"][0].mean == 2
    assert summary.slower(result())["BackboneDNN"][0].mean == 1


def test_a_held_out_activity_comes_first_and_brings_no_other_input():
    held = trial(0, 0)
    held["foreign"] = [row | {"input": "jog"} for row in held["foreign"]] + held["foreign"]
    found = summary.foreign(result() | {"held out": {"activity": "jog", "trials": [held]}})
    kinds = [row.input for row in found]
    assert kinds == ["activity never trained on: jog"] * 5 + ["unknown words"] * 5
    assert found[0].figures["auroc"].trials == 1
    assert found[5].figures["auroc"].trials == 2


def test_the_papers_numbers_stand_only_beside_its_own_data():
    assert paper.numbers("Speech Commands")["accuracy"]["Ours"] == pytest.approx(0.8212)
    assert paper.numbers("MotionSense (stand-in for HHAR)") == {}
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
