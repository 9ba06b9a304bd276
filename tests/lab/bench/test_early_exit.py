"""What the benchmark counts, by hand, and what it finds of a network that is never wrong."""

import numpy as np
import pytest
import torch

from onesigma.decide.early_exit import ExitRule
from onesigma.lab.bench.early_exit import Asked, _figures
from onesigma.prediction import Prediction


def said(*first: float) -> Prediction:
    """Of each input the probability of class 0."""
    probs = torch.tensor(first).unsqueeze(1)
    probs = torch.cat([probs, 1 - probs], 1)
    return Prediction(probs.log(), probs, probs, -(probs * probs.log()).sum(1))


def test_harm_is_counted_where_the_network_is_right():
    # All but the third are sure enough. The second is harmed; of the last, both are wrong.
    exits, whole = said(0.9, 0.1, 0.4, 0.9), said(0.9, 0.9, 0.1, 0.9)
    asked = Asked([exits, whole], torch.tensor([0, 0, 1, 1]), (0.25, 1.5))
    rule = ExitRule("confidence", 0.2, 0.5, 0.05, 4, 0.0, 0.0)
    found = asked.under(rule, np.arange(4))
    wanted = {"cost": 0.5625, "error": 0.5, "error_whole": 0.25, "harm": 0.25, "left_early": 0.75}
    assert found == pytest.approx(wanted)
    assert asked.under(rule, np.array([0, 1, 1, 1]))["harm"] == 0.75


def test_an_exit_that_is_never_wrong_is_always_taken():
    sure = said(*[0.99, 0.01] * 200)
    asked = Asked([sure, sure], torch.tensor([0, 1] * 200), (0.1, 1.0))
    found = _figures(asked, 0.03)
    assert found["labels"] == 400
    assert found["cost"] == found["dealt_cost"] == pytest.approx(0.1)
    assert found["kept"] == found["dealt_kept"] == 1
    assert found["harm"] == 0
