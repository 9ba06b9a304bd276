"""Ops that are taken apart: what PyTorch composes itself, and what noise meets without a rule."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onesigma
from onesigma.graph.expand import MADE_OF
from onesigma.graph.flow import trace_noise
from onesigma.graph.prepare import prepare
from onesigma.rules import RULES

aten = torch.ops.aten

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


COMPOSED = {
    "einsum": lambda x: torch.einsum("bci,ij->bcj", x, torch.ones(6, 2)),
    "tensordot": lambda x: torch.tensordot(x, torch.ones(6, 2), 1),
    "hstack": lambda x: torch.hstack([x, x]),
    "diff": lambda x: x.diff(),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "tile": lambda x: x.tile(1, 2),
    "expand_as": lambda x: x[:, :1].expand_as(x),
    "view_as": lambda x: x.view_as(x + 1),
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim((1, 2), (2, 1)),
    "take_along_dim": lambda x: torch.take_along_dim(x, torch.tensor([[[0], [2], [1], [1]]]), 2),
    "cosine_similarity": lambda x: F.cosine_similarity(x, 2 * x + 1),
    "std": lambda x: x.std(2),
    "lstm_cell": lambda x: torch.lstm_cell(
        x[:, 0], (x[:, 1], x[:, 2]), torch.ones(24, 6), torch.ones(24, 6) / 3
    )[0],
}


@pytest.mark.parametrize("name", COMPOSED)
def test_what_pytorch_composes(name):
    model = Applied(COMPOSED[name]).eval()
    converted = onesigma.convert(model, X, task="regression")
    torch.testing.assert_close(converted.source(X)[0], model(X))
    assert bool(torch.isfinite(converted(X).var).all())


def weights(*shape: int) -> Tensor:
    """Numbers of both signs, without a random generator: they are made within forward()."""
    return (1.7 * torch.arange(math.prod(shape))).sin().reshape(shape)


EXAMPLES = {
    aten.addbmm.default: lambda x: torch.addbmm(weights(4, 2), x, weights(3, 6, 2), beta=2),
    aten.addcdiv.default: lambda x: torch.addcdiv(x, weights(3, 4, 6), weights(6) + 9, value=3),
    aten.addcmul.default: lambda x: torch.addcmul(weights(6), x, weights(4, 6), value=0.5),
    aten.addmm.default: lambda x: torch.addmm(weights(2), x[:, 0], weights(6, 2), alpha=3),
    aten.aminmax.default: lambda x: torch.stack(x.aminmax(dim=2)),
    aten.amin.default: lambda x: x.amin((1, 2)),
    aten.baddbmm.default: lambda x: torch.baddbmm(weights(2), x, weights(3, 6, 2), alpha=2),
    aten.bilinear.default: lambda x: F.bilinear(x, weights(3, 4, 5), weights(2, 6, 5), weights(2)),
    aten.cdist.default: lambda x: torch.cdist(x, weights(3, 2, 6)),
    aten.clamp.Tensor: lambda x: x.clamp(weights(6) - 1, weights(4, 6) + 1),
    aten.clamp_max.Tensor: lambda x: x.clamp_max(weights(6)),
    aten.clamp_min.Tensor: lambda x: x.clamp_min(weights(6)),
    aten.constant_pad_nd.default: lambda x: torch.constant_pad_nd(x, [1, 2], 3.0),
    aten.div.Tensor_mode: lambda x: torch.div(x, weights(6) + 2, rounding_mode=None),
    aten.exp2.default: torch.exp2,
    aten.expm1.default: torch.expm1,
    aten.glu.default: F.glu,
    aten.hypot.default: lambda x: torch.hypot(x, weights(4, 6) + 3),
    aten.im2col.default: lambda x: F.unfold(x.unsqueeze(1), (2, 3), padding=(1, 0), stride=(2, 1)),
    aten.lerp.Scalar: lambda x: torch.lerp(x, weights(6), 0.3),
    aten.lerp.Tensor: lambda x: torch.lerp(weights(4, 6), x, weights(6)),
    aten.linalg_vector_norm.default: lambda x: torch.linalg.vector_norm(x, 2, 2),
    aten.log10.default: lambda x: torch.log10(x + 9),
    aten.log1p.default: lambda x: torch.log1p(x + 9),
    aten.log2.default: lambda x: torch.log2(x + 9),
    aten.logaddexp.default: lambda x: torch.logaddexp(x, weights(3, 4, 6)),
    aten.log_softmax.int: lambda x: x.log_softmax(1),
    aten.masked_fill.Scalar: lambda x: x.masked_fill(weights(6) > 0, 2.0),
    aten.masked_fill.Tensor: lambda x: x.masked_fill(weights(6) > 0, weights()),
    aten.max.default: lambda x: x - x.max(),
    aten.max.dim: lambda x: x.max(1).values,
    aten.max_pool2d_with_indices.default: lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    aten.max_pool3d_with_indices.default: lambda x: F.max_pool3d(
        x.unsqueeze(1), (1, 2, 2), return_indices=True
    )[0],
    aten.mean.default: lambda x: x - x.mean(),
    aten.min.default: lambda x: x - x.min(),
    aten.min.dim: lambda x: x.min(2, keepdim=True).values,
    aten.minimum.default: lambda x: torch.minimum(x, weights(6)),
    aten.mv.default: lambda x: torch.mv(x[:, 0], weights(6)),
    aten.pairwise_distance.default: lambda x: F.pairwise_distance(x, weights(4, 6)),
    aten.pow.Scalar: lambda x: 2**x,
    aten.pow.Tensor_Tensor: lambda x: (x + 9) ** weights(6),
    aten.pow.Tensor_Scalar: lambda x: (
        x**0 + x**5 + (x.abs() + 3) ** -2 + (x + 9) ** 0.7 + (x + 9) ** 0.5
    ),
    aten.rrelu.default: F.rrelu,
    aten.scaled_dot_product_attention.default: lambda x: F.scaled_dot_product_attention(
        x, x + 1, 2 * x, is_causal=True
    ),
    aten.std.correction: lambda x: x.std(1, keepdim=True),
    aten.std_mean.correction: lambda x: torch.cat(torch.std_mean(x, 1, keepdim=True), 1),
    aten.sum.default: lambda x: x + x.sum(),
    aten.tril.default: lambda x: x.tril(1),
    aten.triu.default: lambda x: x.triu(1),
    aten.unfold.default: lambda x: x.unfold(2, 3, 2),
    aten.var.correction: lambda x: x.var(1, correction=0),
    aten.var_mean.correction: lambda x: torch.cat(torch.var_mean(x, (1, 2), keepdim=True), 1),
}
LINEAR = {"addbmm", "addcmul", "addmm", "baddbmm", "bilinear", "constant_pad_nd", "im2col"} | {
    *("lerp", "masked_fill", "tril", "triu", "unfold", "addcdiv", "div", "mv")
}


def test_every_composition_has_an_example():
    assert set(EXAMPLES) == set(MADE_OF)


@pytest.mark.parametrize("op", EXAMPLES, ids=str)
def test_what_noise_meets_is_composed(op):
    """The answer is the same, no such op is left, and the moments follow from its Jacobian."""
    model = Plain(EXAMPLES[op]).eval()
    converted = onesigma.convert(model, X, input_std=0.3, task="regression")
    torch.testing.assert_close(converted.source(X)[0], model(X))
    steps = trace_noise(converted.source, RULES, prior=True).steps
    assert all(step.rule for step in steps.values())
    assert op in RULES or op not in {node.target for node in steps}
    out = converted(X)
    assert bool(torch.isfinite(out.mean).all() & torch.isfinite(out.var).all())
    if op.overloadpacket.__name__ in LINEAR:
        torch.testing.assert_close(out.mean, model(X))
        slope = torch.autograd.functional.jacobian(model, X).flatten(-3)
        torch.testing.assert_close(out.var, 0.09 * slope.square().sum(-1))


@pytest.mark.parametrize("op", EXAMPLES, ids=str)
def test_what_no_noise_meets_stays_as_it_is(op):
    model = Before(EXAMPLES[op]).eval()
    out = onesigma.convert(model, X, task="regression")(X)
    assert torch.equal(out.mean, model(X))


class Plain(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Before(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.function(x), 0.3, self.training)


def test_dropout_of_weights():
    """DropConnect: y = Σ x w with w dropped, Var[y] = Σ x² w² p / q."""
    weight, p = weights(5, 6), 0.3
    model = Dropped(weight, p).eval()
    converted = onesigma.convert(model, X, task="regression")
    out = converted(X)
    torch.testing.assert_close(out.mean, model(X))
    torch.testing.assert_close(out.var, X.square() @ weight.T.square() * p / (1 - p))
    assert not converted.report.approximate


class Dropped(nn.Module):
    def __init__(self, weight: Tensor, p: float) -> None:
        super().__init__()
        self.weight, self.p = nn.Parameter(weight), p

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, F.dropout(self.weight, self.p, self.training))


def test_a_quotient_is_approximate_and_says_so():
    model = Applied(lambda h: h.sum(2) / (h.sum(1, keepdim=True).sum(2) + 30)).eval()
    report = onesigma.convert(model, X, task="regression").report
    assert {e.op for e in report.approximate} >= {"aten.reciprocal", "aten.mul.Tensor"}


def test_a_value_and_its_dropout_stay_two_values():
    """min(x, d) with d = 0 or x / q: q · x on average where x > 0, else (1 + p) x."""

    class Smaller(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.minimum(x, F.dropout(x, p, self.training))

    x, p = X.flatten(1), 0.3
    found = onesigma.convert(Smaller().eval(), x, task="regression")(x)
    torch.testing.assert_close(found.mean, torch.where(x > 0, (1 - p) * x, (1 + p) * x))


def test_what_has_no_form_stays_whole_and_is_refused_by_its_name():
    model = Plain(
        lambda x: torch.div(F.dropout(x, 0.3, False) @ torch.ones(6, 2), 2, rounding_mode="floor")
    )
    with pytest.raises(onesigma.UnsupportedOp, match=r"aten\.div\.Tensor_mode"):
        onesigma.convert(model.eval(), X, input_std=0.1)
