"""The scale pass: numbers leave the activations for the squared weights; the answer stays."""

import copy

import pytest
import torch
from models import ZOO, inputs_for, trained, without_dropout
from torch import Tensor, fx, nn

import onesigma
from onesigma.engine import Engine
from onesigma.graph.scale import scale_weights
from onesigma.rules import rules_for

aten = torch.ops.aten
# Five more, with gains on top: test_calibrate.py.
NETS = ("in_place", "functional", "norm_after_dropout", "decoder")
V = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))


class Build:
    """A graph written by hand: v, w and the ops on them."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.root = nn.Module()
        self.root.w = nn.Parameter(torch.randn(4, 6, generator=torch.Generator().manual_seed(1)))
        self.root.b = nn.Parameter(torch.ones(4))
        self.root.c = nn.Parameter(torch.tensor(3.0))
        self.v = self.graph.placeholder("v")
        self.w, self.b, self.c = (self.graph.get_attr(name) for name in "wbc")
        self.w2 = self.mul(self.w, self.w)

    def call(self, op, *args) -> fx.Node:
        return self.graph.call_function(op, args)

    def mul(self, *args) -> fx.Node:
        return self.call(aten.mul.Tensor, *args)

    def div(self, *args) -> fx.Node:
        return self.call(aten.div.Tensor, *args)

    def linear(self, *args) -> fx.Node:
        return self.call(aten.linear.default, *args)

    def module(self, *outputs: fx.Node) -> fx.GraphModule:
        self.graph.output(outputs)
        return fx.GraphModule(self.root, self.graph)


def on_activations(module: fx.GraphModule) -> list[str]:
    """The ops that depend on an input."""
    live: set[fx.Node] = set()
    for node in module.graph.nodes:
        if node.op == "placeholder" or any(n in live for n in node.all_input_nodes):
            live.add(node)
    return [str(node.target) for node in module.graph.nodes if node in live and node.op[0] == "c"]


def check(module: fx.GraphModule, moved: int, left: int) -> None:
    """So many factors move, so many ops on activations are left, and the answer is the same."""
    before = module(V)
    assert scale_weights(module) == moved
    for old, new in zip(before, module(V), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-6, atol=0)
    assert len(on_activations(module)) == left
    assert scale_weights(module) == 0


def test_a_factor_after():
    g = Build()
    check(g.module(g.mul(g.linear(g.v, g.w2), 1.7)), moved=1, left=1)


def test_a_divisor_after():
    g = Build()
    check(g.module(g.div(g.linear(g.v, g.w2), 7)), moved=1, left=1)


def test_a_factor_before():
    g = Build()
    check(g.module(g.linear(g.mul(g.v, 1.7), g.w2)), moved=1, left=1)


def test_a_divisor_before():
    g = Build()
    check(g.module(g.linear(g.div(g.v, 0.7), g.w2)), moved=1, left=1)


def test_several_at_once():
    g = Build()
    out = g.mul(g.div(g.linear(g.div(g.mul(g.v, 1.7), 0.7), g.w2, None), 1.3), 1)
    check(g.module(out), moved=4, left=1)


def test_two_layers_in_a_row():
    g = Build()
    hidden = g.mul(g.linear(g.div(g.v, 0.7), g.w2), 1.3)
    back = g.call(aten.permute.default, g.w2, [1, 0])
    check(g.module(g.linear(g.call(aten.linear.default, hidden, back), g.w2)), moved=2, left=3)


def test_a_biased_layer_is_left_alone():
    g = Build()
    check(g.module(g.mul(g.linear(g.mul(g.v, 2.0), g.w2, g.b), 3.0)), moved=0, left=3)


def test_a_scaled_value_that_others_use_is_left_alone():
    g = Build()
    scaled = g.mul(g.v, 1.7)
    check(g.module(g.linear(scaled, g.w2), scaled), moved=0, left=2)


def test_a_scaled_layer_may_have_many_users():
    """A gain before a ReLU: its moments read the variance many times."""
    g = Build()
    scaled = g.mul(g.linear(g.v, g.w2), 1.7)
    root, inverse = g.call(aten.sqrt.default, scaled), g.call(aten.reciprocal.default, scaled)
    check(g.module(root, inverse, scaled), moved=1, left=3)


def test_a_layer_that_others_use_is_left_alone():
    g = Build()
    layer = g.linear(g.v, g.w2)
    check(g.module(g.mul(layer, 1.7), layer), moved=0, left=2)


def test_shared_squares_stay_as_they_are_for_the_others():
    g = Build()
    check(g.module(g.mul(g.linear(g.v, g.w2), 1.7), g.linear(g.v, g.w2)), moved=1, left=2)


@pytest.mark.parametrize("zero", [0, 0.0])
def test_zero_is_left_alone(zero):
    g = Build()
    check(g.module(g.linear(g.mul(g.v, zero), g.w2)), moved=0, left=2)


def test_tensors_are_left_alone():
    g = Build()
    check(g.module(g.linear(g.mul(g.v, g.c), g.w2)), moved=0, left=2)
    g = Build()
    check(g.module(g.mul(g.linear(g.v, g.w2), g.b)), moved=0, left=2)
    g = Build()
    check(g.module(g.linear(g.mul(g.v, g.v), g.w2)), moved=0, left=2)


def test_only_squared_weights_take_factors():
    """A plain weight belongs to the mean, which is the original network bit for bit."""
    g = Build()
    check(g.module(g.mul(g.linear(g.div(g.v, 3), g.w), 0.3)), moved=0, left=3)


class Scaled(nn.Module):
    """Numbers around layers without bias, in the user's own network."""

    def __init__(self, p: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 5, bias=False), nn.Linear(5, 4, bias=False)
        self.drop = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.drop(self.first(x / 3) * 0.7) / 1.1) * 0.9


def test_the_mean_keeps_its_own_ops():
    model = Scaled(0.3).eval()
    with torch.no_grad():
        prediction = onesigma.convert(model, V)(V)
        assert torch.equal(prediction.mean, model(V))


def test_rate_zero_leaves_numbers_where_they_were():
    model = Scaled(0.0).eval()
    converted = onesigma.convert(model, V)
    assert scale_weights(copy.deepcopy(converted.network)) == 0
    with torch.no_grad():
        assert torch.equal(converted(V).mean, model(V))


@pytest.mark.parametrize("name", ["mlp", "in_place"])
def test_rate_zero_graphs_are_unchanged(name, monkeypatch):
    x = inputs_for(name, 3)
    scaled = onesigma.convert(without_dropout(name), x)
    monkeypatch.setattr("onesigma.conversion.scale_weights", lambda module: 0)
    plain = onesigma.convert(without_dropout(name), x)
    assert str(scaled.network.graph) == str(plain.network.graph)


@pytest.mark.parametrize("name", NETS)
def test_the_zoo_answers_as_the_engine_does(name):
    x = inputs_for(name, 5)
    converted = onesigma.convert(trained(name), x, task=ZOO[name].task)
    with torch.no_grad():
        (unscaled,) = Engine(converted.source, rules_for("inverted")).run(*x)
        scaled = converted(*x)
    torch.testing.assert_close(scaled.mean, unscaled.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scaled.var, unscaled.expanded().var, rtol=1e-4, atol=1e-9)
    assert scale_weights(copy.deepcopy(converted.network)) == 0
