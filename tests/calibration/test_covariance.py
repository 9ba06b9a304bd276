"""The covariance of the logits: its root, its value, and what the head makes of it."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import onesigma
from onesigma import head
from onesigma.engine import Engine
from onesigma.rules import RULES, rules_for
from onesigma.rules.affine import MAX_CLASSES, before_dropout
from onesigma.rules.corrections import Factors, Gain, Together
from onesigma.values.correlated import Correlated, cholesky
from onesigma.values.gaussian import Gaussian

P = 0.3
X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
DOUBLE, SINGLE = torch.float64, torch.float32


def dropout_linear(classes: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Dropout(P), nn.Linear(6, classes)).eval()


def covariances(classes: int, rank: int, dtype: torch.dtype = DOUBLE, batch: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(classes)
    root = torch.randn(batch, classes, rank, generator=generator, dtype=DOUBLE)
    return (root @ root.transpose(-1, -2)).to(dtype)


@pytest.mark.parametrize("classes", [1, 2, 3, 7, 20, 64])
@pytest.mark.parametrize(("dtype", "tolerance"), [(DOUBLE, 1e-10), (SINGLE, 1e-3)])
def test_cholesky_is_torchs(classes, dtype, tolerance):
    covariance = covariances(classes, 2 * classes, dtype)
    found, expected = cholesky(covariance), torch.linalg.cholesky(covariance.double())
    assert found.dtype == dtype
    size = expected.abs().max()
    torch.testing.assert_close(found.double() / size, expected / size, rtol=0, atol=tolerance)
    assert torch.equal(found, found.tril())


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1e4, 1e12])
def test_cholesky_does_not_depend_on_the_scale(scale):
    covariance = covariances(6, 12, SINGLE)
    root = cholesky(covariance)
    torch.testing.assert_close(
        cholesky(covariance * scale), root * math.sqrt(scale), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize(("classes", "rank"), [(4, 1), (4, 3), (10, 2), (10, 9), (64, 5)])
@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
def test_a_covariance_without_full_rank(classes, rank, dtype):
    covariance = covariances(classes, rank, dtype)
    root = cholesky(covariance)
    assert torch.isfinite(root).all()
    size = covariance.diagonal(dim1=-2, dim2=-1).max()
    again = root @ root.transpose(-1, -2)
    torch.testing.assert_close(again / size, covariance / size, rtol=0, atol=2e-3)


def test_certain_logits_among_uncertain_ones():
    covariance = covariances(5, 10)
    covariance[:, 2], covariance[:, :, 2] = 0, 0
    covariance[:, 0], covariance[:, :, 0] = 0, 0
    root = cholesky(covariance)
    assert not root[:, 2].any()
    assert not root[:, :, 2].any()
    torch.testing.assert_close(root @ root.transpose(-1, -2), covariance)


def test_no_covariance_at_all():
    zero = torch.zeros(2, 4, 4)
    assert torch.equal(cholesky(zero), zero)
    mean = torch.randn(2, 4)
    answer = head.classify(Correlated(mean, zero), head.fixed_draws(16, 4).float(), 1)
    torch.testing.assert_close(answer.probs, mean.softmax(-1))


def test_all_logits_move_together():
    """Noise common to all classes changes no probability."""
    mean = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    together = torch.full((2, 4, 4), 9.0)
    draws = head.fixed_draws(64, 4).float()
    answer = head.classify(Correlated(mean, together), draws, 1)
    torch.testing.assert_close(answer.probs, mean.softmax(-1), rtol=1e-4, atol=1e-5)
    assert answer.epistemic.max() < 1e-5
    apart = head.classify(Gaussian(mean, together.diagonal(dim1=-2, dim2=-1)), draws, 1)
    assert apart.epistemic.min() > 0.1


def engine_covariance(model: nn.Module, x: Tensor, *corrections):
    """The covariance that the engine carries, and the value without it."""
    source, rules = onesigma.convert(model, x).source, rules_for("inverted")
    (joint,) = Engine(source, rules, {"linear": (*corrections, Together())}).run(x)
    (alone,) = Engine(source, rules, {"linear": corrections}).run(x)
    assert isinstance(joint, Correlated)
    return joint.covariance.detach(), alone


def test_the_covariance_of_dropout_and_a_layer_is_exact():
    """Against all 2⁶ masks, and against Monte Carlo with its error bars."""
    model = dropout_linear().double()
    covariance, out = engine_covariance(model, X.double())
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=DOUBLE)] * 6)
    weight = (masks * (1 - P) + (1 - masks) * P).prod(1)[:, None, None]
    outputs = model[1](masks[:, None] * X.double() / (1 - P)).detach()
    deviation = outputs - (weight * outputs).sum(0)
    exact = torch.einsum("sbi,sbj->bij", weight * deviation, deviation)
    torch.testing.assert_close(covariance, exact, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(covariance.diagonal(dim1=1, dim2=2), out.var.detach())

    passes = 20_000
    mc = onesigma.mc_dropout(model, passes, task="regression")
    samples = torch.cat(list(mc.samples(X.double())))
    centred = samples - samples.mean(0)
    found = torch.einsum("sbi,sbj->bij", centred, centred) / (passes - 1)
    fourth = torch.einsum("sbi,sbj->bij", centred**2, centred**2) / passes
    assert ((found - covariance).abs() < 5 * ((fourth - found**2) / passes).sqrt()).all()


def test_the_gain_of_the_last_layer_multiplies_it():
    model = dropout_linear()
    plain, _ = engine_covariance(model, X)
    gained, out = engine_covariance(model, X, Gain(1.7))
    torch.testing.assert_close(gained, 1.7 * plain)
    torch.testing.assert_close(gained.diagonal(dim1=1, dim2=2), out.var.detach())


def test_a_gain_per_class():
    model = dropout_linear()
    gain = torch.tensor([1.0, 4.0, 0.25, 9.0])
    plain, _ = engine_covariance(model, X)
    gained, out = engine_covariance(model, X, Gain(gain))
    torch.testing.assert_close(gained, plain * gain.sqrt()[:, None] * gain.sqrt())
    torch.testing.assert_close(gained.diagonal(dim1=1, dim2=2), out.var.detach())


def test_correlated_inputs_of_the_last_layer_are_exact():
    """y = W x with Corr[x] = U Uᵀ off the diagonal, against the full matrix product."""
    torch.manual_seed(1)
    factors = 0.5 * torch.randn(6, 2)
    model = dropout_linear()
    layer, mean, var = model[1], torch.randn(3, 6), torch.rand(3, 6)
    weight, rule = layer.weight.detach(), RULES[torch.ops.aten.linear.default]
    arguments, correlated = (
        (Gaussian(mean, var), weight, layer.bias.detach()),
        Factors(factors, 0.0),
    )
    out = rule.apply(arguments, {}, (correlated,))
    joint = rule.apply(arguments, {}, (correlated, Together()))
    correlation = factors @ factors.T
    correlation.fill_diagonal_(1)
    std = var.sqrt()
    inputs = std[:, :, None] * correlation * std[:, None, :]
    exact = weight @ inputs @ weight.T
    torch.testing.assert_close(joint.covariance, exact)
    torch.testing.assert_close(out.var, exact.diagonal(dim1=1, dim2=2))


def test_of_a_dropout_before_only_what_came_in_is_correlated():
    p, came_in, mean = 0.3, torch.rand(3, 6), torch.randn(3, 6)
    dropped = RULES[torch.ops.aten.dropout.default].apply((Gaussian(mean, came_in), p, False), {})
    torch.testing.assert_close(before_dropout(dropped, p), came_in)


def test_an_input_prior_counts():
    model = nn.Sequential(nn.Linear(6, 4)).eval()
    converted = onesigma.convert(model, X, input_std=2.0, covariance=True, draws=4096)
    weight = model[0].weight.detach()
    covariance = (4 * weight @ weight.T).expand(3, 4, 4)
    with torch.no_grad():
        found, mean = converted(X), model(X)
    torch.testing.assert_close(found.var, covariance.diagonal(dim1=1, dim2=2))
    expected, error = brute_force(mean, covariance)
    assert ((found.probs - expected).abs() < 5 * error + 1e-3).all()


def brute_force(mean: Tensor, covariance: Tensor, draws: int = 100_000) -> tuple[Tensor, Tensor]:
    """Mean softmax of correlated normal logits, and its standard error."""
    normal = torch.distributions.MultivariateNormal(mean.double(), covariance.double())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        probs = normal.sample((draws,)).softmax(-1)
    return probs.mean(0), probs.std(0) / math.sqrt(draws)


@pytest.mark.parametrize("classes", [2, 4, 7])
def test_the_head_against_brute_force(classes):
    mean = 2 * torch.randn(5, classes, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    covariance = covariances(classes, classes)
    draws = head.fixed_draws(8192, classes)
    answer = head.classify(Correlated(mean, covariance), draws, 1)
    expected, error = brute_force(mean, covariance)
    assert ((answer.probs - expected).abs() < 5 * error + 1e-3).all()
    # Independent logits would be another answer.
    apart = head.classify(Gaussian(mean, covariance.diagonal(dim1=-2, dim2=-1)), draws, 1)
    assert ((apart.probs - expected).abs() > 5 * error + 1e-3).any()


def test_the_default_draws_are_close_enough():
    mean = 2 * torch.randn(64, 4, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    covariance = covariances(4, 4, batch=64)
    answer = head.classify(Correlated(mean, covariance), head.fixed_draws(64, 4), 1)
    expected, _ = brute_force(mean, covariance, 20_000)
    kl = (expected * (expected / answer.probs).log()).sum(-1).mean()
    assert kl < 2e-3


def test_diagonal_covariance_is_the_independent_head():
    mean, var = torch.randn(3, 4, dtype=DOUBLE), torch.rand(3, 4, dtype=DOUBLE)
    draws = head.fixed_draws(64, 4)
    joint = head.classify(Correlated(mean, torch.diag_embed(var)), draws, 1)
    for a, b in zip(joint, head.classify(Gaussian(mean, var), draws, 1), strict=True):
        torch.testing.assert_close(a, b)


def targets(converted: onesigma.Converted) -> list[str]:
    return [str(node.target) for node in converted.network.graph.nodes]


def test_only_the_head_changes():
    model, x = dropout_linear(), 4 * X
    off, on = (onesigma.convert(model, x, covariance=c) for c in (False, True))
    assert (off.settings.covariance, on.settings.covariance) == (False, True)
    with torch.no_grad():
        without, joint = off(x), on(x)
    torch.testing.assert_close(joint.mean, without.mean)
    torch.testing.assert_close(joint.var, without.var)
    assert (joint.probs - without.probs).abs().max() > 1e-3
    torch.testing.assert_close(joint.probs.sum(1), torch.ones(3))
    assert not any("linalg" in target for target in targets(on))  # every exporter knows these ops


def test_many_classes_fall_back_to_independent_logits():
    few, many = dropout_linear(MAX_CLASSES), dropout_linear(MAX_CLASSES + 1)
    off, on = (onesigma.convert(many, X, covariance=c) for c in (False, True))
    assert not on.settings.covariance
    assert targets(on) == targets(off)
    covariance, _ = engine_covariance(few, X)
    assert covariance.shape == (3, MAX_CLASSES, MAX_CLASSES)


def test_a_network_that_does_not_end_in_a_layer_falls_back():
    model = nn.Sequential(nn.Dropout(P), nn.Linear(6, 4), nn.Tanh()).eval()
    off, on = (onesigma.convert(model, X, covariance=c) for c in (False, True))
    assert targets(on) == targets(off)


def test_gradients_are_finite():
    model = onesigma.convert(dropout_linear(), X, covariance=True)
    x = X.clone()
    x[1] = 0  # nothing to drop: no covariance at all
    x.requires_grad_()
    prediction = model(x)
    (prediction.entropy.sum() + prediction.probs[:, 0].sum()).backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad[0].abs().sum() > 0


def test_gradients_through_a_deficient_root_are_finite():
    covariance = covariances(6, 2, SINGLE).requires_grad_()
    cholesky(covariance).sum().backward()
    assert torch.isfinite(covariance.grad).all()


def test_float64_and_any_batch(tmp_path):
    model = onesigma.convert(dropout_linear(), X, covariance=True)
    onesigma.save(model, tmp_path / "m.safetensors")
    with torch.no_grad():
        whole, again = model(X), onesigma.load(tmp_path / "m.safetensors")(X)
        alone = model(X[:1])
        double = copy.deepcopy(model).double()(X.double())
    assert torch.equal(again.probs, whole.probs)
    torch.testing.assert_close(alone.probs, whole.probs[:1])
    assert double.probs.dtype == DOUBLE
    torch.testing.assert_close(double.probs.float(), whole.probs, rtol=1e-4, atol=1e-5)


def test_the_report_says_when_there_is_no_covariance():
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.3), nn.Linear(4, 3), nn.ReLU()).eval()
    converted = onesigma.convert(model, torch.randn(2, 5), covariance=True)
    assert any("no covariance of the logits" in note for note in converted.report.notes)
    model = nn.Sequential(nn.Dropout(0.3), nn.Linear(5, 3)).eval()
    converted = onesigma.convert(model, torch.randn(2, 5), covariance=True)
    assert not any("no covariance" in note for note in converted.report.notes)
