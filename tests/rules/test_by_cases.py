"""Values of which each element is one of two: any function of single elements is exact."""

import pytest
import torch

from onesigma.errors import UnsupportedOp
from onesigma.rules import RULES, rules_for
from onesigma.rules.by_cases import by_cases
from onesigma.values.gaussian import Gaussian, TwoValued

aten = torch.ops.aten
X = torch.linspace(-3, 4, 24, dtype=torch.float64).reshape(3, 8)
P = 0.3


def dropped(x=X, op=aten.dropout.default, rules=RULES) -> TwoValued:
    return rules[op].function(x, P, False)


def call(op, *args):
    return by_cases(op, RULES.get(op), args, {})


def assert_two(found, kept, other):
    """Mean and variance of ``kept`` with 1 − p and ``other`` with p."""
    mean = (1 - P) * kept.double() + P * other.double()
    second = (1 - P) * kept.double() ** 2 + P * other.double() ** 2
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.var, second - mean**2)


@pytest.mark.parametrize(
    ("op", "function", "options"),
    [
        (aten.relu.default, torch.relu, ()),
        (aten.sinh.default, torch.sinh, ()),
        (aten.round.default, torch.round, ()),
        (aten.gt.Scalar, torch.gt, (0.5,)),
        (aten.pow.Tensor_Scalar, torch.pow, (3,)),
        (aten.add.Tensor, torch.add, (100.0,)),
        (aten.mul.Tensor, torch.mul, (X,)),
        (aten.transpose.int, torch.transpose, (0, 1)),
    ],
    ids=["relu", "sinh", "round", "gt", "pow", "add", "mul", "transpose"],
)
def test_of_both_values(op, function, options):
    found = call(op, dropped(), *options)
    assert_two(found, function(X / (1 - P), *options), function(torch.zeros_like(X), *options))


@pytest.mark.parametrize("form", ["inverted", "classic"])
@pytest.mark.parametrize("op", [aten.dropout.default, aten.alpha_dropout.default])
def test_the_two_values_have_the_moments_of_the_dropout(op, form):
    x = dropped(op=op, rules=rules_for(form))
    assert_two(x, x.kept, x.dropped)


def test_values_of_one_mask_meet():
    h = dropped()
    both = call(aten.mul.Tensor, h, call(aten.sigmoid.default, h))
    kept = X / (1 - P)
    assert_two(both, kept * kept.sigmoid(), torch.zeros_like(X))


def test_other_masks_do_not():
    h = dropped()
    assert call(aten.mul.Tensor, h, dropped()) is None
    assert call(aten.mul.Tensor, h, call(aten.flip.default, h, [1])) is None
    assert call(aten.mul.Tensor, *call(aten.chunk.default, h, 2, 1)) is None
    assert call(aten.mul.Tensor, h, Gaussian(X, X * X)) is None
    assert call(aten.mm.default, h, X.T) is None


def test_what_is_not_finite_has_finite_moments():
    for op in (aten.log.default, aten.reciprocal.default, aten.sqrt.default):
        found = call(op, dropped())
        assert bool(torch.isfinite(found.mean).all() & torch.isfinite(found.var).all())


def test_an_index_that_depends_on_the_mask_is_refused():
    where = call(aten.gt.Scalar, dropped(), 0.0)
    assert call(aten.index.Tensor, X, [where]) is None
    with pytest.raises(UnsupportedOp, match="something other than its first input"):
        RULES[aten.index.Tensor].apply((X, [where]), {})
