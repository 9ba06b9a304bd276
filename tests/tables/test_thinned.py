"""A stream thinned: evenly, bounded, and the same however it comes in batches."""

import pytest
import torch
from onesigma.tables.thinned import thinned


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize(("count", "step"), [(5, 1), (10, 1), (11, 2), (20, 2), (21, 4), (100, 16)])
def test_every_kth(batch: int, count: int, step: int) -> None:
    numbers = torch.arange(count)
    kept, found = thinned(iter(numbers.split(batch)), most=10)
    assert found == step
    assert kept.tolist() == numbers[::step].tolist()
    assert len(kept) <= 10
