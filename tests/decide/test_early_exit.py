"""How sure an exit has to be: against a direct count, and the promise on made-up inputs."""

import math

import numpy as np
import pytest
import torch

from onesigma.decide.early_exit import ExitRule, below_harm, exit_rule, first_harm
from onesigma.errors import InputError
from onesigma.prediction import Prediction

EXCESS = 0.02


def said(probs: np.ndarray, **more: torch.Tensor) -> Prediction:
    p = torch.from_numpy(probs)
    return Prediction(p.log(), p, p, -(p * p.log()).sum(1), **more)


def draw(n: int, seed: int) -> tuple[list[Prediction], Prediction, torch.Tensor]:
    """Two exits and a network, of two classes: each is right as often as it says.

    The exits see less of the input than the network, and the first one less than the second.
    """
    generator = np.random.default_rng(seed)
    signal = generator.normal(size=(4, n)).cumsum(0)
    truth = signal[3] + generator.normal(size=n) > 0
    # The chance that all of it is positive, given what was seen so far.
    rest = np.sqrt([4, 3, 2])
    right = [np.vectorize(math.erf)(signal[k] / rest[k] / 2**0.5) for k in range(3)]
    each = [said(np.stack([(1 - r) / 2, (1 + r) / 2], 1).clip(1e-9, 1)) for r in right]
    return each[:2], each[2], torch.from_numpy(truth).long()


def harm_at(rule: ExitRule, exits: list[Prediction], whole: Prediction, y: torch.Tensor) -> float:
    """As the model does it: each input leaves at the first exit that is sure."""
    label, left = whole.label.clone(), torch.zeros(len(y), dtype=torch.bool)
    for each in exits:
        leaves = rule(each) & ~left
        label[leaves] = each.label[leaves]
        left |= leaves
    return float(((label != y) & (whole.label == y)).float().mean())


def test_first_harm_is_the_least_threshold_that_harms():
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 6, size=(3, 200)).astype(float)
    worse = generator.random((3, 200)) < 0.4
    found = first_harm(scores, worse)
    for i in range(200):
        harms = [
            t
            for t in np.arange(0.5, 7)
            if (leaves := np.flatnonzero(scores[:, i] < t)).size and worse[leaves[0], i]
        ]
        assert found[i] == (min(harms) - 0.5 if harms else math.inf)


def test_the_promise_holds_in_95_of_100_resamplings():
    exits, whole, y = draw(200_000, 1)
    broken = 0
    for seed in range(200):
        near, full, labels = draw(400, seed + 2)
        rule = exit_rule(near, full, labels, excess_risk=EXCESS)
        broken += harm_at(rule, exits, whole, y) > EXCESS
    assert broken <= 0.05 * 200 + 2 * math.sqrt(0.05 * 0.95 * 200)


def test_the_promise_is_of_use():
    exits, whole, y = draw(20_000, 1)
    rule = exit_rule(exits, whole, y, excess_risk=EXCESS)
    harm = harm_at(rule, exits, whole, y)
    assert 0.5 * EXCESS < harm <= EXCESS
    assert harm <= rule.observed_risk  # what it counts is never less than the harm
    assert 0.1 < rule.coverage < 0.9


def test_the_threshold_by_the_exact_tail():
    harm = np.array([0.1, 0.2, 0.3, *[math.inf] * 297])
    # 0.99³⁰⁰ = 0.049: not one may do harm; with 3 % of excess, three may: 0.0206 of 9 expected.
    assert below_harm(harm, 0.01, 0.05) == pytest.approx(0.1)
    assert below_harm(harm, 0.03, 0.05) == math.inf
    assert below_harm(harm[:290], 0.01, 0.05) == -math.inf


def test_too_few_examples_let_nothing_leave():
    rule = exit_rule(*draw(100, 0), excess_risk=0.01)
    assert rule.never_acts
    assert "No input leaves early: 100 labelled inputs" in str(rule)


def test_acting_wrongly_is_harm_where_the_network_abstains():
    exits, whole, y = draw(2000, 3)
    acts = torch.ones(2000, dtype=torch.bool)
    careful = Prediction(**whole.arrays() | {"act": ~acts})
    bold = [Prediction(**each.arrays() | {"act": acts}) for each in exits]
    free = exit_rule(exits, whole, y, excess_risk=EXCESS)
    assert exit_rule(bold, careful, y, excess_risk=EXCESS).coverage < free.coverage


def test_what_is_unfamiliar_never_leaves():
    exits, whole, y = draw(2000, 3)
    odd = torch.arange(2000) % 2 == 0
    guarded = {"novelty": torch.where(odd, 0.001, 0.5), "contract": torch.zeros(2000, 3)}
    known = [Prediction(**each.arrays() | guarded) for each in (*exits, whole)]
    rule = exit_rule(known[:2], known[2], y, excess_risk=EXCESS)
    assert not bool(rule(known[0])[odd].any())
    assert bool(rule(known[0])[~odd].any())


def test_for_new_people():
    exits, whole, y = draw(2000, 4)
    rule = exit_rule(exits, whole, y, excess_risk=0.05, groups=torch.arange(2000) % 10)
    assert rule.groups == 10
    assert "new people like the 10" in rule.guarantee
    assert harm_at(rule, exits, whole, y) <= 0.05


def test_a_risk_is_a_share():
    with pytest.raises(InputError, match="risk=2"):
        exit_rule(*draw(100, 0), excess_risk=2.0)
