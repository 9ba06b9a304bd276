"""Splits: rows chosen, and all in units of the training inputs."""

import torch

from onesigma.lab.datasets.split import Split, make_splits


def split(inputs):
    return Split(inputs, torch.arange(len(inputs)), torch.zeros(len(inputs)).long())


def test_rows_are_chosen_by_mask_or_number():
    whole = split(torch.arange(4.0)[:, None])
    assert whole[torch.tensor([True, False, False, True])].labels.tolist() == [0, 3]
    assert whole[torch.tensor([2, 1])].inputs.flatten().tolist() == [2, 1]
    assert len(whole) == 4


def test_training_inputs_alone_set_the_units():
    raw = torch.randn(60, 3, 8, generator=torch.Generator().manual_seed(0)).double()
    raw = raw * torch.tensor([2.0, 5.0, 0.0])[:, None] + torch.tensor([1.0, -3.0, 7.0])[:, None]
    train, test = split(raw[:40]), split(raw[40:])
    made = make_splits(train, test, test, ("a",), "a set")
    found = made.train.inputs
    assert found.dtype == made.input_mean.dtype == torch.float32
    torch.testing.assert_close(found.mean(dim=(0, 2)), torch.zeros(3))
    # The last channel never varies and keeps its own scale.
    spread = found.std(dim=(0, 2), correction=0)
    torch.testing.assert_close(spread, torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(made.standardise(test.inputs), made.test.inputs)
    assert made.test.inputs[:, :2].mean(dim=(0, 2)).abs().max() > 1e-3
    assert made.name == "a set"
