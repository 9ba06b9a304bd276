"""How far one pass is from Monte Carlo, by hand and by another way to estimate it."""

import math

import pytest
import torch

from onesigma.calibration.exam import Exam, divergences
from onesigma.calibration.teacher import Lesson


def exam_of(passes: torch.Tensor) -> Exam:
    return Exam(Lesson((torch.zeros(len(passes)),), passes))


def test_the_noise_of_the_reference_is_taken_off():
    """Passes that are sure of one class or the other: p̂ is a share, D / R is 1 / 2R."""
    passes, inputs = 100, 4000
    first = torch.rand(inputs, passes, generator=torch.Generator().manual_seed(0)) < 0.3
    exam = exam_of(60.0 * torch.stack([first, ~first], -1))
    assert float(exam.one_pass.mean()) == pytest.approx(1 / 2, rel=0.1)
    method = torch.tensor([0.4, 0.6]).expand(inputs, 2)
    kl = 0.3 * math.log(0.3 / 0.4) + 0.7 * math.log(0.7 / 0.6)
    assert abs(float(exam.distances(method).mean()) - kl) < 0.2 / (2 * passes)


@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_entropies_of_parts_tell_the_same(spread):
    """Of B parts of the reference, mean H(p̂) falls short of H(p) by B times as much as of all."""
    generator = torch.Generator().manual_seed(1)
    where = 2 * torch.randn(600, 1, 5, generator=generator)
    logits = where + spread * torch.randn(600, 400, 5, generator=generator)
    probs, exam = logits.softmax(-1).double(), exam_of(logits)
    whole = torch.special.entr(probs.mean(1)).sum(-1)
    parts = torch.stack([p.mean(1) for p in probs.split(100, 1)])
    noise = (whole - torch.special.entr(parts).sum(-1).mean(0)) / 3
    assert float(exam.one_pass.mean()) == pytest.approx(400 * float(noise.mean()), rel=0.05)
    # What is as close as 100 passes is so by both.
    method = (where + spread * torch.randn(600, 100, 5, generator=generator)).softmax(-1).mean(1)
    other = (divergences(probs.mean(1), method) - noise).mean()
    assert float(exam.distances(method).mean()) == pytest.approx(float(other), rel=0.02)
    assert float(exam.one_pass.mean() / other) == pytest.approx(100, rel=0.1)
