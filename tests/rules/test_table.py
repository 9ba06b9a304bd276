"""The rule table: one rule per op, replaceable on purpose, open to users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import onesigma
from onesigma.engine import Engine
from onesigma.rules import RULES, Rule
from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def restored_table() -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


def nothing(x: Any) -> Any:
    return x


class Arched(nn.Module):
    """Dropout, a layer, then an op without a rule; a sinh before the dropout is certain."""

    def __init__(self, *, before: bool = False) -> None:
        super().__init__()
        self.inner, self.middle, self.outer = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.dropout = nn.Dropout(0.4)
        self.before = before

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sinh(self.inner(x)) if self.before else self.inner(x)
        h = self.dropout(h)
        return self.outer(h if self.before else torch.sinh(self.middle(h)))


def network(**options: bool) -> Arched:
    torch.manual_seed(0)
    return Arched(**options).eval()


def first_order(x: Gaussian) -> Gaussian:
    return Gaussian(torch.sinh(x.mean), torch.cosh(x.mean) ** 2 * x.var)


def test_a_mistake_in_a_rule_is_named():
    onesigma.rule(aten.sinh.default)(lambda x: x.nonsense)
    with pytest.raises(onesigma.UnsupportedOp, match="nonsense"):
        onesigma.convert(network(), torch.zeros(2, 6))


def test_a_second_rule_is_an_error():
    with pytest.raises(ValueError, match="replace=True"):
        RULES.add(aten.relu.default)(Rule(nothing, "own"))
    with pytest.raises(ValueError, match=r"aten\.relu\.default"):
        onesigma.rule(aten.relu.default)(nothing)


def test_a_failed_registration_changes_nothing():
    kept = RULES[aten.relu.default]
    with pytest.raises(ValueError, match="replace"):
        onesigma.rule(aten.relu.default)(nothing)
    assert RULES[aten.relu.default] is kept


def test_replace_puts_a_rule_in_place_of_another():
    onesigma.rule(aten.relu.default, replace=True, note="mine")(nothing)
    assert RULES[aten.relu.default].function is nothing
    assert RULES[aten.relu.default].note == "mine"


def test_one_rule_may_serve_several_ops():
    onesigma.rule(aten.sinh.default, aten.cosh.default)(nothing)
    assert RULES[aten.sinh.default] is RULES[aten.cosh.default]


def test_the_decorator_returns_the_function():
    assert onesigma.rule(aten.sinh.default)(nothing) is nothing


def test_without_a_rule_conversion_says_which_op():
    with pytest.raises(onesigma.UnsupportedOp, match="sinh"):
        onesigma.convert(network(), torch.ones(2, 6))


def test_a_rule_of_ones_own():
    onesigma.rule(aten.sinh.default, note="first order")(first_order)
    model, x = network(), torch.linspace(-1, 1, 24).reshape(4, 6)
    out = onesigma.convert(model, x, task="regression")(x)
    with torch.no_grad():
        h = model.inner(x)
        var = 0.4 * h * h / 0.6 @ model.middle.weight.T**2
        arched = first_order(Gaussian(model.middle(h), var))
        torch.testing.assert_close(out.mean, model.outer(arched.mean))
        torch.testing.assert_close(out.var, arched.var @ model.outer.weight.T**2)


def test_the_report_shows_a_rule_of_ones_own():
    onesigma.rule(
        aten.sinh.default, note="first order", assumes=(onesigma.Assumption.ALWAYS_APPROXIMATE,)
    )(first_order)
    report = onesigma.convert(network(), torch.ones(2, 6)).report
    (entry,) = [e for e in report.entries if "sinh" in e.op]
    assert entry.status == "approximate"
    assert "first order" in entry.note


def test_a_rule_is_called_for_uncertain_input_only():
    calls: list[Any] = []

    def counted(x: Any) -> Any:
        calls.append(x)
        return first_order(x)

    onesigma.rule(aten.sinh.default)(counted)
    onesigma.convert(network(before=True), torch.ones(2, 6))
    assert not calls
    onesigma.convert(network(), torch.ones(2, 6))
    assert calls
    assert all(isinstance(x, Gaussian) for x in calls)


def test_certain_values_go_through_the_op_itself():
    """Bit for bit: the network before its first dropout is not touched."""
    model, x = network(before=True), torch.linspace(-1, 1, 24).reshape(4, 6)
    out = onesigma.convert(model, x, task="regression")(x)
    with torch.no_grad():
        assert torch.equal(out.mean, model(x))


def arched_graph() -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.call_function(aten.sinh.default, (graph.placeholder("x"),)))
    return fx.GraphModule(nn.Module(), graph)


def test_the_engine_asks_a_rule_only_if_it_must():
    def never(*_args: Any) -> Any:
        raise AssertionError("called for certain input")

    def always(x: Any) -> Gaussian:
        return Gaussian(torch.sinh(x), torch.ones_like(x))

    x = torch.ones(2, 3)
    assert torch.equal(Engine(arched_graph(), {}).run(x), torch.sinh(x))
    rules = {aten.sinh.default: Rule(never, "own")}
    assert torch.equal(Engine(arched_graph(), rules).run(x), torch.sinh(x))
    rules = {aten.sinh.default: Rule(always, "own", adds_noise=True)}
    assert isinstance(Engine(arched_graph(), rules).run(x), Gaussian)


def test_the_engine_refuses_what_has_no_rule():
    x = Gaussian(torch.ones(2, 3), torch.ones(2, 3))
    for rules in ({}, {aten.sinh.default: Rule(None, "refuse", note="why")}):
        with pytest.raises(onesigma.UnsupportedOp, match="sinh"):
            Engine(arched_graph(), rules).run(x)
