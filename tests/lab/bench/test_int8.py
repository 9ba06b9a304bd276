"""The bench of eight bits: one small network from fit to table, and what is kept of it."""

import pytest
import torch
from torch import nn

pytest.importorskip("onnxruntime")

from onesigma.lab.bench import int8
from onesigma.lab.datasets.split import Split, Splits


def trained(name, root, cache):
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 6, 3), nn.ReLU()),
        *(nn.Dropout(0.4), nn.Flatten(), nn.Linear(48, 3)),
    ).eval()
    every = Split(torch.randn(120, 2, 12), torch.zeros(120).long(), torch.zeros(120).long())
    return network, Splits(every, every, every, ("a", "b", "c"), torch.zeros(1), torch.ones(1), "")


def test_a_network_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "load_trained", trained)
    monkeypatch.setattr(int8, "ROWS", 300)
    monkeypatch.setattr(int8, "STEPS", 20)
    (untimed,) = int8.run(["small"], tmp_path, timed=False)
    assert "nan" in int8.show([untimed])
    (found,) = int8.run(["small"], tmp_path, repeats=5)
    assert found.fidelity == untimed.fidelity
    assert found.fidelity.inputs == 120
    assert found.fidelity.kl < 1e-3
    assert found.over(int8.OURS_8) > 0
    assert 1 < found.file(int8.BARE_8) < found.file(int8.OURS_8)
    monkeypatch.setattr(int8, "load_trained", None)  # no need of it again
    assert int8.run(["small"], tmp_path) == [found]
    assert "geometric mean" in int8.show([found])
