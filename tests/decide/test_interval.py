"""Intervals of a regression: their promise on made-up data, and what is refused."""

import math

import pytest
import torch

import onesigma
from onesigma.decide.interval import Interval, fit_interval
from onesigma.prediction import Prediction


def made_up(count: int, seed: int) -> tuple[Prediction, torch.Tensor]:
    """Answers whose own variance says too little: the data scatter, too, and not normally."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(count, 2, generator=generator)
    var = torch.rand(count, 2, generator=generator) * torch.tensor([1.0, 0.01])
    noise = torch.randn(count, 2, generator=generator).sinh() * torch.tensor([0.5, 3.0])
    values = mean + var.sqrt() * torch.randn(count, 2, generator=generator) + noise
    return Prediction(mean, var), values


@pytest.mark.parametrize("risk", [0.1, 0.3])
def test_new_values_lie_inside_as_often_as_promised(risk):
    """Over 300 draws of the examples; within 4 standard errors, and not far too often."""
    shares = []
    for seed in range(300):
        seen, values = made_up(80, seed)
        interval = fit_interval(seen, values, torch.arange(80) < 40, risk)
        new, truth = made_up(200, 1000 + seed)
        told = interval.apply(new)
        shares.append(((truth >= told.low) & (truth <= told.high)).double().mean(0))
    found = torch.stack(shares)
    error = found.std(0) / math.sqrt(len(found))
    assert bool((found.mean(0) >= 1 - risk - 4 * error).all())
    assert bool((found.mean(0) <= 1 - risk + 1 / 41 + 4 * error).all())  # the bound of the theory


def test_it_is_wider_where_the_network_is_less_sure():
    seen, values = made_up(400, 0)
    told = fit_interval(seen, values, torch.arange(400) < 200, 0.1).apply(seen)
    width = (told.high - told.low)[:, 0]
    assert torch.equal(width.argsort(), seen.var[:, 0].argsort())


def test_a_map_is_one_example_by_its_worst_position():
    generator = torch.Generator().manual_seed(0)
    mean, values = torch.zeros(60, 1, 50), torch.randn(60, 1, 50, generator=generator)
    seen = Prediction(mean, torch.ones_like(mean))
    first = torch.arange(60) < 30
    interval = fit_interval(seen, values, first, 0.1)
    told = interval.apply(seen)
    inside = ((values >= told.low) & (values <= told.high)).flatten(1).all(1)
    assert int(inside[~first].sum()) == math.ceil(31 * 0.9)


def test_it_survives_json():
    seen, values = made_up(80, 0)
    interval = fit_interval(seen, values, torch.arange(80) < 40, 0.1)
    assert Interval.from_dict(interval.to_dict()) == interval
    assert "90 %" in interval.guarantee


@pytest.mark.parametrize(
    ("risk", "rows", "message"),
    [(0.01, 80, "198 labelled"), (1.5, 80, "share"), (0.1, 79, "shape")],
)
def test_what_cannot_be_promised_is_refused(risk, rows, message):
    seen, values = made_up(80, 0)
    with pytest.raises(onesigma.InputError, match=message):
        fit_interval(seen, values[:rows], torch.arange(80) < 40, risk)


def test_damaged_numbers_are_refused():
    with pytest.raises(onesigma.InputError, match="factor"):
        Interval((1.0,), (-1.0,), 0.1, 10)
