"""The guard against oracles in numpy and scipy, and its promise: novelty is a tail probability."""

import math

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import norm

from onesigma import Prediction
from onesigma.decide.guard import Guard, Layout, make_contract

CHANNELS, POSITIONS, CLASSES = 3, 40, 2


def signals(rows, seed=0, channels=CHANNELS, positions=POSITIONS):
    """Two kinds of series, of other size and smoothness, and logits that tell them apart."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.arange(rows) % 2
    x = torch.randn(rows, channels, positions, generator=g)
    smooth = x.cumsum(2) / 5
    scale = torch.exp(0.3 * torch.randn(rows, channels, 1, generator=g))
    x = torch.where(kind[:, None, None] == 0, x, smooth) * scale
    x = x + 0.5 * torch.randn(rows, channels, 1, generator=g)
    logits = torch.stack([1.0 - 2 * kind, 2.0 * kind - 1], 1)
    logits = logits + 0.2 * torch.randn(rows, CLASSES, generator=g)
    layer = torch.relu(x[:, :2] + 0.1)
    return x, layer, logits


def learnt(rows=600, **options):
    tensors = signals(rows, **options)
    guard = Guard([Layout.of(tensors[0].shape[1:])], signed=False)
    bounds = guard.learn(guard.measure(*tensors), torch.arange(rows) % 5)
    return guard, bounds


@pytest.fixture(scope="module")
def guard():
    return learnt()[0]


@pytest.mark.parametrize(
    ("shape", "names", "layout"),
    [
        ((7,), None, (7, 1)),
        ((6, 200), None, (6, 200)),
        ((1, 24, 98), None, (24, 98)),
        ((2, 3, 250), None, (6, 250)),
        ((6, 20, 20), None, (6, 400)),
        ((3, 64, 64), None, (3, 4096)),
        ((2, 3, 250), 2, (2, 750)),
        ((6, 20, 20), 120, (120, 20)),
    ],
)
def test_what_is_a_channel(shape, names, layout):
    assert Layout.of(shape, names) == Layout(*layout)


@pytest.mark.parametrize(
    ("shape", "time", "layout"),
    [
        ((200, 6), 0, (6, 200, True)),
        ((200, 2, 3), 0, (6, 200, True)),
        ((1, 200, 6), 1, (6, 200, True)),
        ((6, 200), 1, (6, 200, False)),
        ((7,), 0, (7, 1, False)),
    ],
)
def test_channels_may_come_last(shape, time, layout):
    assert Layout.of(shape, None, time) == Layout(*layout)


def test_statistics_are_the_same_wherever_the_channels_are():
    x = torch.randn(5, 6, 40)
    expected = Layout.of((6, 40)).moments(x)
    found = Layout.of((40, 6), None, 0).moments(x.transpose(1, 2))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_statistics_by_numpy(guard):
    x, layer, logits = signals(11, seed=3)
    means, squares, size, _ = guard.measure(x, layer, logits)
    rows = x.double().numpy()
    mean = rows.mean(2)
    apart = (rows - mean[..., None]) ** 2
    step = np.diff(rows, axis=2) ** 2
    np.testing.assert_allclose(means[..., 0], mean, rtol=1e-5, atol=1e-6)
    expected = np.concatenate([apart.mean(2), apart.max(2), step.mean(2)], 1)
    np.testing.assert_allclose(squares[..., 0], expected, rtol=1e-5)
    np.testing.assert_allclose(size[:, 0], np.abs(layer.numpy()).mean((1, 2)), rtol=1e-5)


def in_numpy(guard, measured):
    """The features in float64: statistics, squares of means, size, logits."""
    means, squares, size, logits = (each.double().numpy() for each in measured)
    logs = np.log(squares + guard.get_buffer("tiny").double().numpy())
    parts = [means[..., 0], logs[..., 0], means[..., 0] ** 2, size, logits]
    return torch.from_numpy(np.concatenate(parts, 1))


def test_the_density_by_scipy():
    """Normals with the moments of each class's whitened rows; the logit is a line in −D."""
    rows, shrink = 600, 20
    tensors = signals(rows)
    guard, _ = learnt(rows)
    measured = guard.measure(*tensors)
    features = in_numpy(guard, measured)
    whiten, origin, forms, constants = (
        guard.get_buffer(name).double() for name in ("whiten", "origin", "forms", "constants")
    )
    white = (features @ whiten + origin).numpy()
    labels = tensors[-1].argmax(1).numpy()
    parts = []
    for k in (0, 1):
        group = white[labels == k]
        var = (len(group) * group.var(0) + shrink) / (len(group) + shrink)
        logs = norm.logpdf(white, group.mean(0), np.sqrt(var)).sum(1) + math.log(len(group) / rows)
        # Without the constant of the normal density, which the tail takes in.
        parts.append((logs + 0.5 * white.shape[1] * math.log(2 * math.pi), var, group.mean(0)))
    wanted = np.max([logs for logs, _, _ in parts], 0)
    lines = []
    for column in range(0, forms.shape[1], 2):  # of the first class, for each line
        logs, var, mean = parts[0]
        slope = -2 * float(forms[0, column]) * var[0]
        rest = math.log((labels == 0).mean()) - 0.5 * (mean**2 / var + np.log(var)).sum()
        lines.append(float(constants[column]) - slope * rest + slope * wanted)
    novelty = guard(*tensors)[1].double().numpy()
    np.testing.assert_allclose(novelty, expit(np.max(lines, 0)), rtol=1e-2, atol=1e-5)


def test_the_whitening_whitens():
    """The covariance within classes, a twentieth of it taken as none, becomes the identity."""
    tensors = signals(600)
    guard, _ = learnt(600)
    measured = guard.measure(*tensors)
    features = in_numpy(guard, measured).numpy()
    std = features.std(0)
    labels, scaled = tensors[-1].argmax(1).numpy(), features / std
    within = sum(np.cov(scaled[labels == k].T, bias=True) * (labels == k).mean() for k in (0, 1))
    within = 0.95 * within + 0.05 * np.diag(np.diag(within))
    directions = guard.get_buffer("whiten").double().numpy() * std[:, None]
    found = directions.T @ within @ directions
    np.testing.assert_allclose(found, np.eye(len(found)), atol=1e-2)


@pytest.mark.parametrize("level", [0.5, 0.1, 0.02])
def test_novelty_is_the_share_of_known_inputs_that_are_as_odd(level):
    guard, _ = learnt(2000)
    fresh = 20000
    novelty = guard(*signals(fresh, seed=7))[1]
    share = float((novelty < level).float().mean())
    # Quantiles of the 2,000 it learnt from scatter, too: by 5 of their standard errors.
    assert abs(share - level) < 5 * math.sqrt(level * (1 - level) / 2000) + 0.15 * level


def test_known_inputs_keep_the_contract_and_broken_ones_are_named(guard):
    x, layer, logits = signals(300, seed=5)
    assert float((guard(x, layer, logits)[0].abs().amax(1) <= 1).float().mean()) > 0.98
    _, bounds = learnt()
    contract = make_contract(guard, bounds, channels=["a", "b", "c"], units=["g", "g", "m/s"])
    stuck, large = x.clone(), x.clone()
    stuck[:, 1] = stuck[:, 1, :1]
    large[:, 2] *= 50
    for broken, name, guess in ((stuck, "b", "flat line"), (large, "c", "m/s")):
        places, novelty = guard(broken, layer, logits)
        assert bool((places.abs().amax(1) > 1).all())
        assert float(novelty.max()) < 0.02
        said = contract.explain(Prediction(logits, logits, contract=places, novelty=novelty))
        assert all(f"channel {name}:" in words and guess in words for words in said), said[:3]
    assert np.mean(["other units?" in words for words in said]) > 0.9


EXTREMES = [0.0, 1e-30, 1e-12, 1e6, 1e15, 1e18, -1e18]


@pytest.mark.parametrize("value", EXTREMES)
def test_never_nan_and_never_negative(guard, value):
    x, layer, logits = signals(4, seed=5)
    for strange in (torch.full_like(x, value), x * value, x + value):
        _, novelty = guard(strange, layer, logits)
        assert bool(((novelty >= 0) & (novelty <= 1)).all())


def test_rows_are_answered_alone_as_in_a_batch(guard):
    tensors = signals(9, seed=8)
    contract, novelty = guard(*tensors)
    for row in range(9):
        alone = guard(*(t[row : row + 1] for t in tensors))
        torch.testing.assert_close(alone[0][0], contract[row], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(alone[1][0], novelty[row], rtol=1e-4, atol=1e-6)


def test_single_values_and_a_series_together():
    x, layer, logits = signals(400)
    values = torch.randn(400, 5, generator=torch.Generator().manual_seed(1))
    guard = Guard([Layout.of(x.shape[1:]), Layout.of(values.shape[1:])])
    bounds = guard.learn(guard.measure(x, values, layer, logits), torch.arange(400) % 5)
    contract = make_contract(guard, bounds)
    places, novelty = guard(x, values, layer, logits)
    assert contract.statistics == ("mean",)
    assert places.shape == (400, 8)
    odd = values.clone()
    odd[:, 3] += 100
    places, strange = guard(x, odd, layer, logits)
    assert bool((places[:, 6] > 1).all())
    assert float(strange.max()) < 0.02 < float(novelty.median())


def test_channels_that_never_vary_do_no_harm():
    x, layer, logits = signals(400)
    x[:, 0] = 0.0
    guard = Guard([Layout.of(x.shape[1:])])
    guard.learn(guard.measure(x, layer, logits), torch.arange(400) % 5)
    places, novelty = guard(x, layer, logits)
    assert bool(torch.isfinite(places).all())
    assert float((novelty < 0.02).float().mean()) < 0.06


def test_a_length_that_is_always_the_same_is_learnt():
    """As that of gravity: turned anyhow it is known, longer or shorter it is not."""
    g = torch.Generator().manual_seed(0)

    def turned(rows, length):
        direction = torch.randn(rows, 3, 1, generator=g)
        noise = 0.05 * torch.randn(rows, 3, 40, generator=g)
        x = length * direction / direction.norm(dim=1, keepdim=True) + noise
        return x, torch.relu(x), torch.zeros(rows, 2)

    guard = Guard([Layout.of((3, 40))])
    guard.learn(guard.measure(*turned(800, 1.0)), torch.arange(800) % 5)
    alarms = [float((guard(*turned(400, k))[1] < 0.02).float().mean()) for k in (1.0, 0.8, 1.2)]
    assert alarms[0] < 0.06
    assert min(alarms[1:]) > 0.95
