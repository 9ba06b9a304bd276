"""The curve counts what a threshold would do, and the picture is drawn."""

import numpy as np
import pytest
import torch

from onesigma.decide.plots import curve, draw_exits
from onesigma.prediction import Prediction

PROBS = (
    [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.45, 0.55]],  # an exit: 0 0 1 1
    [[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.1, 0.9]],  # the whole network: 0 1 0 1
)
LABELS = torch.tensor([0, 1, 0, 0])
COSTS = (0.25, 1.0)


def said() -> list[Prediction]:
    each = [torch.tensor(p) for p in PROBS]
    return [Prediction(p.log(), p, p, -(p * p.log()).sum(1)) for p in each]


def test_by_hand():
    found = curve(said(), LABELS, COSTS, np.array([0.0, 0.2, 0.35, 0.42, 1.0]))
    assert found.coverage.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert found.costs.tolist() == pytest.approx([1, 13 / 16, 10 / 16, 7 / 16, 0.25])
    # The second to leave does harm, the third too, the fourth is wrong anyway.
    assert found.errors.tolist() == [0.25, 0.25, 0.5, 0.75, 0.75]


def test_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    draw_exits(said(), LABELS, COSTS, 0.2, tmp_path / "exits.png")
    assert (tmp_path / "exits.png").read_bytes()[:4] == b"\x89PNG"
