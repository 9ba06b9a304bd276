"""Low rank: exact where w² is a product, keeps each filter's sum, and never forms the variance."""

import itertools

import pytest
import torch
from torch import Tensor

from onesigma.rules import RULES, rules_for
from onesigma.rules.corrections import Parts
from onesigma.rules.lowrank import HALF_WIDTH, LOWRANK, channel_sum, rank_one, relu_of_uniform
from onesigma.values.factored import Factored, Flattened, factored
from onesigma.values.gaussian import Gaussian

aten = torch.ops.aten
DIMS = {1: aten.conv1d.default, 2: aten.conv2d.default, 3: aten.conv3d.default}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def product_weight(filters: int, channels: int, kernel: tuple[int, ...]) -> Tensor:
    """A weight whose square is a product, with signs in disorder."""
    parts = [random(n, seed=i) + 0.1 for i, n in enumerate((filters, channels, *kernel))]
    names = "abcdefg"[: len(parts)]
    square = torch.einsum(",".join(names) + "->" + names, *parts)
    return square.sqrt() * (random(*square.shape, seed=9) - 0.5).sign()


def uncertain(*shape: int) -> Gaussian:
    return Gaussian(random(*shape, seed=4) - 0.5, random(*shape, seed=5))


@pytest.mark.parametrize("groups", [1, 2])
def test_rank_one_keeps_the_sum_of_each_filter(groups):
    weight = random(6, 4, 3, 3) - 0.5
    filters, channels, taps = rank_one(weight, groups)
    assert torch.allclose(filters, (weight**2).sum((1, 2, 3)))
    assert torch.allclose(channels.sum(1), torch.ones(groups, dtype=weight.dtype))
    assert torch.allclose(taps.sum((1, 2)), torch.ones(groups, dtype=weight.dtype))


def test_rank_one_is_the_closest_product_in_generalised_kl():
    square = (random(5, 4, 3) - 0.5) ** 2
    filters, channels, taps = rank_one(square.sqrt(), 1)

    def distance(a: Tensor, b: Tensor, g: Tensor) -> float:
        near = torch.einsum("a,b,c->abc", a, b, g)
        return float((square * (square / near).log() - square + near).sum())

    best = distance(filters, channels[0], taps[0])
    for seed in range(20):
        moves = [1 + 0.05 * (random(n, seed=seed) - 0.5) for n in (5, 4, 3)]
        other = distance(filters * moves[0], channels[0] * moves[1], taps[0] * moves[2])
        assert other > best


def test_weights_of_zero_give_no_nan():
    filters, channels, taps = rank_one(torch.zeros(3, 2, 3), 1)
    assert all(not bool(part.isnan().any()) for part in (filters, channels, taps))


GEOMETRIES = [
    (1, (None, [1], [0], [1], 1)),
    (1, (None, [2], [2], [2], 1)),
    (2, (None, [1, 1], [1, 1])),
    (2, (None, [2, 1], [0, 2], [1, 2], 1)),
    (3, (None, [1, 1, 1], [1, 0, 1], [1, 1, 1], 1)),
]


@pytest.mark.parametrize(("dims", "rest"), GEOMETRIES)
def test_a_convolution_whose_square_is_a_product_is_exact(dims, rest):
    x = uncertain(2, 4, *[7] * dims)
    weight = product_weight(5, 4, (3,) * dims)
    rest = (random(5, seed=7), *rest[1:])
    found = LOWRANK[DIMS[dims]].function(x, weight, *rest)
    wanted = RULES[DIMS[dims]].function(x, weight, *rest)
    assert isinstance(found, Factored)
    assert found.position is not None
    assert found.position.shape[1] == 1
    assert torch.equal(found.mean, wanted.mean)
    assert torch.allclose(found.var, wanted.var)


def test_a_grouped_convolution_is_a_product_in_each_group():
    x, weight = uncertain(2, 6, 8), torch.cat([product_weight(4, 3, (3,)) * k for k in (1, 2)])
    rest = (None, [1], [1], [1], 2)
    found = LOWRANK[aten.conv1d.default].function(x, weight, *rest)
    assert torch.allclose(found.var, RULES[aten.conv1d.default].function(x, weight, *rest).var)


def test_padding_by_name():
    x, weight = uncertain(2, 4, 6, 6), product_weight(5, 4, (3, 3))
    found = LOWRANK[aten.conv2d.padding].function(x, weight, None, [1, 1], "same")
    wanted = RULES[aten.conv2d.padding].function(x, weight, None, [1, 1], "same")
    assert torch.allclose(found.var, wanted.var)


def test_a_depthwise_convolution_has_nothing_to_sum_and_stays_in_full():
    x, weight = uncertain(2, 4, 6), random(4, 1, 3)
    rest = (None, [1], [1], [1], 4)
    found = LOWRANK[aten.conv1d.default].function(x, weight, *rest)
    assert torch.equal(found.var, RULES[aten.conv1d.default].function(x, weight, *rest).var)


def test_linear_layers_of_features_and_of_flattened_maps():
    features, weight = uncertain(3, 8), product_weight(5, 8, ())
    found = LOWRANK[aten.linear.default].function(features, weight, random(5))
    wanted = RULES[aten.linear.default].function(features, weight, random(5))
    assert torch.allclose(found.var, wanted.var)

    maps = uncertain(3, 4, 2, 3)
    flat = LOWRANK[aten.flatten.using_ints].function(factored(maps), 1)
    assert isinstance(flat, Flattened)
    assert torch.allclose(flat.var, maps.var.flatten(1))
    weight = product_weight(5, 4, (2, 3)).flatten(1)
    found = LOWRANK[aten.linear.default].function(flat, weight)
    wanted = RULES[aten.linear.default].function(Gaussian(flat.mean, flat.var), weight)
    assert torch.allclose(found.var, wanted.var)


@pytest.mark.parametrize(
    ("scale", "position", "gate", "square"),
    [*itertools.product([2.0, "channels"], [False, True], [False, True], [0.0, 0.7])],
)
def test_the_sum_over_channels_is_that_of_the_variance_in_full(scale, position, gate, square):
    if not (position or gate or square):
        return
    shape = (2, 4, 5)
    value = Factored(
        random(*shape),
        random(4, 1, seed=1) if scale == "channels" else scale,
        random(2, 1, 5, seed=2) if position else None,
        random(*shape, seed=3) if gate else None,
        square,
    )
    channels = random(1, 4, seed=6)
    found = channel_sum(value, channels)
    # mean² counts for 1e-4 more there, so that no spread is too small for the polynomials.
    extra = 1e-4 * value.mean**2 if square else 0.0
    wanted = ((value.var + extra) * channels[0][:, None]).sum(1, keepdim=True)
    assert torch.allclose(found.expand_as(wanted), wanted)


def test_factors_along_another_dimension_are_multiplied_out():
    """Features last, and as many as there are channels: of the same size, but another thing."""
    tokens = Factored(random(2, 4, 4), random(4, seed=1), random(2, 4, 1, seed=2))
    weight = product_weight(5, 4, (3,))
    rest = (None, [1], [1])
    found = LOWRANK[aten.conv1d.default].function(tokens, weight, *rest)
    wanted = RULES[aten.conv1d.default].function(tokens, weight, *rest)
    assert torch.allclose(found.var, wanted.var)
    weight = product_weight(5, 4, ())
    found = LOWRANK[aten.linear.default].function(tokens, weight)
    assert torch.allclose(found.var, RULES[aten.linear.default].function(tokens, weight).var)


@pytest.mark.parametrize("corrections", [(), (Parts(1.3, 0.8),)])
@pytest.mark.parametrize("form", ["tensor", "full", "factors", "flat"])
def test_dropout_is_that_of_the_common_table(form, corrections):
    maps = uncertain(2, 3, 4)
    x = {
        "tensor": maps.mean,
        "full": maps,
        "factors": Factored(maps.mean, random(3, 1), random(2, 1, 4), square=0.2),
        "flat": Flattened(maps.mean.flatten(1), factored(maps)),
    }[form]
    found = LOWRANK[aten.dropout.default].apply((x, 0.3, False), {}, corrections)
    wanted = RULES[aten.dropout.default].apply((x, 0.3, False), {}, corrections)
    assert type(found) is (Flattened if form == "flat" else Factored)
    assert torch.equal(found.mean, wanted.mean)
    assert torch.allclose(found.var, wanted.var)


def test_the_rectifier_of_a_uniform_against_its_integral():
    mean = torch.linspace(-4, 4, 41, dtype=torch.float64)
    width = torch.full_like(mean, 1.7)
    fields = (width, -2 * width, 0.25 / width)
    first, second = relu_of_uniform(mean, *fields)
    steps = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    y = torch.relu(mean[:, None] + width[:, None] * (2 * steps - 1))
    assert torch.allclose(first, y.mean(1), atol=1e-7)
    assert torch.allclose(2 / 3 * second, (y * y).mean(1), atol=1e-6)


def test_the_rectifier_of_a_uniform_is_near_that_of_a_normal():
    mean = torch.linspace(-6, 6, 241, dtype=torch.float64)
    var = torch.ones_like(mean)
    width = HALF_WIDTH * var.sqrt()
    first, second = relu_of_uniform(mean, width, -2 * width, 0.25 / width)
    normal = RULES[aten.relu.default].function(Gaussian(mean, var))
    assert float((first - normal.mean).abs().max()) < 0.035
    assert float((2 / 3 * second - first**2 - normal.var).abs().max()) < 0.09


def test_a_rectifier_without_factors_is_the_common_one():
    x = uncertain(2, 3, 4)
    found = LOWRANK[aten.relu.default].function(x)
    wanted = RULES[aten.relu.default].function(x)
    assert torch.equal(found.mean, wanted.mean)
    assert torch.equal(found.var, wanted.var)


def test_tables_are_merged_in_order():
    assert rules_for("inverted", "full", "matched") == RULES
    assert (
        rules_for("inverted", "lowrank", "matched")[aten.relu.default]
        is not RULES[aten.relu.default]
    )
    classic = rules_for("classic", "lowrank", "frozen")[aten.dropout.default]
    assert classic.apply((torch.ones(2, 3), 0.5, False), {}).var.max() == 0.25
