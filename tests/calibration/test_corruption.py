"""Corrupted copies: of the same kind as the input, another each time, the same for a seed."""

import pytest
import torch

from onesigma.calibration.corruption import FITTED_ON, JUDGED_ON, Given, two_at_once
from onesigma.calibration.teacher import corrupt

SHAPES = [(9, 6, 40), (9, 1, 24, 30), (9, 2, 3, 50), (9, 1, 8, 8), (9, 30)]
KINDS = FITTED_ON | JUDGED_ON | {"two at once": two_at_once}


def inputs(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_each_kind(name, shape):
    x = inputs(shape)
    found = KINDS[name](x, generator())
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    assert torch.isfinite(found).all()
    assert not torch.equal(found, x)
    torch.testing.assert_close(KINDS[name](x, generator()), found, rtol=0, atol=0)


def test_some_are_kept_to_judge_by():
    assert {*JUDGED_ON} - {*FITTED_ON} == {"saturation", "spikes"}


def test_a_constant_channel_stays_finite():
    x = inputs((9, 6, 40))
    x[:, 2] = 1.0
    for kind in KINDS.values():
        assert torch.isfinite(kind(x, generator())).all()


@pytest.mark.parametrize("name", KINDS)
def test_time_may_come_first(name):
    x, kind = inputs((9, 6, 40)), KINDS[name]
    (found,) = corrupt((x.transpose(1, 2),), [kind], generator(), [1])
    torch.testing.assert_close(found.transpose(1, 2), kind(x, generator()), rtol=0, atol=0)


def test_a_function_of_the_user_takes_inputs_as_they_are():
    seen = []
    kind = Given(lambda x: seen.append(x.shape) or x)
    corrupt((inputs((9, 40, 6)),), [kind], generator(), [1])
    assert seen == [(9, 40, 6)]


def test_whole_numbers_stay_as_they_are():
    x, index = inputs((4, 6, 40)), torch.arange(4)
    kinds = [FITTED_ON["gain"], FITTED_ON["noise"]]
    first, second = corrupt((x, index), kinds, generator())
    assert len(first) == 8
    assert second.tolist() == [0, 1, 2, 3] * 2
