"""The paper's networks: their form, and that they convert."""

import pytest
import torch
from torch import nn

import onesigma
from onesigma.lab.networks import convolutional, fully_connected

SHAPES = [(6, 20, 20), (6, 3, 25), (1, 24, 98), (6, 200)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_four_convolutions_and_a_linear_layer(shape):
    network = convolutional(shape, 7, width=8)
    convolution = nn.Conv2d if len(shape) == 3 else nn.Conv1d
    internal = [convolution, nn.ReLU, nn.Dropout]
    assert [type(layer) for layer in network] == internal * 4 + [nn.Flatten, nn.Linear]
    assert {layer.p for layer in network if isinstance(layer, nn.Dropout)} == {0.5}
    assert network(torch.zeros(3, *shape)).shape == (3, 7)
    # The borders of time are kept in play: the last layer sees 7 to 13 places.
    assert 7 * 8 <= network[-1].in_features <= 13 * 8


def test_five_fully_connected_layers():
    network = fully_connected((2, 3, 5), 4)
    assert [type(m) for m in network[1:]] == [nn.Linear, nn.ReLU, nn.Dropout] * 4 + [nn.Linear]
    assert [m.out_features for m in network if isinstance(m, nn.Linear)] == [512] * 4 + [4]
    assert {layer.p for layer in network if isinstance(layer, nn.Dropout)} == {0.5}
    assert network(torch.zeros(3, 2, 3, 5)).shape == (3, 4)


@pytest.mark.parametrize("build", [convolutional, fully_connected])
def test_each_converts(build):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 15)
    converted = onesigma.convert(build((3, 4, 15), 5, width=8), x)
    assert len(converted.report.sites) == 4
    assert converted(x).var.min() > 0
