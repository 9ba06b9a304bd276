"""The abstain thresholds: the promises hold, by Monte Carlo against the exact risk.

Scores and mistakes are drawn from known curves, so the true risk of every threshold is an integral
or a sum and only the calibration examples are random.
"""

import dataclasses
import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import binom

import onesigma
from onesigma import AbstainRule, InputError, Prediction
from onesigma.decide.threshold import binomial_cdf, fewest, joint, over_people, selective

GRID = np.linspace(0, 1, 4001)
LEVELS = np.arange(8) / 8  # scores that tie


def rising(s):
    return 0.5 * s**2


def hump(s):
    """Over-confident: some of the surest answers are wrong, so the selective risk first falls."""
    return np.where(s < 0.1, 0.3, 0.4 * s**3)


def level(s, rate=0.15):
    """A score that knows nothing."""
    return np.full_like(s, rate)


def true_risk(curve, threshold, conditional, *, ties=False):
    points = LEVELS if ties else GRID
    acted = points < threshold
    wrong_and_acted = float((curve(points) * acted).mean())
    return wrong_and_acted / max(acted.mean(), 1e-9) if conditional else wrong_and_acted


def draws(curve, n, repeats, *, ties=False):
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        scores = rng.choice(LEVELS, n) if ties else rng.random(n)
        yield scores, rng.random(n) < curve(scores)


CASES = [
    pytest.param(curve, ties, id=f"{curve.__name__}{'-ties' if ties else ''}")
    for curve in (rising, hump, level)
    for ties in (False, True)
]


def mean_and_error(values):
    return np.mean(values), np.std(values) / math.sqrt(len(values))


def joint_risks(curve, n, risk, repeats=2000, *, ties=False):
    cuts = [joint(s, w, risk) for s, w in draws(curve, n, repeats, ties=ties)]
    return [true_risk(curve, cut, False, ties=ties) for cut in cuts]


@pytest.mark.parametrize(("curve", "ties"), CASES)
@pytest.mark.parametrize("n", [19, 60, 300])
def test_mean_risk_is_at_most_what_was_asked(curve, ties, n):
    mean, error = mean_and_error(joint_risks(curve, n, 0.05, ties=ties))
    assert mean <= 0.05 + 5 * error
    if not ties and curve is not level:
        # Conformal risk control is tight to 2/(n + 1); half a gap between scores is given away.
        assert mean >= 0.05 - 3 / (n + 1) - 5 * error


def test_one_mistake_more_would_break_the_promise():
    """So the test above can fail."""
    mean, error = mean_and_error(joint_risks(rising, 60, 0.05 + 1 / 61))
    assert mean > 0.05 + 5 * error


@pytest.mark.parametrize(
    ("curve", "ties", "n"),
    [
        *[
            (curve, ties, n)
            for curve in (rising, hump)
            for ties in (False, True)
            for n in (60, 500)
        ],
        # The worst case: to act at all is to break the promise, if only just.
        *[(partial(level, rate=0.1001), ties, n) for ties in (False, True) for n in (60, 500)],
    ],
)
def test_conditional_risk_is_broken_as_rarely_as_promised(curve, ties, n):
    risk, delta, repeats = 0.1, 0.1, 600
    cuts = [selective(s, w, risk, delta) for s, w in draws(curve, n, repeats, ties=ties)]
    broken = [true_risk(curve, cut, True, ties=ties) > risk for cut in cuts]
    assert np.mean(broken) <= delta + 5 * math.sqrt(delta * (1 - delta) / repeats)


def test_choosing_among_all_cuts_would_break_it_more_often():
    """So the test above can fail, and the union bound is needed."""
    n, risk, delta, repeats = 500, 0.1, 0.1, 600
    m = np.arange(fewest(risk, delta), n + 1)
    wrong = np.array([w[np.argsort(s)] for s, w in draws(partial(level, rate=0.1001), n, repeats)])
    passed = binom.cdf(wrong.cumsum(1)[:, m - 1], m, risk) <= delta
    assert passed.any(1).mean() > delta + 5 * math.sqrt(delta * (1 - delta) / repeats)


@pytest.mark.parametrize(("n", "coverage"), [(200, 0.3), (1000, 0.5), (4000, 0.62)])
def test_conditional_coverage_grows_with_examples(n, coverage):
    """P(wrong | s < t) = t²/6 reaches 0.1 at t = 0.77."""
    cuts = [selective(s, w, 0.1, 0.1) for s, w in draws(rising, n, 100)]
    assert coverage < np.mean(np.clip(cuts, 0, 1)) < 0.77


@pytest.mark.parametrize("n", [1, 7, 100, 20_000])
@pytest.mark.parametrize("p", [1e-6, 0.05, 0.5, 0.97])
def test_binomial_cdf(n, p):
    for k in {0, 1, n // 20, n // 2, n - 1, n}:
        assert binomial_cdf(k, n, p) == pytest.approx(binom.cdf(k, n, p), rel=1e-8, abs=1e-300)


# The public function


def prediction(scores, *, right=0, classes=3) -> Prediction:
    """Answers of class ``right`` whose entropy and epistemic part are ``scores``."""
    scores = torch.as_tensor(scores, dtype=torch.float32)
    probs = torch.full((len(scores), classes), 0.1 / (classes - 1))
    probs[:, right] = 0.9
    return Prediction(probs.log(), probs, probs, scores, scores, scores)


def labels(wrong) -> torch.Tensor:
    return torch.as_tensor(wrong).long()


def test_by_hand():
    # 39 examples and 5 %: (k + 1) / 40 ≤ 0.05 allows k = 1 mistake. The second one has score 20.
    wrong = torch.zeros(39, dtype=torch.bool)
    wrong[[11, 20, 30]] = True
    order = torch.randperm(39, generator=torch.Generator().manual_seed(0))
    answer = prediction(torch.arange(39.0)[order])
    rule = onesigma.threshold(answer, labels(wrong)[order], risk=0.05)
    assert rule.threshold == 19.5
    assert rule.coverage == pytest.approx(20 / 39)
    assert rule.observed_risk == pytest.approx(1 / 39)
    assert rule.n == 39
    assert torch.equal(rule(answer), answer.entropy < 19.5)


def test_tied_scores_act_together():
    wrong = labels([0] * 30 + [1, 1] + [0] * 7)
    rule = onesigma.threshold(prediction([0.1] * 20 + [0.5] * 19), wrong, risk=0.05)
    assert rule.threshold == pytest.approx(0.3)
    assert rule.observed_risk == 0


@pytest.mark.parametrize("conditional", [False, True])
def test_all_right_and_all_equal_acts_on_all_of_them_and_on_nothing_less_sure(conditional):
    answer = prediction([0.5] * 60)
    rule = onesigma.threshold(answer, labels([0] * 60), conditional=conditional)
    assert 0.5 < rule.threshold < 0.51
    assert rule(answer).all()
    assert rule.coverage == 1


@pytest.mark.parametrize("conditional", [False, True])
def test_too_few_examples_always_abstain(conditional):
    enough = fewest(0.05, 0.1 if conditional else None)
    assert enough == (45 if conditional else 19)
    for n, acts in ((1, False), (enough - 1, False), (enough, True)):
        answer = prediction(torch.linspace(0, 1, n))
        rule = onesigma.threshold(answer, labels([0] * n), conditional=conditional)
        assert rule.never_acts is not acts
        assert bool(rule(answer).any()) is acts
    rule = onesigma.threshold(prediction([0.1]), labels([0]), conditional=conditional)
    assert "always abstains" in str(rule)
    assert f"at least {enough}" in rule.guarantee


@pytest.mark.parametrize("conditional", [False, True])
def test_all_wrong_always_abstains(conditional):
    answer = prediction(torch.linspace(0, 1, 100))
    rule = onesigma.threshold(answer, labels([1] * 100), risk=0.01, conditional=conditional)
    assert rule.never_acts
    assert not rule(answer).any()
    assert (rule.coverage, rule.observed_risk) == (0, 0)
    assert "always abstains" in rule.guarantee


@pytest.mark.parametrize("score", ["entropy", "confidence", "epistemic"])
def test_each_score_is_compared_as_fitted(score):
    torch.manual_seed(0)
    probs = torch.randn(300, 4).mul(3).softmax(1)
    answer = Prediction(probs, probs, probs, torch.rand(300), torch.rand(300), torch.rand(300))
    truth = torch.multinomial(probs, 1).squeeze(1)
    rule = onesigma.threshold(answer, truth, risk=0.1, score=score)
    uncertainty = 1 - probs.amax(1) if score == "confidence" else getattr(answer, score)
    assert torch.equal(rule(answer), uncertainty < rule.threshold)
    assert 0 < rule.coverage < 1
    acted_wrongly = ((probs.argmax(1) != truth) & rule(answer)).double().mean()
    assert rule.observed_risk == pytest.approx(float(acted_wrongly))
    assert rule.observed_risk <= (0.1 * 301 - 1) / 300


def test_conditional_observes_the_answers_acted_on():
    wrong = torch.arange(400) % 10 == 9
    wrong[:300] = False
    answer = prediction(torch.linspace(0, 1, 400))
    rule = onesigma.threshold(answer, labels(wrong), conditional=True, risk=0.02)
    acted = rule(answer)
    assert rule.coverage == pytest.approx(float(acted.double().mean()))
    assert rule.observed_risk == pytest.approx(float(wrong[acted].double().mean()))
    assert rule.delta == 0.1
    assert "90 % confidence" in rule.guarantee


def test_a_doubt_that_is_no_number_abstains():
    rule = onesigma.threshold(prediction([0.5] * 60), labels([0] * 60))
    assert rule(prediction([0.1, math.nan])).tolist() == [True, False]


@pytest.mark.parametrize("threshold", [0.25, math.inf, -math.inf])
@pytest.mark.parametrize("delta", [None, 0.1])
def test_as_a_dict_and_as_text(threshold, delta):
    rule = AbstainRule("confidence", threshold, 0.05, delta, 200, 0.7, 0.04)
    text = json.dumps(rule.to_dict(), allow_nan=False)
    assert AbstainRule.from_dict(json.loads(text)) == rule
    assert "1 − confidence" in str(rule)
    assert rule.guarantee in str(rule)
    assert "200" in str(rule)


N = 30
GOOD = prediction(torch.linspace(0, 1, N)), labels([0] * N)
BAD = {
    "risk": (GOOD, {"risk": 0.0}),
    "risk=": (GOOD, {"risk": 5}),
    "delta": (GOOD, {"conditional": True, "delta": 1.0}),
    "score": (GOOD, {"score": "mean"}),
    "shape": ((GOOD[0], labels([0] * (N - 1))), {}),
    "integers": ((GOOD[0], torch.zeros(N)), {}),
    "within 0..2": ((GOOD[0], labels([3] * N)), {}),
    "regression": ((Prediction(torch.ones(N, 2), torch.ones(N, 2)), GOOD[1]), {}),
    "no epistemic": ((Prediction(*[GOOD[0].probs] * 3), GOOD[1]), {"score": "epistemic"}),
    "finite": ((prediction([math.nan] * N), GOOD[1]), {}),
    "one label per input": (
        (Prediction(*[torch.full((2, 2, 5), 0.5)] * 3, torch.rand(2, 5)), labels([[0] * 5] * 2)),
        {},
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_refuses(message):
    (answer, truth), options = BAD[message]
    with pytest.raises(InputError, match=message):
        onesigma.threshold(answer, truth, **options)


def people_risks(spread, people, risk, repeats=400, each=40):
    """True risks, over a new person, of thresholds found on so many people."""
    rng = np.random.default_rng(1)
    # The chance of a mistake at a score of s is that person's own multiple of s².
    levels = np.clip(np.exp(spread * rng.standard_normal(4000)) * 0.3, 0, 1)
    found = []
    for _ in range(repeats):
        own = rng.choice(levels, people).repeat(each)
        scores = rng.random(len(own))
        wrong = rng.random(len(own)) < own * scores**2
        cut = min(over_people(scores, wrong, risk, np.arange(people).repeat(each)), 1.0)
        found.append(0.0 if cut < 0 else levels.mean() * cut**3 / 3)
    return found


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_many_people_keep_the_promise_on_average(spread):
    mean, error = mean_and_error(people_risks(spread, 30, 0.05))
    assert mean <= 0.05 + 5 * error


@pytest.mark.parametrize(("people", "broken"), [(4, 0.25), (8, 0.2), (12, 0.15)])
def test_few_people_break_it_rarely(people, broken):
    """A bootstrap of few people is no guarantee: this is how often it fails where they differ."""
    assert np.mean(np.array(people_risks(1.0, people, 0.05)) > 0.05) < broken


def test_taking_all_inputs_as_alike_breaks_it_more_often():
    """So groups are needed, and the tests above can fail."""
    rng, found = np.random.default_rng(1), []
    levels = np.clip(np.exp(rng.standard_normal(4000)) * 0.3, 0, 1)
    for _ in range(400):
        own = rng.choice(levels, 4).repeat(40)
        scores = rng.random(160)
        wrong = rng.random(160) < own * scores**2
        found.append(levels.mean() * min(joint(scores, wrong, 0.05), 1.0) ** 3 / 3)
    assert np.mean(np.array(found) > 0.05) > 0.25


def test_nothing_less_sure_than_99_of_100_is_acted_on():
    answer = prediction(np.linspace(0, 1, 200).tolist())
    rule = onesigma.threshold(answer, labels([0] * 200))
    assert 0.98 < rule.threshold < 1.0
    assert rule.coverage == pytest.approx(0.99, abs=0.01)


def guarded(scores, novelty, worst):
    answer = prediction(scores)
    places = torch.zeros(len(scores), 3)
    places[:, 1] = torch.tensor(worst)
    return dataclasses.replace(answer, novelty=torch.tensor(novelty), contract=places)


def test_unfamiliar_and_broken_input_is_not_acted_on_and_costs_no_risk():
    """All mistakes are on unfamiliar input, so that the rule may act on all else."""
    n = 100
    novelty, worst = [0.5] * n, [0.5] * n
    novelty[:10], worst[10:20] = [0.001] * 10, [-1.5] * 10
    answer = guarded([0.3] * n, novelty, worst)
    wrong = [1] * 20 + [0] * 80
    rule = onesigma.threshold(answer, labels(wrong), risk=0.05)
    assert rule.novelty == 0.02
    assert rule(answer).tolist() == [False] * 20 + [True] * 80
    again = AbstainRule.from_dict(json.loads(json.dumps(rule.to_dict())))
    assert again == rule
    assert "familiar" in str(rule)
    with pytest.raises(InputError, match="novelty"):
        rule(prediction([0.3] * 5))


def test_the_promise_to_people_is_said():
    answer = prediction([0.1] * 80)
    few = onesigma.threshold(answer, labels([0] * 80), groups=torch.arange(80) % 4)
    many = onesigma.threshold(answer, labels([0] * 80), groups=torch.arange(80) % 20)
    assert "resamples of the 4 people" in few.guarantee
    assert "On average over new people" in many.guarantee
    with pytest.raises(InputError, match="groups"):
        onesigma.threshold(answer, labels([0] * 80), groups=torch.arange(80), conditional=True)
