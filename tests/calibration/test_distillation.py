"""What a student learns, and what it leaves alone."""

import copy

import pytest
import torch
from torch import nn

from onesigma.baselines.backbone import original
from onesigma.calibration import distillation
from onesigma.calibration.distillation import Training, distil, fit_energy, fit_particles
from onesigma.calibration.observation import silent
from onesigma.calibration.teacher import Lesson, Teacher
from onesigma.graph.particles import spread
from onesigma.graph.prepare import prepare

TRAINING = Training(500, 0, silent)
MOMENT = Training(20, 0, silent)  # for what does not depend on how much is learnt
X = torch.randn(600, 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    torch.manual_seed(3)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 16), nn.ReLU()]
    last = nn.Linear(16, 3)
    nn.init.normal_(last.weight, std=3.0)  # answers that dropout changes
    return nn.Sequential(*layers, nn.Dropout(0.4), last).eval()


def taught(model: nn.Module, passes: int = 8) -> tuple[torch.fx.GraphModule, Lesson]:
    graph = prepare(model, X[:4], "classification", None).graph
    asked = Teacher(original(model, (X[:4],), "classification", None), (X[:4],))
    return graph, asked.teach((X,), passes, 0, silent)


def test_only_weights_behind_a_dropout_learn():
    graph, lesson = taught(network(), 2)
    student = distil(graph, lesson, MOMENT)
    own, before = dict(student.get_submodule("adapted").named_parameters()), network()
    learnt = {n for n, w in before.named_parameters() if not torch.equal(own[n], w)}
    assert learnt == {"3.weight", "3.bias", "6.weight", "6.bias"}


def test_all_weights_learn_where_noise_is_hidden():
    graph, lesson = taught(network(), 2)
    student = distil(graph, lesson, MOMENT, hidden_noise=True)
    own = dict(student.get_submodule("adapted").named_parameters())
    for name, weight in network().named_parameters():
        assert not torch.equal(own[name], weight)


@pytest.mark.parametrize("learn", [distil, fit_energy])
def test_it_comes_close_to_monte_carlo_and_leaves_the_model_alone(learn):
    model = network()
    before = copy.deepcopy(model.state_dict())
    graph, lesson = taught(model)
    student = learn(graph, lesson, TRAINING)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    unseen = torch.randn(200, 8, generator=torch.Generator().manual_seed(9))
    asked = Teacher(original(model, (X[:4],), "classification", None), (X[:4],))
    truth = asked.teach((unseen,), 1000, 7, silent)
    with torch.no_grad():
        mean, var, probs, _, aleatoric, _ = student(unseen)
        logits = model(unseen)

    def distance(q: torch.Tensor) -> float:
        return float((truth.probs * (truth.probs / q).log()).sum(1).mean())

    assert distance(probs) < distance(logits.softmax(1)) / 5
    ratio = var.sqrt().mean(1) / truth.logits.std(1).mean(1)
    assert 0.85 < float(ratio.median()) < 1.15
    assert float((aleatoric - truth.aleatoric).abs().mean()) < 0.05
    assert torch.equal(mean, logits) is (learn is fit_energy)


@torch.no_grad()
@pytest.mark.parametrize("learn", [distil, fit_energy])
def test_it_learns_moments_that_are_known_exactly(learn):
    """One dropout before one layer: the logits are W h + b with variance h² p/q Wᵀ²."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3)).eval()
    graph, lesson = taught(model)
    student = learn(graph, lesson, TRAINING)
    unseen = torch.randn(100, 8, generator=torch.Generator().manual_seed(9))
    found_mean, found_var, *_ = student(unseen)
    hidden = model[1](model[0](unseen)).square()
    var = hidden @ model[3].weight.square().T * 0.4 / 0.6
    assert (found_mean - model(unseen)).square().mean() < var.mean() / 20  # the error of 20 passes
    ratio = (found_var.sum(1) / var.sum(1)).sqrt()
    assert 0.85 < float(ratio.median()) < 1.15


@torch.no_grad()
def test_the_head_learns_on_in_the_end(monkeypatch):
    """On the layers as they have become, which no longer move."""
    graph, lesson = taught(network())
    longer = distil(graph, lesson, TRAINING)
    monkeypatch.setattr(distillation, "_finish_head", lambda *_: None)
    before = distil(graph, lesson, TRAINING)
    assert torch.equal(longer(X)[0], before(X)[0])  # the mean is the layers' own
    far, near = (float((s(X)[2] - lesson.probs).square().mean()) for s in (before, longer))
    assert near < far
    assert not any(weight.requires_grad for weight in longer.head.parameters())


def test_the_same_seed_gives_the_same_student():
    graph, lesson = taught(network(), 2)
    first, second = (distil(graph, lesson, MOMENT) for _ in range(2))
    for a, b in zip(first(X[:3]), second(X[:3]), strict=True):
        assert torch.equal(a, b)


@torch.no_grad()
@pytest.mark.parametrize(("harm", "learnt"), [(0.0, False), (2.0, True)])
def test_a_head_of_particles_adds_only_what_helps(harm, learnt):
    """Where Monte Carlo is what the rows say, nothing; where it is always more sure, that."""
    graph, _ = taught(network(), 2)
    rows = spread(graph, 4, seed=0, late=distillation._LATE)
    (each,) = rows(X)
    each = each.unflatten(0, (len(X), -1))
    lesson = Lesson((X,), each + harm * each.mean(1, keepdim=True), kinds=4, groups=2)
    student = fit_particles(graph, 4, lesson, Training(300, 0, silent))
    assert (student.learnt > 0.5) is learnt
    unseen = torch.randn(200, 8, generator=torch.Generator().manual_seed(9))
    (found,) = rows(unseen)
    found = found.unflatten(0, (200, -1))
    own, wanted = found.softmax(-1).mean(1), (found + harm * found.mean(1, keepdim=True))
    wanted, probs = wanted.softmax(-1).mean(1), student(unseen)[2]
    if not learnt:
        torch.testing.assert_close(probs, own)
    else:
        assert (probs - wanted).abs().mean() < (own - wanted).abs().mean() / 3
