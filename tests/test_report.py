"""The report: sites, rates, and what is exact, on networks small enough to know by hand."""

import json
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onesigma
from onesigma import Report

X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


class ByHand(nn.Module):
    """Each op's status is known; the residual's two branches share the first dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop1 = nn.Linear(6, 6), nn.Dropout(0.25)
        self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6)
        self.drop2, self.head = nn.Dropout(0.5), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)  # certain
        x = self.drop1(x)  # noise
        y = self.second(x)  # exact: the masks are independent
        z = self.third(y)  # approximate: its inputs share masks
        s = z + y  # approximate: the branches share noise
        r = F.relu(s)  # approximate: a sum of masks is not normal
        return self.head(self.drop2(r))  # approximate


@cache
def by_hand() -> Report:
    torch.manual_seed(0)
    return onesigma.convert(ByHand().eval(), X).report


def entry(report: Report, module: str = "", op: str = ""):
    (found,) = [
        e for e in report.entries if (not module or e.module == module) and (not op or e.op == op)
    ]
    return found


def test_statuses_by_hand():
    statuses = [(e.op, e.status) for e in by_hand().entries]
    assert statuses == [
        ("aten.linear", "certain"),
        ("aten.dropout", "noise"),
        ("aten.linear", "exact"),
        ("aten.linear", "approximate"),
        ("aten.add.Tensor", "approximate"),
        ("aten.relu", "approximate"),
        ("aten.dropout", "noise"),
        ("aten.linear", "approximate"),
    ]


def test_the_reasons():
    report = by_hand()
    assert "independent" in entry(report, module="third").note
    assert "share no noise" in entry(report, op="aten.add.Tensor").note
    assert "normally distributed" in entry(report, op="aten.relu").note
    assert entry(report, module="second").note == ""
    assert "p = 0.25" in entry(report, module="drop1").note
    assert len(report.approximate) == 4


def test_sites():
    sites = by_hand().sites
    assert [(s.module, s.op, s.rate) for s in sites] == [
        ("drop1", "aten.dropout", 0.25),
        ("drop2", "aten.dropout", 0.5),
    ]
    first = ByHand.forward.__code__.co_firstlineno
    assert [s.source for s in sites] == [f"test_report.py:{first + n}" for n in (2, 7)]


def test_table_text():
    text = str(by_hand())
    head, *lines = text.splitlines()
    assert head == "onesigma report: 2 noise sites, 8 ops, 1 certain, 1 exact, 4 approximate"
    assert all(word in text for word in ("drop1", "drop2", "p = 0.25", "p = 0.5", "test_report.py"))
    assert not any(line.startswith("first ") for line in lines)  # certain ops are counted only
    assert all(line == line.rstrip() for line in lines)


def test_dict_round_trip_through_json():
    report = by_hand()
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again == report
    assert str(again) == str(report)


def chain(*modules: nn.Module) -> Report:
    return onesigma.convert(nn.Sequential(*modules).eval(), X).report


def test_a_prior_is_normal_and_so_its_relu_is_exact_after_one_layer_only():
    model = nn.Sequential(nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    report = onesigma.convert(model, X, input_std=0.1).report
    # relu(prior) exact; then independent and exact; the next relu's input is no longer normal
    assert [e.status for e in report.entries] == ["exact", "exact", "approximate", "approximate"]
    assert not report.sites


def test_linear_of_a_prior_stays_normal():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    report = onesigma.convert(model, X, input_std=0.1).report
    assert [e.status for e in report.entries] == ["exact", "exact", "approximate"]


def test_channel_dropout_is_shared_noise():
    model = nn.Sequential(nn.Dropout1d(0.3), nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(3, 3))
    report = onesigma.convert(model.eval(), X.reshape(3, 2, 3)).report
    assert entry(report, op="aten.conv1d").status == "approximate"
    assert "drop together" in entry(report, op="aten.feature_dropout").note


def test_layer_norm_is_always_approximate():
    report = chain(nn.Dropout(0.3), nn.LayerNorm(6), nn.Linear(6, 3))
    norm = entry(report, op="aten.layer_norm")
    assert norm.status == "approximate"
    assert "statistics" in norm.note


def test_batch_norm_is_exact():
    report = chain(nn.Dropout(0.3), nn.BatchNorm1d(6), nn.Linear(6, 3))
    assert [e.status for e in report.entries] == ["noise", "exact", "exact"]


def test_a_final_softmax_is_said_to_be_taken_over():
    report = chain(nn.Dropout(0.3), nn.Linear(6, 3), nn.Softmax(-1))
    assert any("softmax" in note and "head" in note for note in report.notes)
    assert "note: " in str(report)
    assert not any("softmax" in e.op for e in report.entries)


def test_rate_zero_is_noted_and_everything_is_certain():
    report = chain(nn.Dropout(0.0), nn.Linear(6, 3))
    assert [s.rate for s in report.sites] == [0.0]
    assert report.is_silent
    assert {e.status for e in report.entries} == {"certain"}
    some = chain(nn.Dropout(0.0), nn.Linear(6, 6), nn.Dropout(0.2), nn.Linear(6, 3))
    assert any("rate 0" in note for note in some.notes)
    assert not some.is_silent


def test_a_method_is_named():
    report = chain(nn.Dropout(0.3), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3))
    assert "quadrature" in entry(report, op="aten.gelu").note


def test_classic_dropout_keeps_its_place_in_the_report():
    model = nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 3)).eval()
    report = onesigma.convert(model, X, dropout="classic").report
    assert [e.op for e in report.entries] == ["aten.dropout", "aten.linear"]
    assert [s.rate for s in report.sites] == [0.3]
