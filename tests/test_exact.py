"""Where the method is exact it must be exact, to 1e-5 relative.

The expected variances are explicit sums in float64: the layer's matrix is found by running it on
unit vectors, so neither convolution nor w² of the code under test is used.
"""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import onesigma

RTOL = 1e-5


def jacobian(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """The (outputs, inputs) matrix of an affine layer in float64, by unit vectors."""
    double = copy.deepcopy(layer).double().eval()
    size = math.prod(shape)
    with torch.no_grad():
        units = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
        offset = double(torch.zeros(1, *shape, dtype=torch.float64))
        return (double(units) - offset).flatten(1).T


def explicit_variance(matrix: Tensor, var: Tensor) -> Tensor:
    """Σ_i w_ki² v_i as a plain sum, for each sample."""
    return torch.stack([(matrix**2 * row).sum(1) for row in var.double().flatten(1)])


def seeded(layer: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer


def sample(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


LAYERS = {
    "linear": (nn.Linear(6, 5), (6,)),
    "linear_over_time": (nn.Linear(6, 5), (4, 6)),
    "conv1d": (nn.Conv1d(3, 4, 3), (3, 9)),
    "conv1d_same": (nn.Conv1d(3, 4, 3, padding="same"), (3, 9)),
    "conv1d_strided_dilated": (nn.Conv1d(3, 4, 3, stride=2, dilation=2, padding=2), (3, 11)),
    "conv2d": (nn.Conv2d(3, 4, 3), (3, 6, 6)),
    "conv2d_strided": (nn.Conv2d(3, 4, 3, stride=2, padding=1), (3, 7, 6)),
    "conv2d_grouped": (nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 5, 5)),
    "conv2d_depthwise": (nn.Conv2d(4, 4, 3, groups=4, bias=False), (4, 5, 5)),
    "conv_transpose2d": (nn.ConvTranspose2d(3, 4, 3, stride=2), (3, 4, 4)),
}


def converted_layer(name: str, p: float | None = None, **settings) -> tuple[nn.Module, Tensor, ...]:
    layer, shape = LAYERS[name]
    seeded(layer)
    model = layer if p is None else nn.Sequential(nn.Dropout(p), layer)
    x = sample(3, *shape)
    return onesigma.convert(model, x, task="regression", **settings), x, layer


@pytest.mark.parametrize(
    ("name", "p"), [(name, 0.5) for name in LAYERS] + [("conv2d_strided", p) for p in (0.1, 0.9)]
)
def test_dropout_then_a_layer(name, p):
    converted, x, layer = converted_layer(name, p)
    with torch.no_grad():
        prediction, plain = converted(x), layer(x)
    of_one_input = p / (1 - p) * x.double() ** 2  # x z / q: variance x² p q / q²
    expected = explicit_variance(jacobian(layer, tuple(x.shape[1:])), of_one_input)
    torch.testing.assert_close(prediction.var.double().flatten(1), expected, rtol=RTOL, atol=0)
    assert torch.equal(prediction.mean, plain)
    assert [e.status for e in converted.report.entries] == ["noise", "exact"]


@pytest.mark.parametrize(
    ("name", "p"), [("linear", 0.5), ("linear", 0.1), ("conv1d", 0.5), ("conv2d_grouped", 0.3)]
)
def test_classic_dropout_is_equations_10_and_11(name, p):
    converted, x, layer = converted_layer(name, p, dropout="classic")
    matrix = jacobian(layer, tuple(x.shape[1:]))
    keep = 1 - p  # the paper's p
    mean = keep * x.double()
    var = keep * x.double() ** 2 - keep**2 * x.double() ** 2
    with torch.no_grad():
        prediction = converted(x)
        bias = layer(torch.zeros_like(x)).double().flatten(1)
    expected = explicit_variance(matrix, var)
    torch.testing.assert_close(prediction.var.double().flatten(1), expected, rtol=RTOL, atol=0)
    expected_mean = mean.flatten(1) @ matrix.T + bias
    actual_mean = prediction.mean.double().flatten(1)
    torch.testing.assert_close(actual_mean, expected_mean, rtol=RTOL, atol=1e-5)


def priors(shape: tuple[int, ...]) -> dict[str, tuple[float | Tensor, Tensor]]:
    """Each form of ``input_std`` and the full tensor it stands for."""
    full = sample(*shape, seed=5).abs() + 0.1
    channel = sample(shape[0], seed=6).abs() + 0.1
    forms = {"scalar": (0.3, torch.full(shape, 0.3)), "full": (full, full)}
    if len(shape) > 1:
        spread = channel.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)
        kept = channel.reshape(-1, *[1] * (len(shape) - 1))
        forms |= {"channel": (channel, spread), "broadcast": (kept, spread)}
    return forms


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, "full") for name in LAYERS]
    + [("linear", "scalar"), ("conv1d_same", "scalar"), ("conv2d_strided", "scalar")]
    + [("conv1d", "channel"), ("conv2d_grouped", "channel"), ("conv2d_strided", "broadcast")],
)
def test_input_prior_then_a_layer(name, form):
    layer, shape = LAYERS[name]
    given, std = priors(shape)[form]
    converted, x, _ = converted_layer(name, input_std=given)
    with torch.no_grad():
        prediction, plain = converted(x), layer(x)
    expected = explicit_variance(jacobian(layer, shape), std.expand(3, *shape).double() ** 2)
    torch.testing.assert_close(prediction.var.double().flatten(1), expected, rtol=RTOL, atol=0)
    assert torch.equal(prediction.mean, plain)
    assert [e.status for e in converted.report.entries] == ["exact"]


def test_prior_and_dropout_together():
    layer = seeded(nn.Conv2d(3, 4, 3))
    x, std, p = sample(2, 3, 6, 6), 0.4, 0.3
    converted = onesigma.convert(
        nn.Sequential(nn.Dropout(p), layer), x, input_std=std, task="regression"
    )
    before = (std**2 + p * x.double() ** 2) / (1 - p)
    expected = explicit_variance(jacobian(layer, (3, 6, 6)), before)
    var = converted(x).var.detach().double().flatten(1)
    torch.testing.assert_close(var, expected, rtol=RTOL, atol=0)


def test_linear_chain_without_mixing_stays_exact():
    """Dropout, a per-element gain, an eval BatchNorm and a layer: still the analytic variance."""
    norm = nn.BatchNorm1d(3)
    norm.running_mean.copy_(sample(3))
    norm.running_var.copy_(sample(3).abs() + 0.5)
    chain = nn.Sequential(norm, seeded(nn.Conv1d(3, 4, 3)))
    x, p = sample(2, 3, 8), 0.25
    converted = onesigma.convert(nn.Sequential(nn.Dropout(p), chain), x, task="regression")
    expected = explicit_variance(jacobian(chain, (3, 8)), p / (1 - p) * x.double() ** 2)
    var = converted(x).var.detach().double().flatten(1)
    torch.testing.assert_close(var, expected, rtol=RTOL, atol=0)
    assert not converted.report.approximate


class TwoConvs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.drop(self.conv1(x).relu()))
        return self.head(x.mean((2, 3)))


def convolutions(converted: onesigma.Converted) -> int:
    nodes = converted.network.graph.nodes
    return sum(node.op == "call_function" and "conv" in str(node.target) for node in nodes)


def test_the_prior_through_the_first_conv_is_computed_at_conversion():
    torch.manual_seed(0)
    model, x = TwoConvs().eval(), sample(4, 3, 8, 8)
    without = onesigma.convert(model, x)
    folded = onesigma.convert(model, x, input_std=0.2)
    constants = [name for name, _ in folded.network.named_buffers() if "prior_var" in name]
    assert constants
    assert not [name for name, _ in without.network.named_buffers() if "prior_var" in name]
    # The mean of both convs and the variance of the second: nothing more at run time.
    assert convolutions(without) == convolutions(folded) == 3
    # One value for all samples, not one per sample.
    var = folded.network.get_buffer(constants[0])
    assert var.shape == (1, 8, 6, 6)
    expected = explicit_variance(jacobian(model.conv1, (3, 8, 8)), torch.full((1, 3, 8, 8), 0.04))
    torch.testing.assert_close(var.double().flatten(1), expected, rtol=RTOL, atol=0)


def test_the_prior_folds_through_a_chain_of_linear_layers():
    model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.Conv1d(8, 8, 3), nn.ReLU())
    model = nn.Sequential(model, nn.Flatten(), nn.Linear(8 * 6, 4)).eval()
    converted = onesigma.convert(model, sample(2, 3, 10), input_std=torch.tensor([0.1, 0.2, 0.3]))
    assert convolutions(converted) == 2  # the two means
    # What the ReLU reads (the variance, its square root, …) has a batch of one.
    constants = [t for n, t in converted.network.named_buffers() if "prior_var" in n]
    assert {tuple(constant.shape) for constant in constants} == {(1, 8, 6)}


def test_a_prior_of_zero_adds_nothing():
    torch.manual_seed(0)
    model, x = TwoConvs().eval(), sample(4, 3, 8, 8)
    with torch.no_grad():
        with_zero, without = (onesigma.convert(model, x, input_std=std)(x) for std in (0.0, None))
    torch.testing.assert_close(with_zero.var, without.var, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(with_zero.mean, without.mean)
