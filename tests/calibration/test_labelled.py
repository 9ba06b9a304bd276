"""What labels add: other halves for temperature and rule, and nothing that does not help."""

import pytest
import torch
from torch import nn

import onesigma
from onesigma.calibration.guarding import with_guard
from onesigma.calibration.labelled import first_half, learn_from_labels, nll


def data(rows, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (rows,), generator=g)
    x = torch.randn(rows, 4, 16, generator=g)
    x[:, :3] += 0.5 * nn.functional.one_hot(labels, 3)[..., None]
    return x, labels


@pytest.fixture(scope="module")
def guarded():
    torch.manual_seed(1)
    net = nn.Sequential(
        *(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
        nn.Linear(8, 3),
    )
    x, y = data(800, 0)
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    with torch.no_grad():
        net[-1].weight *= 4  # over-confident
        net[-1].bias *= 4
    return with_guard(onesigma.convert(net.eval(), x[:4]), (x,))


def test_a_temperature_that_helps_is_kept(guarded):
    x, y = data(600, 1)
    made = learn_from_labels(guarded, (x, y))
    assert made.temperature is not None
    assert made.temperature.value > 1.2
    fresh, truth = data(2000, 2)
    before, after = (nll(m.predict(fresh), truth) for m in (guarded, made))
    assert after < before
    assert made.abstain is None


def test_the_rule_keeps_its_promise_on_new_inputs(guarded):
    x, y = data(1200, 3)
    made = learn_from_labels(guarded, (x, y), risk=0.1)
    fresh, truth = data(6000, 4)
    found = made.predict(fresh)
    risk = float((found.act & (found.label != truth)).float().mean())
    # The promise is in expectation over 600 examples: 5 of its standard errors.
    assert risk < 0.1 + 5 * (0.1 * 0.9 / 600) ** 0.5
    assert float(found.act.float().mean()) > 0.5
    strange = made.predict(20 + fresh[:200])
    assert not bool(strange.act.any())
    assert set(strange.reason) == {"broken input"}


def test_halves_share_nobody():
    people = torch.arange(100) % 7
    first = first_half(100, people, 0)
    assert not {*people[first].tolist()} & {*people[~first].tolist()}
    assert 30 < int(first_half(100, None, 0).sum()) < 70


@pytest.mark.parametrize(
    ("rows", "labels", "groups", "words"),
    [(50, 49, None, "50 inputs and 49 labels"), (20, 20, None, "at least"), (60, 60, 3, "groups")],
)
def test_what_does_not_fit_is_refused(guarded, rows, labels, groups, words):
    x, y = data(rows, 5)
    people = None if groups is None else torch.arange(groups)
    with pytest.raises(onesigma.InputError, match=words):
        learn_from_labels(guarded, (x, y[:labels]), groups=people)
