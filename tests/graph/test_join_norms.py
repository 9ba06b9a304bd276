"""BatchNorm as part of the layer before it."""

import copy

import pytest
import torch
from torch import nn

from onesigma.graph.join_norms import join_norms
from onesigma.graph.prepare import prepare


def with_statistics(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.1, 3)
            if module.affine:
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
    return model.eval()


class TwoUsers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.layer(x)
        return y + self.norm(y)


DEPTHWISE = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4, affine=False))


@pytest.mark.parametrize(
    ("model", "shape", "count"),
    [
        (nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU()), (3, 4), 1),
        (nn.Sequential(nn.Conv1d(4, 6, 3, bias=False), nn.BatchNorm1d(6)), (3, 4, 9), 1),
        (DEPTHWISE, (3, 4, 9, 9), 1),
        (nn.Sequential(nn.Linear(9, 5), nn.BatchNorm1d(4)), (3, 4, 9), 0),
        (nn.Sequential(nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d(6)), (3, 4, 9), 0),
        (nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)), (3, 4), 0),
        (TwoUsers(), (3, 4), 0),
    ],
    ids=["linear", "conv", "depthwise", "sequence", "transposed", "before", "two users"],
)  # fmt: skip
def test_the_network_stays_the_same(model, shape, count):
    model = with_statistics(model)
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    graph = prepare(model, x, "regression", None).graph
    assert join_norms(graph) == count
    left = [n for n in graph.graph.nodes if n.target is torch.ops.aten.batch_norm.default]
    norms = sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    assert len(left) == norms - count
    with torch.no_grad():
        torch.testing.assert_close(graph(x)[0], model(x), rtol=1e-5, atol=1e-5)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
