"""Every rule against an oracle that does not know it, and what must hold of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from cases import CASES, OF_THE_SHAPE, REFUSED, Case, Maker, expected, op_name
from oracles import Expected, assert_below, assert_moments, means, outputs, replaced
from torch import Tensor

from onesigma.errors import UnsupportedOp
from onesigma.rules import RULES
from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64)
# The mean of a norm is computed by another formula than the op's own: close, not bitwise.
NORMS = {aten.instance_norm.default, aten.group_norm.default, aten.layer_norm.default}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_dtype = pytest.mark.parametrize(
    "dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch.")
)
quiet_cases = [case for case in CASES if not RULES[case.op].adds_noise]


def run(case: Case, args: tuple[Any, ...]) -> list[Gaussian]:
    """The rule, called as the engine calls it."""
    result = RULES[case.op].function(*args, **case.kwargs)
    return [value for value in outputs(result) if isinstance(value, Gaussian)]


def plain(case: Case, args: tuple[Any, ...]) -> list[Tensor]:
    results = outputs(case.op(*means(args), **case.kwargs))
    return [value for value in results if value.is_floating_point()]


def with_vars(args: tuple[Any, ...], change: Callable[[Gaussian], Tensor]) -> tuple[Any, ...]:
    twins: dict[int, Gaussian] = {}
    return replaced(args, lambda g: twins.setdefault(id(g), Gaussian(g.mean, change(g))))


def test_every_rule_has_a_case():
    covered = {case.op for case in CASES} | set(REFUSED) | set(OF_THE_SHAPE)
    missing = [op_name(op) for op in RULES if op not in covered]
    assert not missing, f"rules without a case in tests/cases.py: {missing}"


def test_case_names_are_unique():
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


@every_dtype
@every_case
def test_moments(case: Case, dtype: torch.dtype):
    actual = run(case, case.arguments(dtype))
    wanted = expected(case)
    assert len(actual) == len(wanted)
    for one, oracle in zip(actual, wanted, strict=True):
        if case.curve is not None:
            oracle = replace(oracle, mean_slack=own_rounding(case, dtype))
        if case.tolerance is None:
            assert_moments(one, oracle, rtol=case.tolerance_for(dtype), atol=case.floor)
        else:
            assert_approximates(one, oracle, case)


def own_rounding(case: Case, dtype: torch.dtype) -> Tensor:
    """How far the op itself is off at the mean, which is what it gives without variance."""
    args = means(case.arguments(dtype))
    exact = torch.from_numpy(case.curve(args[0].double().numpy()[None])[0])
    return (case.plain(*args).double() - exact).abs()


def assert_approximates(actual: Gaussian, oracle: Expected, case: Case) -> None:
    """For documented approximations: no worse than was measured."""
    assert case.tolerance is not None
    std = oracle.var.sqrt()
    off = (actual.mean.double() - oracle.mean).abs()
    assert_below(off, case.tolerance.mean * std + oracle.mean_slack, "mean")
    ratio = actual.var.double().sqrt() / std
    slack = oracle.var_slack / (2 * oracle.var)
    assert_below((ratio - 1).abs(), case.tolerance.std + slack, "std ratio")
    assert_below((ratio.median() - 1).abs(), case.tolerance.typical, "median std ratio")


@every_dtype
@every_case
def test_form(case: Case, dtype: torch.dtype):
    """Variances are finite and not negative; shape and dtype are those of the op's own output."""
    args = case.arguments(dtype)
    for actual, own in zip(run(case, args), plain(case, args), strict=True):
        assert actual.mean.shape == actual.var.shape == own.shape
        assert actual.mean.dtype == actual.var.dtype == own.dtype
        assert bool(torch.isfinite(actual.mean).all())
        assert bool(torch.isfinite(actual.var).all())
        assert bool((actual.var >= 0).all())


@every_dtype
@pytest.mark.parametrize("case", quiet_cases, ids=lambda case: case.name)
def test_without_variance_it_is_the_op(case: Case, dtype: torch.dtype):
    """The most valuable single test: var = 0 gives the original network, bit for bit."""
    args = with_vars(case.arguments(dtype), lambda g: torch.zeros_like(g.var))
    for actual, own in zip(run(case, args), plain(case, args), strict=True):
        assert bool((actual.var == 0).all())
        if case.op in NORMS:
            torch.testing.assert_close(actual.mean, own)
        else:
            assert torch.equal(actual.mean, own)


@every_case
def test_variance_with_a_batch_of_one(case: Case):
    """The variance of an input prior: as if it were expanded, and never of another shape."""
    args = case.arguments(torch.float64)
    small = with_vars(args, lambda g: g.var[:1])
    large = with_vars(args, lambda g: g.var[:1].expand_as(g.mean))
    for one, full in zip(run(case, small), run(case, large), strict=True):
        assert one.mean.shape == full.mean.shape
        assert one.var.shape in (one.mean.shape, (1, *one.mean.shape[1:]))
        assert torch.equal(one.mean, full.mean)
        torch.testing.assert_close(one.expanded().var, full.expanded().var)


@pytest.mark.parametrize("op", OF_THE_SHAPE, ids=op_name)
def test_what_depends_on_the_shape_is_certain(op: Any):
    x, args = Maker("size").gaussian(3, 4, 5), OF_THE_SHAPE[op]
    found, wanted = RULES[op].function(x, *args), op(x.mean, *args)
    assert RULES[op].certain
    assert torch.equal(found, wanted) if isinstance(wanted, Tensor) else found == wanted


@pytest.mark.parametrize("op", REFUSED, ids=op_name)
def test_refusals_name_a_remedy(op: Any):
    rule = RULES[op]
    assert rule.refuses
    reason, _, remedy = rule.note.partition(". ")
    assert reason
    assert remedy.startswith(("Put ", "Pool ", "Return ", "Write ", "Use "))


def test_no_other_rule_refuses():
    assert {op for op, rule in RULES.items() if rule.refuses} == set(REFUSED)


def test_a_refused_rule_is_never_run():
    assert RULES[aten.argmax.default].refuses
    with pytest.raises(UnsupportedOp, match="an argmax has no mean or variance"):
        RULES[aten.argmax.default].apply((Maker("").gaussian(3, 4),), {})


def normal() -> Gaussian:
    return Maker("normal").gaussian(3, 4)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (
            aten.batch_norm.default,
            (normal(), None, None, None, None, True, 0.1, 1e-5, False),
        ),
        (
            aten.batch_norm.default,
            (normal(), None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5, False),
        ),
    ],
    ids=["batch_norm", "batch_norm training"],
)
def test_refused_options(op: Any, args: tuple[Any, ...]):
    with pytest.raises(UnsupportedOp, match=r"\. |, or "):
        RULES[op].function(*args)


DROPOUTS = (
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)


@pytest.mark.parametrize("op", DROPOUTS, ids=op_name)
def test_dropout_of_nothing_returns_its_input(op: Any):
    for x in (torch.ones(3, 4), normal()):
        assert RULES[op].function(x, 0.0, False) is x


@pytest.mark.parametrize("op", DROPOUTS, ids=op_name)
def test_dropout_of_everything_is_certain(op: Any):
    x = normal()
    out = RULES[op].function(x, 1.0, False)
    assert isinstance(out, Tensor)
    assert torch.equal(out, op(x.mean, 1.0, True))


@pytest.mark.parametrize("op", DROPOUTS, ids=op_name)
def test_dropout_makes_certain_input_uncertain(op: Any):
    x = normal().mean
    certain = RULES[op].function(x, 0.3, False)
    as_gaussian = RULES[op].function(Gaussian(x, torch.zeros_like(x)), 0.3, False)
    assert torch.equal(certain.mean, as_gaussian.mean)
    torch.testing.assert_close(certain.var, as_gaussian.var)
    assert bool((certain.var > 0).all())
