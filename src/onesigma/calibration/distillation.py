"""Distillation: a student learns what Monte Carlo of the original says, without labels.

    loss = KL(p_MC ‖ p) / N  +  λ₁ |m − m_MC|² / V_MC  +  λ₂ (log² (V / V_MC) + |v/V − v_MC/V_MC|²)
           +  λ₃ ρ((aleatoric − aleatoric_MC) / N)

m, v mean and variance of the logits, V = Σ v, ρ Huber's loss. N is how far one pass is from Monte
Carlo on inputs of that kind: 1/30 of it is what 30 passes reach, so that inputs the network is sure
of count as much as others. The spread is compared by its logarithm, because a ratio to the
student's own would teach too large a one, and a ratio to the few passes' too small. The KL has its
minimum at the true value even if its target is the noisy average of a few passes. So many inputs
with few passes each teach more than the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional as F

from onesigma.baselines.mc_dropout import seeded
from onesigma.calibration.teacher import Lesson, Progress
from onesigma.converted import SOURCE
from onesigma.forms.student import Head, Student, as_features, without_dropout
from onesigma.graph.capture import is_site, shared_copy
from onesigma.graph.join_norms import join_norms
from onesigma.graph.particles import spread
from onesigma.graph.split import crossing, has_rows, last_dropout, nodes_behind_noise, split
from onesigma.prediction import Prediction
from onesigma.rules.dropout import RATE_ARGUMENT

HIDDEN = 32
_BATCH, _RATE = 64, 4e-3
_AT_ONCE = 32  # rows of a batch; twice as fast as 64 where activations are large
_MEAN, _VAR, _ALEATORIC = 0.3, 0.05, 0.02
_CLEAN = 0.25  # the share of clean inputs, of what is learnt from


@dataclass(frozen=True)
class Training:
    """How long a student learns, from which seed, and who is told of the steps."""

    steps: int
    seed: int
    progress: Progress


@dataclass(frozen=True)
class Targets:
    """What Monte Carlo says of each input; ``noise`` is the N of the loss.

    ``floor`` is added to all variances, so that none is nearly 0. ``kinds`` is that of a lesson.
    """

    probs: Tensor
    mean: Tensor
    var: Tensor
    aleatoric: Tensor
    noise: Tensor
    floor: Tensor
    kinds: int

    @staticmethod
    def of(lesson: Lesson) -> Targets:
        means = (lesson.probs, lesson.logits.mean(1))
        return Targets._of(*means, lesson.var, lesson.aleatoric, lesson.noise, lesson.kinds)

    @staticmethod
    def said_by(network: Prediction, kinds: int) -> Targets:
        """What a fitted network says in the place of Monte Carlo; N is then the epistemic part."""
        assert network.probs is not None
        assert network.aleatoric is not None
        assert network.epistemic is not None
        each = network.epistemic.reshape(kinds, -1).mean(1)
        noise = each.repeat_interleave(len(network.probs) // kinds)
        said = (network.probs, network.mean, network.var, network.aleatoric)
        return Targets._of(*said, noise, kinds)

    @staticmethod
    def _of(
        probs: Tensor, mean: Tensor, var: Tensor, aleatoric: Tensor, noise: Tensor, kinds: int
    ) -> Targets:
        floor = 1e-3 * var.mean() + 1e-12
        return Targets(probs, mean, var + floor, aleatoric, noise.clamp(min=1e-9), floor, kinds)

    def rows(self, index: Tensor) -> Targets:
        parts = {name: part for name, part in vars(self).items() if name not in ("floor", "kinds")}
        return replace(self, **{name: part[index] for name, part in parts.items()})


def distil(
    source: fx.GraphModule,
    lesson: Lesson,
    training: Training,
    *,
    hidden_noise: bool = False,
) -> Student:
    """A student whose layers are the network's; those that noise reaches learn, too.

    What no dropout reaches is computed as before. With ``hidden_noise`` there is some that the
    graph does not show, as inside of a recurrent layer: then all layers learn.
    """
    joined = shared_copy(source)
    join_norms(joined)
    layers = without_dropout(joined, energies=False)
    names = {name for name, _ in layers.named_parameters()}
    noisy = {node.name for node in nodes_behind_noise(joined.graph)}
    ops = [node for node in layers.graph.nodes if node.op == "call_function"]
    behind = {node for node in ops if hidden_noise or node.name in noisy}
    weights = _own_weights(layers, _weights_of(behind) & names)
    learning, known = _compute_certain(layers, behind, lesson.inputs)
    # Without gradients: all other weights are the user's own.
    fixed = {name: weight.detach() for name, weight in learning.named_parameters()}
    # In units of each weight's size, so that one rate suits all.
    sizes = {name: w.square().mean().sqrt() + 1e-3 for name, w in weights.items()}
    moves = {name: torch.zeros_like(w).requires_grad_() for name, w in weights.items()}

    def moved() -> dict[str, Tensor]:
        return {name: w + sizes[name] * moves[name] for name, w in weights.items()}

    def read(rows: Tensor) -> tuple[Tensor, Tensor]:
        read = tuple(x[rows] for x in known)
        return as_features(functional_call(learning, fixed | moved(), read))

    student = _student(layers, lesson, training.seed, "adapted")
    teach_head(student.head, read, [*moves.values()], Targets.of(lesson), training)
    with torch.no_grad():
        for name, weight in moved().items():
            weights[name].copy_(weight)
    return student


def fit_energy(source: fx.GraphModule, lesson: Lesson, training: Training) -> Student:
    """A student whose layers are the network's as they are; only its head learns."""
    return _fit_head(without_dropout(source, energies=True), lesson, training)


def fit_particles(
    source: fx.GraphModule, count: int, lesson: Lesson, training: Training
) -> Student:
    """A student with so many rows for each input; only its head learns.

    The last dropout has no masks, where all noise passes through it: the head learns its spread.
    """
    rows = spread(source, count, seed=training.seed, keep=last_dropout(source.graph))
    return _fit_head(without_dropout(rows, energies=False), lesson, training, particles=count)


def needs_particles(source: fx.GraphModule) -> bool:
    """Whether there is noise before the last dropout, whose spread a head can learn alone."""
    last = last_dropout(source.graph)
    sites = [n for n in source.graph.nodes if is_site(n) and n.args[RATE_ARGUMENT]]
    return any(site is not last for site in sites)


def _fit_head(
    layers: fx.GraphModule, lesson: Lesson, training: Training, *, particles: int = 0
) -> Student:
    student = _student(layers, lesson, training.seed, SOURCE, particles)
    with torch.no_grad():
        chunks = zip(*(torch.split(x, _BATCH) for x in lesson.inputs), strict=True)
        parts = [student.read(*chunk) for chunk in chunks]
    logits, features = (torch.cat(each) for each in zip(*parts, strict=True))
    targets = Targets.of(lesson)
    teach_head(student.head, lambda rows: (logits[rows], features[rows]), [], targets, training)
    return student


def _weights_of(nodes: set[fx.Node]) -> set[str]:
    return {str(n.target) for node in nodes for n in node.all_input_nodes if n.op == "get_attr"}


@torch.no_grad()
def _compute_certain(
    layers: fx.GraphModule, behind: set[fx.Node], inputs: Sequence[Tensor]
) -> tuple[fx.GraphModule, tuple[Tensor, ...]]:
    """The part that learns, and what it reads of each row; all of it if that would be large."""
    read = crossing(layers.graph, behind)
    sizes = [n.meta["val"][0].numel() if has_rows(n) else math.inf for n in read]
    if sum(sizes) > sum(x[0].numel() for x in inputs):
        behind = {n for n in layers.graph.nodes if n.op == "call_function"}
    certain, learning = split(layers, behind)
    chunks = zip(*(torch.split(x, _BATCH) for x in inputs), strict=True)
    parts = [certain(*chunk) for chunk in chunks]
    return learning, tuple(torch.cat(part) for part in zip(*parts, strict=True))


def _own_weights(layers: fx.GraphModule, names: set[str]) -> dict[str, Tensor]:
    """Copies of weights, in their place: they are shared with the original."""
    copies = {}
    for name in sorted(names):
        weight = layers.get_parameter(name)
        if weight.is_floating_point():
            owner, _, leaf = name.rpartition(".")
            own = nn.Parameter(weight.detach().clone(), requires_grad=False)
            setattr(layers.get_submodule(owner), leaf, own)
            copies[name] = own.data
    return copies


@torch.no_grad()
def _student(
    layers: fx.GraphModule, lesson: Lesson, seed: int, name: str, particles: int = 0
) -> Student:
    logits, features = as_features(layers(*(x[:2] for x in lesson.inputs)), particles)
    with seeded(seed, 0, logits.device):
        head = Head(features.shape[1], logits.shape[1], HIDDEN).to(logits)
    return Student(layers, head, name=name, particles=particles).eval()


def teach_head(
    head: Head,
    read: Callable[[Tensor], tuple[Tensor, Tensor]],
    moves: list[Tensor],
    targets: Targets,
    training: Training,
) -> None:
    """Let the head, and what moves the weights of the layers, learn from what ``read`` returns."""
    groups: list[dict[str, Any]] = [
        {"params": list(head.parameters()), "weight_decay": 1e-4},
        {"params": moves},
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, _RATE, total_steps=training.steps, pct_start=0.2
    )
    with torch.enable_grad(), seeded(training.seed, 1, targets.probs.device):
        for rows in _batches(targets, training):
            optimiser.zero_grad()
            for part in torch.split(rows, _AT_ONCE):
                loss = _loss(head(*read(part)), targets.rows(part)) * (len(part) / len(rows))
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    head.requires_grad_(False)


def _batches(targets: Targets, training: Training) -> Iterator[Tensor]:
    """Rows to learn from at each step; clean inputs, the first kind, come more often."""
    count = len(targets.probs)
    often = torch.ones(count)
    often[: count // targets.kinds] = max(1.0, _CLEAN * targets.kinds)
    for _ in training.progress(range(training.steps)):
        yield torch.multinomial(often, _BATCH, replacement=True)


def _loss(found: dict[str, Tensor], targets: Targets) -> Tensor:
    divergence = F.kl_div(found["log_probs"], targets.probs, reduction="none").sum(-1)
    var = found["var"] + targets.floor
    own, theirs = var.sum(1), targets.var.sum(1)
    of_mean = (found["mean"] - targets.mean).square().sum(1) / theirs
    shape = var / own.unsqueeze(1) - targets.var / theirs.unsqueeze(1)
    of_var = (own / theirs).log().square() + shape.square().sum(1)
    # Not squared where it is large: the distances of single inputs have a long tail.
    of_aleatoric = F.smooth_l1_loss(
        found["aleatoric"] / targets.noise, targets.aleatoric / targets.noise, reduction="none"
    )
    total = divergence / targets.noise + _MEAN * of_mean + _VAR * of_var
    return (total + _ALEATORIC * of_aleatoric).mean()
