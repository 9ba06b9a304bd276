"""The networks of sensing: each builds, answers, has dropout and can be trained."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from onesigma.lab import sensing_networks as sensing
from onesigma.lab.bench.trained import RECIPES

SOUND, SAMPLES = (1, 24, 98), (6, 200)
# Name → builder, shape of an input, number of classes, chances of its dropouts.
NETWORKS = {
    "conv_lstm": (sensing.ConvLstm, SAMPLES, 6, [0.5, 0.5]),
    "gru_keywords": (sensing.GruKeywords, SOUND, 10, [0.3, 0.3]),
    "transformer": (sensing.Transformer, SAMPLES, 6, [0.1] * 13),
    "se_cnn": (sensing.se_cnn, SAMPLES, 6, [0.3] * 4),
}


def chances(network: nn.Module) -> list[float]:
    """Also those of recurrent layers and of attention, which are no modules."""
    found = [m.p for m in network.modules() if isinstance(m, nn.Dropout)]
    inside = (nn.RNNBase, nn.MultiheadAttention)
    return found + [m.dropout for m in network.modules() if isinstance(m, inside)]


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_dropout_and_one_step(name):
    build, shape, classes, wanted = NETWORKS[name]
    torch.manual_seed(0)
    network, x = build().eval(), torch.randn(2, *shape)
    assert chances(network) == wanted
    assert sum(p.numel() for p in network.parameters()) < 100_000
    with torch.no_grad():
        both, one = network(x), network(x[:1])
    assert both.shape == (2, classes)
    torch.testing.assert_close(both[:1], one, rtol=1e-4, atol=1e-5)
    optimizer = torch.optim.SGD(network.train().parameters(), 1e-3)
    F.cross_entropy(network(x), torch.ones(2, dtype=torch.long)).backward()
    assert all(weight.grad is not None for weight in network.parameters())
    optimizer.step()
    assert all(weight.isfinite().all() for weight in network.parameters())


def test_each_has_a_recipe():
    assert {name: build for name, (build, *_) in NETWORKS.items()} == {
        name: RECIPES[name].build for name in NETWORKS
    }


def test_an_attention_pool_is_a_weighted_mean():
    x = torch.randn(3, 8, 20)
    pool = sensing.AttentionPool(8)
    with torch.no_grad():
        nn.init.zeros_(pool.score[-1].weight)
        torch.testing.assert_close(pool(x), x.mean(-1))
