"""The sentence on top says what was measured and no more; the steps follow from the findings."""

from dataclasses import replace

import pytest
import torch
from pages.report.small_reports import COST, COUNT, find, guarded, inputs, labelled, regression

import onesigma
from onesigma.pages.report.verdict import next_steps, not_measured, verdict


@pytest.fixture(scope="module")
def foreign():
    found = guarded()
    return find(
        found.converted, found.inputs, found.labels, risk=0.2, foreign=9 * inputs(2, 12, count=20)
    )


def test_it_says_what_was_measured_and_no_more(foreign) -> None:
    act = foreign.rule(foreign.ours)
    wrong = (foreign.ours.label != foreign.labels)[act]
    said = verdict(foreign, COST)
    assert said.startswith(
        f"It acts on {100 * float(act.double().mean()):.0f} % of the inputs, and"
    )
    assert f"{100 * float(wrong.double().mean()):.0f} % of those answers are wrong" in said
    assert "AUROC of 1.000 and acted on in 0 %" in said
    assert said.endswith("one answer takes 2.22× the plain network in ONNX Runtime.")
    bare = replace(foreign, labels=None, rule=None, foreign=None)
    assert verdict(bare, "not timed").endswith("unfamiliar or broken.")
    assert "wrong" not in verdict(bare, None)


def test_what_was_not_measured_names_the_option(foreign) -> None:
    assert list(not_measured(foreign, COST)) == []
    assert list(not_measured(foreign, "The model fixes its batch.")) == ["what it costs"]
    both = list(not_measured(replace(foreign, labels=None, rule=None, foreign=None), COST))
    assert [("--labels" in each, "--foreign" in each) for each in both] == [
        (True, False),
        (False, True),
    ]
    assert "when to act" in both[0]
    assert "when to act" not in next(not_measured(replace(regression(), labels=None), COST))


def test_foreign_input_is_scored_by_novelty(foreign) -> None:
    from sklearn.metrics import roc_auc_score

    novelty = torch.cat([foreign.ours.novelty, foreign.foreign.novelty])
    truth = torch.arange(len(novelty)) >= COUNT
    assert foreign.foreign_auroc() == pytest.approx(roc_auc_score(truth, -novelty))
    assert foreign.to_dict()["foreign_auroc"] == foreign.foreign_auroc()


@pytest.mark.parametrize("found", [labelled, guarded, regression], ids=lambda f: f.__name__)
def test_there_are_two_to_four_steps(found) -> None:
    for each in (found(), replace(found(), labels=None, rule=None)):
        assert 2 <= len(next_steps(each)) <= 4


def test_steps_follow_from_the_findings(foreign) -> None:
    first, *more = next_steps(foreign)
    assert first.startswith("Check channel <img")  # it was set to 0 in 6 of 60
    assert "10 % of the inputs" in first
    assert any(step.startswith("Look at the class ") for step in more)
    assert any("onesigma fit" in step for step in next_steps(labelled()))  # it has no guard


def test_a_broken_promise_is_told() -> None:
    found = labelled()
    sure = replace(found.ours, entropy=torch.zeros(COUNT))
    rule = onesigma.threshold(sure, sure.label, risk=0.1)
    rule = replace(rule, threshold=9.0)  # acts on all, and a quarter of the answers are wrong
    model = found.converted.with_abstain(rule)
    broken = replace(found, converted=model, rule=model.abstain)
    (told,) = [step for step in next_steps(broken) if "The rule allows" in step]
    assert "10 % of all inputs" in told
    assert "here it is 25 %" in told
