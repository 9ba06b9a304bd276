"""What is gathered about a model: the rule it keeps, the inputs it looks into, what it refuses."""

import re

import pytest
import torch
from pages.report.small_reports import COUNT, find, inputs, labelled, labels, residual

import onesigma
from onesigma.errors import InputError


def test_the_models_own_rule_is_kept() -> None:
    rule = onesigma.threshold(residual()(inputs(2, 12)), labels(), risk=0.1)
    own = residual().with_abstain(rule)
    assert find(own, inputs(2, 12), labels()).rule is own.abstain
    asked = find(own, inputs(2, 12), labels(), risk=0.3).rule
    assert asked is not None
    assert asked.risk == 0.3


def test_a_large_network_is_looked_into_with_few_inputs(monkeypatch) -> None:
    assert labelled().audit.inputs == COUNT
    monkeypatch.setattr("onesigma.pages.report.findings._MOST_VALUES", 4000)
    assert 4 <= find(residual(), inputs(2, 12)).audit.inputs < 10


def test_progress_is_told_by_name() -> None:
    told = {}

    def progress(steps, label):
        told[label] = len(list(steps))
        return range(told[label])

    find(residual(), inputs(2, 12), progress=progress)
    assert told == {"audit": 4, "Monte Carlo": 1, "sources": 4}


@pytest.mark.parametrize(
    ("x", "truth", "options", "says"),
    [
        (inputs(2, 12), torch.zeros(59, dtype=torch.long), {}, "59 labels for 60 inputs"),
        (inputs(2, 12), torch.full((60,), 3), {}, "Labels are within 0..2"),
        (inputs(2, 12), None, {"class_names": ("a", "b")}, "2 names for 3 classes"),
        (inputs(2, 12)[:0], None, {}, "at least 1"),
        (inputs(2, 12).index_fill(0, torch.tensor([7]), torch.nan), None, {}, "1 of 60 inputs"),
        (inputs(2, 13), None, {}, "Expected an input of shape"),
    ],
    ids=["too few labels", "unknown label", "names", "no inputs", "nan", "shape"],
)
def test_what_does_not_fit_is_explained(x, truth, options, says) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        find(residual(), x, truth, **options)
