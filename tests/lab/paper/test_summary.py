"""Means over trials and the judgement of the goals, on figures small enough to judge by hand."""

import math

import pytest
from lab.paper.written_trials import result, trial

from onesigma.lab.paper import summary
from onesigma.lab.paper.methods import COLUMNS
from onesigma.lab.paper.summary import Spread, goals, judge, tally


def test_mean_and_sample_deviation():
    spread = Spread.of([1.0, None, 3.0])
    assert spread == (2.0, pytest.approx(math.sqrt(2)), 2)
    assert math.isnan(Spread.of([1.0]).std)
    assert math.isnan(Spread.of([None]).mean)
    table = summary.tabulate(result())["clean"]
    assert table["BackboneDNN"]["NLL"].mean == pytest.approx(0.55)
    assert list(table) == list(COLUMNS)


def test_latency_is_relative_to_the_plain_network():
    assert summary.latencies(result())["Ours"][0].mean == 2
    assert summary.latencies(result())["BackboneDNN"][0].mean == 1


def test_a_held_out_activity_comes_first_and_brings_no_other_input():
    held = trial(0, 0)
    held["foreign"] = [row | {"input": "jog"} for row in held["foreign"]] + held["foreign"]
    found = summary.foreign_rows(result() | {"held out": {"activity": "jog", "trials": [held]}})
    kinds = [row.input for row in found]
    assert kinds == ["activity never trained on: jog"] * 5 + ["unknown words"] * 5
    assert found[0].figures["auroc"].trials == 1
    assert found[5].figures["auroc"].trials == 2


def judge_noise(pairs, **rule):
    return judge("noise", "10 dB", "NLL lower", "BackboneDNN", pairs, **rule)


def test_gain_and_its_standard_error_are_taken_trial_by_trial():
    # Differences 0.1, 0.2, 0.3: mean 0.2, std 0.1, error 0.1/√3; the levels themselves jump about.
    goal = judge_noise([(1.0, 1.1), (5.0, 5.2), (3.0, 3.3)], strictly=True)
    assert goal.gain == pytest.approx(0.2)
    assert goal.error == pytest.approx(0.1 / math.sqrt(3))
    assert (goal.ours, goal.theirs) == (pytest.approx(3.0), pytest.approx(3.2))
    assert goal.holds
    assert goal.verdict == "holds"


def test_where_more_is_better_the_sign_turns():
    pairs = [(0.8, 0.7), (0.8, 0.7), (0.8, 0.7)]
    assert judge_noise(pairs, higher=True).gain == pytest.approx(0.1)
    assert judge_noise(pairs).gain == pytest.approx(-0.1)
    assert judge_noise(pairs).verdict == "does not hold"


def test_equal_is_not_worse_but_does_not_beat():
    equal = [(0.5, 0.5)] * 3
    assert judge_noise(equal).holds
    assert not judge_noise(equal, strictly=True).holds


def test_within_one_standard_error_is_near_enough_only_where_the_goal_says_so():
    # Gains −0.1, 0, 0.04: mean −0.02, std 0.0721, error 0.0416.
    pairs = [(1.1, 1.0), (1.0, 1.0), (0.96, 1.0)]
    near, worse = judge_noise(pairs, slack=1.0), judge_noise(pairs)
    assert near.error == pytest.approx(0.0416, abs=1e-4)
    assert near.verdict == "holds, within one standard error"
    assert worse.verdict == "does not hold, within one standard error"
    assert not judge_noise([(1.2, 1.0), (1.2, 1.0), (1.3, 1.0)], slack=1.0).holds


def test_eight_points_are_needed_of_the_epistemic_part():
    enough, short = (
        judge_noise([(area, 0.71)] * 3, higher=True, needed=0.08) for area in (0.80, 0.78)
    )
    assert enough.holds
    assert not short.holds
    assert short.gain == pytest.approx(0.07)


def test_one_or_two_trials_are_not_judged():
    for count in (1, 2):
        goal = judge_noise([(0.1, 0.9)] * count)
        assert goal.holds is None
        assert goal.verdict == "not judged"
    assert math.isnan(judge_noise([(0.1, 0.9)]).error)
    assert tally([judge_noise([(0.1, 0.9)])]) == "not judged: that takes 3 trials"


def test_all_goals_of_a_task():
    found = goals(result(trials=3))
    # Clean 3; one noise: NLL and ECE against three rivals; one kind of foreign input.
    assert [goal.part for goal in found] == ["clean"] * 3 + ["noise"] * 6 + ["foreign"]
    assert all(goal.holds for goal in found)
    assert tally(found) == "10 of 10 hold"
    foreign = found[-1]
    assert foreign.rival == "BackboneDNN, energy"
    assert foreign.gain == pytest.approx(0.09)
    assert foreign.beside == {"Ours, entropy": 0.75, "MCDrop-30, epistemic": pytest.approx(0.82)}


def test_where_ours_is_worse_it_is_said():
    found = goals(result(better=-0.2, trials=3))
    failed = {(goal.claim, goal.rival) for goal in found if not goal.holds}
    assert ("NLL lower", "BackboneDNN") in failed
    assert ("ECE within one standard error, or lower", "MCDrop-30") in failed
    assert ("accuracy not worse", "BackboneDNN") not in failed
    assert tally(found) == "4 of 10 hold"


def test_a_held_out_activity_is_judged_on_trials_of_its_own():
    whole = result(trials=3)
    held = [
        trial | {"foreign": [row | {"input": "jog", "auroc": 0.5} for row in trial["foreign"]]}
        for trial in whole["trials"]
    ]
    found = goals(whole | {"held out": {"activity": "jog", "trials": held, "training": []}})
    by_kind = {goal.where: goal for goal in found if goal.part == "foreign"}
    assert not by_kind["activity never trained on: jog"].holds
    assert by_kind["unknown words"].holds
