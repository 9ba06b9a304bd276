"""Teacher and student, on networks whose moments are known in closed form."""

import torch
from torch import nn

from onesigma.baselines.backbone import original
from onesigma.calibration.observation import silent
from onesigma.calibration.student import fit_energy
from onesigma.calibration.teacher import Lesson, Teacher

P = 0.4
X = torch.randn(600, 12, generator=torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    """Features, one dropout, one layer: mean and covariance of the logits are exact."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(P), nn.Linear(16, 3)).eval()


def exact(model: nn.Sequential, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """W h + b and the diagonal of W diag(h² p/q) Wᵀ."""
    features = model[1](model[0](x))
    return model(x), P / (1 - P) * features.square() @ model[3].weight.square().t()


def lesson(passes: int, x: torch.Tensor = X) -> Lesson:
    teacher = Teacher(original(network(), (X[:4],), "classification", None), (X[:4],))
    return teacher.teach((x,), passes, seed=0, progress=silent)


@torch.no_grad()
def test_the_teacher_says_what_dropout_does():
    found, passes = lesson(2000, X[:40]).logits, 2000
    mean, var = exact(network(), X[:40])
    assert ((found.mean(1) - mean).abs() <= 5 * (var / passes).sqrt() + 1e-5).all()
    fourth = (found - found.mean(1, keepdim=True)).pow(4).mean(1)
    error = ((fourth - var.square()).clamp(min=0) / passes).sqrt()
    assert ((found.var(1) - var).abs() <= 5 * error + 1e-5).all()


def test_how_far_one_pass_is():
    """Σ Var[p] / 2p by hand, averaged over the rows of a kind."""
    probs = torch.tensor([[[0.2, 0.8], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]])
    found = Lesson((X[:2],), probs.log(), kinds=2).noise
    by_hand = 0.02 / (2 * 0.3) + 0.02 / (2 * 0.7)
    torch.testing.assert_close(found, torch.tensor([by_hand, 0.0]))


@torch.no_grad()
def test_the_student_learns_the_exact_moments():
    source = original(network(), (X[:4],), "classification", None).graph
    fitted = fit_energy(source, lesson(24, X[:500]), seed=0, progress=silent)
    mean, var = exact(network(), X[500:])
    found_mean, found_var, *_ = fitted(X[500:])
    assert (found_mean - mean).square().mean() < var.mean() / 20  # the error of 20 passes
    ratio = (found_var.sum(1) / var.sum(1)).sqrt()
    assert 0.85 < float(ratio.median()) < 1.15


def test_the_same_seed_gives_the_same_student():
    source = original(network(), (X[:4],), "classification", None).graph
    taught = lesson(8, X[:100])
    first, second = (fit_energy(source, taught, seed=5, progress=silent) for _ in range(2))
    for a, b in zip(first(X[:3]), second(X[:3]), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
