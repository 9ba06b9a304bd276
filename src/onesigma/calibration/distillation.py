"""Distillation: a student learns what Monte Carlo of the original says, without labels.

    loss = KL(p_MC ‖ p) / N  +  λ₁ |m − m_MC|² / v_MC  +  λ₂ Σ (log v + s² / v) / 2
           +  λ₃ (aleatoric − aleatoric_MC)² / N²

m mean of the logits, v and s² the student's and Monte Carlo's variance of each. N is how far one
pass is from Monte Carlo on inputs of that kind: 1/30 of it is what 30 passes reach, so that inputs
the network is sure of count as much as others. Every term has its minimum at the true value even
if a target is the noisy average of a few passes. So many inputs with few passes each teach more
than the reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional as F

from onesigma.baselines.mc_dropout import seeded
from onesigma.calibration.teacher import Lesson, Progress
from onesigma.forms.student import Head, Student, as_features, without_dropout

HIDDEN = 32
_STEPS, _BATCH = 1000, 64
_LAYERS_RATE, _HEAD_RATE = 3e-3, 4e-3
_MEAN, _VAR, _ALEATORIC = 0.3, 0.03, 0.02
_CLEAN = 0.25  # the share of clean inputs, of what is learnt from


@dataclass(frozen=True)
class _Targets:
    """What Monte Carlo says of each input; ``noise`` is the N of the loss."""

    probs: Tensor
    mean: Tensor
    var: Tensor
    aleatoric: Tensor
    noise: Tensor

    @staticmethod
    def of(lesson: Lesson) -> _Targets:
        logits = lesson.logits
        spread = logits.var(1) + 1e-3 * logits.var(1).mean() + 1e-12  # so that none is nearly 0
        noise = lesson.noise.clamp(min=1e-9)
        return _Targets(lesson.probs, logits.mean(1), spread, lesson.aleatoric, noise)

    def rows(self, index: Tensor) -> _Targets:
        parts = (self.probs, self.mean, self.var, self.aleatoric, self.noise)
        return _Targets(*(part[index] for part in parts))


def distil(source: fx.GraphModule, lesson: Lesson, *, seed: int, progress: Progress) -> Student:
    """A student whose layers are the network's, with weights of their own that learn too."""
    layers = without_dropout(source, energies=False)
    weights = _own_weights(layers)
    # In units of each weight's size, so that one rate suits all.
    sizes = {name: w.square().mean().sqrt() + 1e-3 for name, w in weights.items()}
    moves = {name: torch.zeros_like(w).requires_grad_() for name, w in weights.items()}

    def moved() -> dict[str, Tensor]:
        return {name: w + sizes[name] * moves[name] for name, w in weights.items()}

    def read(rows: Tensor) -> tuple[Tensor, Tensor]:
        inputs = tuple(x[rows] for x in lesson.inputs)
        return as_features(functional_call(layers, moved(), inputs))

    student = _student(layers, lesson, seed, "layers")
    _train(student.head, read, [*moves.values()], lesson, seed, progress)
    with torch.no_grad():
        for name, weight in moved().items():
            weights[name].copy_(weight)
    return student


def fit_energy(source: fx.GraphModule, lesson: Lesson, *, seed: int, progress: Progress) -> Student:
    """A student whose layers are the network's as they are; only its head learns."""
    student = _student(without_dropout(source, energies=True), lesson, seed, "source")
    with torch.no_grad():
        chunks = zip(*(x.split(_BATCH) for x in lesson.inputs), strict=True)
        parts = [student.read(*chunk) for chunk in chunks]
    logits, features = (torch.cat(each) for each in zip(*parts, strict=True))
    _train(student.head, lambda rows: (logits[rows], features[rows]), [], lesson, seed, progress)
    return student


def _own_weights(layers: fx.GraphModule) -> dict[str, Tensor]:
    """Copies in the place of the weights that are shared with the original."""
    copies = {}
    for name, weight in list(layers.named_parameters()):
        if weight.is_floating_point():
            owner, _, leaf = name.rpartition(".")
            own = nn.Parameter(weight.detach().clone(), requires_grad=False)
            setattr(layers.get_submodule(owner), leaf, own)
            copies[name] = own.data
    return copies


@torch.no_grad()
def _student(layers: fx.GraphModule, lesson: Lesson, seed: int, name: str) -> Student:
    logits, features = as_features(layers(*(x[:2] for x in lesson.inputs)))
    with seeded(seed, 0, logits.device):
        head = Head(features.shape[1], logits.shape[1], HIDDEN).to(logits)
    return Student(layers, head, name).eval()


def _train(
    head: Head,
    read: Callable[[Tensor], tuple[Tensor, Tensor]],
    moves: list[Tensor],
    lesson: Lesson,
    seed: int,
    progress: Progress,
) -> None:
    """Let the head, and what moves the weights of the layers, learn from what ``read`` returns."""
    targets, rates = _Targets.of(lesson), [_HEAD_RATE, _LAYERS_RATE][: 2 if moves else 1]
    groups = [{"params": list(head.parameters()), "weight_decay": 1e-4}, {"params": moves}]
    optimiser = torch.optim.AdamW(groups[: len(rates)], weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, rates, total_steps=_STEPS, pct_start=0.2
    )
    with torch.enable_grad(), seeded(seed, 1, lesson.logits.device):
        for rows in _batches(lesson, progress):
            loss = _loss(head(*read(rows)), targets.rows(rows))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    head.requires_grad_(False)


def _batches(lesson: Lesson, progress: Progress) -> Iterator[Tensor]:
    """Rows to learn from at each step; clean inputs, the first kind, come more often."""
    count = len(lesson.logits)
    often = torch.ones(count)
    often[: count // lesson.kinds] = max(1.0, _CLEAN * lesson.kinds)
    for _ in progress(range(_STEPS)):
        yield torch.multinomial(often, _BATCH, replacement=True)


def _loss(found: dict[str, Tensor], targets: _Targets) -> Tensor:
    divergence = F.kl_div(found["log_probs"], targets.probs, reduction="none").sum(-1)
    of_mean = (found["mean"] - targets.mean).square().sum(1) / targets.var.sum(1)
    var = found["var"] + 1e-3 * targets.var.mean()
    of_var = 0.5 * (var.log() + targets.var / var).sum(1)
    of_aleatoric = ((found["aleatoric"] - targets.aleatoric) / targets.noise).square()
    total = divergence / targets.noise + _MEAN * of_mean + _VAR * of_var
    return (total + _ALEATORIC * of_aleatoric).mean()
