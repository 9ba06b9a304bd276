"""The replacement of Erf, against scipy in float64."""

import numpy as np
import pytest
import torch
from scipy import special

from onesigma.exporters.without_erf import WithoutErf, erf, erfc, gelu

X = torch.cat([torch.linspace(-12, 12, 200_001), torch.logspace(-12, 0, 1001)]).double()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 5e-7), (torch.float64, 1e-7)])
def test_the_stated_bound_of_erf(dtype, bound):
    x = X.to(dtype)
    assert np.abs(erf(x).double().numpy() - special.erf(x.double().numpy())).max() < bound


def test_the_tail_of_erfc_does_not_cancel():
    x = torch.linspace(0, 8, 10_001)
    expected = special.erfc(x.double().numpy())
    assert (np.abs(erfc(x).double().numpy() / expected - 1)).max() < 2e-5
    assert (1 - torch.erf(x))[-1] == 0  # what it replaces has nothing left there


def test_gelu_is_right_on_the_left_too():
    x = torch.linspace(-8, 8, 10_001)
    expected = x.double().numpy() * special.ndtr(x.double().numpy())
    relative = np.abs(gelu(x).double().numpy() - expected) / np.maximum(np.abs(expected), 1e-30)
    assert relative.max() < 1e-5


class Erfs(torch.nn.Module):
    def forward(self, x):
        gelu = torch.nn.functional.gelu
        return torch.erf(x) + torch.erfc(x) + gelu(x) + gelu(x, approximate="tanh") + torch.exp(x)


class Replaced(torch.nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def forward(self, x):
        return WithoutErf(self.graph).run(x)


def test_the_graph_loses_its_erfs_and_keeps_the_rest():
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    graph = torch.export.export(Erfs(), (x,)).module()
    traced = torch.export.export(Replaced(graph), (x,), strict=False)
    calls = {str(n.target): n for n in traced.graph.nodes if n.op == "call_function"}
    assert not {"aten.erf.default", "aten.erfc.default"} & set(calls)
    assert calls["aten.gelu.default"].kwargs == {"approximate": "tanh"}
    torch.testing.assert_close(traced.module()(x), Erfs()(x), rtol=1e-5, atol=1e-6)
