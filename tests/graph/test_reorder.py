"""Reorder: a max pool and the rectifier before it change places, to the last bit."""

import pytest
import torch
from torch import Tensor, nn

from onesigma.graph.capture import export, plain_module
from onesigma.graph.reorder import pool_first

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))


def order(model: nn.Module) -> list[str]:
    """The ops after the pass, which must not change the answer."""
    graph = plain_module(export(model.eval(), (X,), dynamic=True))
    pool_first(graph)
    assert torch.equal(graph(X)[0], model(X))
    ops = [str(n.target).split(".")[1] for n in graph.graph.nodes if n.op == "call_function"]
    return [op for op in ops if not op.startswith("sym")]


@pytest.mark.parametrize("rectifier", [nn.ReLU(), nn.ReLU6(), nn.Hardtanh()])
def test_the_pool_comes_first(rectifier):
    after = order(nn.Sequential(rectifier, nn.MaxPool1d(2)))
    assert after[0] == "max_pool1d"
    assert len(after) == 2


class UsedTwice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(x)
        return nn.functional.max_pool1d(h, 2) + h[..., ::2]


@pytest.mark.parametrize(
    "model", [UsedTwice(), nn.Sequential(nn.GELU(), nn.MaxPool1d(2)), nn.MaxPool1d(2)]
)
def test_what_must_stay_stays(model):
    assert order(model).index("max_pool1d") == (0 if isinstance(model, nn.MaxPool1d) else 1)
