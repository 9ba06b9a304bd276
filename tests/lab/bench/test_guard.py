"""The bench of the guard, small: it runs, goes on, and its figures are what they say."""

import json

import pytest
import torch
from torch import nn

from onesigma import fitting
from onesigma.lab import guard_inputs
from onesigma.lab.bench import guard
from onesigma.lab.datasets.split import Split, make_splits
from onesigma.lab.guard_inputs import GuardTask


def _split(rows, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (rows,), generator=g)
    x = torch.randn(rows, 4, 24, generator=g)
    x[:, :3] += 0.8 * nn.functional.one_hot(labels, 3)[..., None]
    return Split(x, labels, torch.zeros(rows, dtype=torch.long))


def _network():
    return nn.Sequential(
        *(nn.Conv1d(4, 8, 5), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
        nn.Linear(8, 3),
    )


@pytest.fixture
def task(monkeypatch):
    data = make_splits(_split(300, 0), _split(240, 1), _split(200, 2), ("a", "b", "c"), "made up")
    x = data.test.inputs
    made = GuardTask(
        *(data, {"gain 2": 2 * x}, {"unknown": x[:50].flip(1)}, {"far": 9 + x[:50]}),
        {"dead": x[:50] * torch.tensor([0.0, 1, 1, 1]).reshape(1, 4, 1)},
    )
    monkeypatch.setattr(guard_inputs, "TASKS", {"small": lambda root: made})
    monkeypatch.setattr(guard, "RECIPES", {"small": {"net": guard.Recipe(_network, 4)}})
    monkeypatch.setattr(guard, "SEEDS", (0, 1))
    monkeypatch.setattr(fitting, "ROWS", 900)
    monkeypatch.setattr(fitting, "STEPS", 90)
    return made


def test_it_measures_and_goes_on(task, tmp_path, monkeypatch):
    found = guard.run(["small"], None, tmp_path)
    assert [*found] == ["small-net-0", "small-net-1"]
    one = found["small-net-0"]
    assert one["far"]["far"]["acts"] == 0
    assert one["far"]["far"]["novelty"] == pytest.approx(1.0)
    assert one["broken"]["dead"]["acts"] == 0
    assert one["broken"]["dead"]["channel named"] == 1
    clean = one["clean"]["clean"]
    assert clean["acts wrongly"] <= clean["acts"] <= 1
    assert 0 < clean["NLL ours"] < 1.1
    text = guard.show(found)
    assert "k nearest" in text
    assert "channel named" in text
    monkeypatch.setattr(guard, "Contestant", None)  # nothing is measured again
    assert guard.run(["small"], None, tmp_path) == json.loads(json.dumps(found))
