import torch
from onesigma.lab.demo.network import WatchNet
from torch import nn

from onesigma.lab.datasets.watch import INPUT_SHAPE


def test_window_in_logits_out():
    assert WatchNet()(torch.zeros(3, *INPUT_SHAPE)).shape == (3, 7)


def test_the_form_of_the_paper():
    kinds = [type(layer) for layer in WatchNet().layers]
    internal = [nn.Conv2d, nn.ReLU, nn.Dropout]
    assert kinds == internal * 4 + [nn.Flatten, nn.Linear]
    assert {layer.p for layer in WatchNet().layers if isinstance(layer, nn.Dropout)} == {0.5}


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    network, x = WatchNet(), torch.randn(2, *INPUT_SHAPE)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))
