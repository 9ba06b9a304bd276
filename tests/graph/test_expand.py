"""Second names of ops, and conversions that convert nothing."""

import pytest
import torch
from torch import Tensor, nn

import onesigma
from onesigma.graph.prepare import prepare
from onesigma.rules import RULES

X = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))

SECOND_NAMES = {
    "absolute": torch.absolute,
    "clip": lambda x: torch.clip(x, -0.5, 0.5),
    "concat": lambda x: torch.concat([x, x], 1),
    "concatenate": lambda x: torch.concatenate([x, x], 1),
    "divide": lambda x: torch.divide(x, 2.0),
    "divide_": lambda x: (x + 0).divide_(2.0),
    "moveaxis": lambda x: torch.moveaxis(x, 1, 2),
    "multiply": lambda x: torch.multiply(x, 2.0),
    "multiply_": lambda x: (x + 0).multiply_(2.0),
    "negative": torch.negative,
    "subtract": lambda x: torch.subtract(x, 0.3),
    "subtract_": lambda x: (x + 0).subtract_(0.3),
    "swapaxes": lambda x: torch.swapaxes(x, 1, 2),
    "swapdims": lambda x: torch.swapdims(x, 1, 2),
}


class Applied(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(nn.functional.dropout(x, 0.3, self.training))


@pytest.mark.parametrize("name", SECOND_NAMES)
def test_second_names(name):
    """The value is the same, and every op of the graph has a rule."""
    model = Applied(SECOND_NAMES[name]).eval()
    graph = prepare(model, X, "regression", None).graph
    assert torch.equal(graph(X)[0], model(X))
    ops = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert all(op in RULES for op in ops)


class Addmm(nn.Module):
    """A linear layer as some programs write it."""

    def __init__(self, turned) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.turned = nn.Linear(6, 3), turned

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.dropout(x.mean(1), 0.3, self.training)
        if self.turned is None:
            return self.layer(x)
        return torch.addmm(self.layer.bias, x, self.turned(self.layer.weight))


@pytest.mark.parametrize(
    "turned",
    [
        lambda w: w.t(),
        lambda w: w.T,
        lambda w: w.transpose(1, 0),
        lambda w: w.permute(1, 0),
        lambda w: w.reshape(6, 3),
    ],
)
def test_addmm_has_the_moments_of_the_linear_layer_that_it_computes(turned):
    model = Addmm(turned).eval()
    found = onesigma.convert(model, X, task="regression")(X)
    torch.testing.assert_close(found.mean, model(X))
    if turned(model.layer.weight).stride() == (1, 6):
        plain = onesigma.convert(Addmm(None).eval(), X, task="regression")(X)
        torch.testing.assert_close(found.var, plain.var)


def test_conversions_that_convert_nothing_are_dropped():
    """They would hold a model that is made double to float32."""
    model = Applied(lambda x: x.to(torch.float32).to("cpu", torch.float32).mean(2)).eval()
    converted = onesigma.convert(model, X)
    assert not [e for e in converted.report.entries if e.op.startswith("aten.to")]
    assert converted.double()(X.double()).mean.dtype == torch.float64


def test_conversions_that_convert_stay():
    model = Applied(lambda x: x.to(torch.float64)).eval()
    graph = prepare(model, X, "regression", None).graph
    assert graph(X)[0].dtype == torch.float64
