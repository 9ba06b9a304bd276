"""Means over trials, goals and tables, from rows written by hand."""

import copy
import csv
import json
import math

import pytest

from onesigma.experiments import paper, summary, tables
from onesigma.experiments.methods import COLUMNS
from onesigma.experiments.summary import Spread

FIGURES = (
    *tables.TABLE_1, *tables.SHOWN, *tables.TEMPERED, "entropy right", "entropy wrong",
    "confidence right", "confidence wrong",
)  # fmt: skip


def trial(number, better):
    """Ours better than all others by `better` in NLL and ECE; the rest are alike."""

    def value(method, figure):
        good = better if method == "Ours" and figure in ("NLL", "ECE") else 0.0
        return 0.5 + 0.1 * number - good

    return {
        "trial": number,
        "labelled": [
            {"method": m, "condition": c} | {f: value(m, f) for f in FIGURES}
            for m in COLUMNS
            for c in ("clean", "noise, 10 dB")
        ],
        "foreign": [
            {"method": m, "input": "unknown words", "score": s, "auroc": a, "aupr": a, "fpr95": a}
            for m, s, a in (
                ("Ours", "epistemic", 0.80), ("BackboneDNN", "entropy", 0.70),
                ("BackboneDNN", "energy", 0.71),
            )
        ],
        "milliseconds": {m: 2.0 if m == "Ours" else 1.0 for m in COLUMNS},
        "densities": {},
    }  # fmt: skip


def result(data="Speech Commands", better=0.2, quick=False):
    return {
        "task": "speech",
        "data": data,
        "classes": ["yes", "no"],
        "sizes": {"train": 9, "validation": 8, "test": 7},
        "conditions": {"clean": 7, "noise, 10 dB": 7},
        "foreign": {"unknown words": 5},
        "plan": {"quick": quick, "trials": 2, "members": 12},
        "trials": [trial(0, better), trial(1, better)],
        "held out": None,
        "about": {},
    }


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


def test_goals_hold_where_ours_is_better_and_say_so_where_not():
    assert all(goal.met for goal in summary.goals(result()))
    worse = {(g.where, g.text): g.met for g in summary.goals(result(better=-0.2))}
    assert not worse["noise, 10 dB", "NLL below BackboneDNN"]
    assert not worse["noise, 10 dB", "ECE within one standard error of MCDrop-30, or better"]
    assert worse["clean", "accuracy not worse than BackboneDNN"]


def test_nine_points_over_the_best_plain_score_are_enough_and_seven_are_not():
    near = copy.deepcopy(result())
    for each in near["trials"]:
        each["foreign"][0]["auroc"] = 0.78
    assert summary.goals(result())[-1].met
    assert not summary.goals(near)[-1].met
    assert summary.goals(near)[-1].numbers == "0.780 against 0.710 (energy)"


def test_a_held_out_activity_comes_first_and_brings_no_other_input():
    held = trial(0, 0)
    held["foreign"] = [row | {"input": "jog"} for row in held["foreign"]] + held["foreign"]
    found = summary.foreign(result() | {"held out": {"activity": "jog", "trials": [held]}})
    kinds = [row.input for row in found]
    assert kinds == ["activity never trained on: jog"] * 3 + ["unknown words"] * 3
    assert found[0].figures["auroc"].trials == 1
    assert found[3].figures["auroc"].trials == 2


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
