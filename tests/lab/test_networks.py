"""The networks: their form, and that they convert."""

import pytest
import torch
from torch import nn

import onesigma
from onesigma.lab import networks
from onesigma.lab.datasets import watch
from onesigma.lab.networks import WatchNet, convolutional, fully_connected, paper_cnn, seeded_cnn

SHAPES = [(6, 20, 20), (6, 3, 25), (1, 24, 98), (6, 200)]
INTERNAL = [nn.Conv2d, nn.ReLU, nn.Dropout]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_four_convolutions_and_a_linear_layer(shape):
    network = convolutional(shape, 7, width=8)
    internal = INTERNAL if len(shape) == 3 else [nn.Conv1d, *INTERNAL[1:]]
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


def test_the_papers_network():
    network = paper_cnn()
    assert network(torch.zeros(2, *networks.INPUT_SHAPE)).shape == (2, networks.CLASSES)
    convolutions = [m for m in network if isinstance(m, nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [64] * 4
    assert [m.kernel_size for m in convolutions] == [(3, 3)] * 4
    assert not network.training


def test_seeded_weights_are_the_same_each_time_and_keep_the_signal():
    first, second = (seeded_cnn(width=16, size=8) for _ in range(2))
    x = torch.randn(8, 6, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(first(x), second(x))
        assert 0.3 < first(x).std() < 3


def test_the_demos_network_has_the_form_of_the_paper():
    network, x = WatchNet(), torch.randn(2, *watch.INPUT_SHAPE)
    assert network(x).shape == (2, len(watch.CLASS_NAMES))
    kinds = [type(layer) for layer in network.layers]
    assert kinds == INTERNAL * 4 + [nn.Flatten, nn.Linear]
    assert {layer.p for layer in network.layers if isinstance(layer, nn.Dropout)} == {0.5}
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))


def test_harder_networks_take_their_inputs():
    for build, shape, classes in (
        (networks.MotionCnn, (6, 200), 6),
        (networks.ResidualCnn, (6, 200), 6),
        (networks.KeywordCnn, (1, 24, 98), 10),
    ):
        assert build(width=4)(torch.zeros(2, *shape)).shape == (2, classes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("build", "shape", "classes", "sites"),
    [
        (lambda: convolutional((3, 4, 15), 5, width=4), (3, 4, 15), 5, 4),
        (lambda: fully_connected((3, 4), 5, width=8), (3, 4), 5, 4),
        (lambda: paper_cnn(size=8, width=4, classes=10, channels=1), (1, 8, 8), 10, 4),
        (networks.MotionCnn, (6, 200), 6, 4),
        (networks.ResidualCnn, (6, 200), 6, 5),
        (networks.KeywordCnn, (1, 24, 98), 10, 5),
    ],
    ids=["convolutional", "fully_connected", "paper", "motion", "residual", "keyword"],
)
def test_each_converts(build, shape, classes, sites):
    torch.manual_seed(0)
    x = torch.randn(2, *shape)
    converted = onesigma.convert(build(), x)
    assert len(converted.report.sites) == sites
    with torch.no_grad():
        var = converted(x).var
    assert var.shape == (2, classes)
    assert var.min() > 0
