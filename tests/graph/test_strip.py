"""Strip: a final softmax moves into the head; a final sigmoid is refused."""

import pytest
import torch
from torch import nn

import onesigma
from onesigma import (
    ModelError,
)
from onesigma.graph.capture import export, plain_module
from onesigma.graph.strip import strip_softmax

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def test_a_final_sigmoid_is_no_logit():
    model = nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 3), nn.Sigmoid()).eval()
    with pytest.raises(ModelError, match=r"sigmoid.*task='regression'"):
        onesigma.convert(model, X)
    assert onesigma.convert(model, X, task="regression")(X).mean.shape == (4, 3)


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(-1)])
def test_a_final_softmax_goes_and_leaves_its_dim(last):
    layer = nn.Linear(6, 3)
    graph = plain_module(export(nn.Sequential(layer, last).eval(), (X,), dynamic=True))
    dim, note = strip_softmax(graph)
    assert dim == last.dim
    assert "taken over by the head" in note
    assert torch.equal(graph(X)[0], layer(X))
    assert strip_softmax(graph) is None
