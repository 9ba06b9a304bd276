import pytest
import torch
from torch import nn

from onesigma.baselines.backbone import backbone
from onesigma.baselines.mc_dropout import mc_dropout
from onesigma.lab.bench import foreign


def test_small_activations_give_small_logits_and_little_spread():
    """Input a tenth as large: a tenth of the logits, a tenth of the spread, more entropy."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 64, bias=False), nn.ReLU(), nn.Dropout(0.5))
    network.append(nn.Linear(64, 3, bias=False))
    x = 5 * torch.randn(40, 8)
    methods = {"plain": backbone(network), "MC-30": mc_dropout(network, 30)}
    kinds = {"clean": x, "faint": 0.1 * x}
    found = {(row[0], row[1]): row[2:] for row in foreign.rows(kinds, methods, ("a", "b", "c"))}
    for method, column in (("plain", 0), ("MC-30", 0), ("MC-30", 1)):
        full, faint = (float(found[kind, method][column]) for kind in kinds)
        assert faint == pytest.approx(0.1 * full, abs=2e-3)
    assert found["clean", "plain"][1] == "0.000"
    assert found["clean", "MC-30"][5:7] == ["0.500", "0.500"]
    assert float(found["faint", "MC-30"][5]) > 0.9  # entropy spots it
    assert float(found["faint", "MC-30"][6]) < 0.2  # the epistemic part takes it for well known
    assert all(len(row) == len(foreign.HEADER) - 2 for row in found.values())
