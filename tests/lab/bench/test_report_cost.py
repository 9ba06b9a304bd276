"""What a report says of the cost: measured, or why not."""

from dataclasses import replace

import torch
from lab.bench.small_model import SHAPE, examples, small
from torch import nn

import onesigma
from onesigma.lab.bench.contenders import PLAIN
from onesigma.lab.bench.measurement import Plan
from onesigma.lab.bench.report_cost import OURS, SAMPLED, measure_cost

QUICK = Plan(("eager",), (1,), (1,), repeats=3, processes=0, energy_seconds=0.01)


def test_one_pass_beside_the_plain_network_and_monte_carlo():
    (inputs,) = examples(6)
    seen = []

    def progress(rounds):
        seen.extend(rounds)
        return seen

    found = measure_cost(small(), inputs, progress, plan=QUICK)
    assert [row.contender for row in found.rows] == [PLAIN, OURS, SAMPLED]
    assert found.rows[0].timing.ratio == 1
    assert seen == [0, 1, 2]


def test_what_cannot_be_timed_says_why():
    fixed = small().replaced(settings=replace(small().settings, input_shapes=((2, *SHAPE),)))
    assert "fixes its batch" in measure_cost(fixed, *examples())
    certain = onesigma.convert(nn.Linear(5, 3), torch.randn(2, 5), input_std=0.1)
    assert "no dropout" in measure_cost(certain, torch.randn(2, 5))
