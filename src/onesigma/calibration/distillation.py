"""Distillation: a student learns what Monte Carlo of the original says, without labels.

    loss = KL(p_MC ‖ p) / N  +  λ₁ |m − m_MC|² / V_MC  +  λ₂ (log² (V / V_MC) + |v/V − v_MC/V_MC|²)
           +  λ₃ ρ((aleatoric − aleatoric_MC) / N)

m, v mean and variance of the logits, V = Σ v, ρ Huber's loss. N is how far one pass is from Monte
Carlo on inputs of that kind: 1/30 of it is what 30 passes reach, so that inputs the network is sure
of count as much as others. The spread is compared by its logarithm, because a ratio to the
student's own would teach too large a one, and a ratio to the few passes' too small. The KL has its
minimum at the true value even if its target is the noisy average of a few passes. So many inputs
with few passes each teach more than the reverse. For regression the loss is the KL of two normal
distributions, with the error of the mean divided by Monte Carlo's variance, not by the student's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional as F

from onesigma.baselines.mc_dropout import seeded
from onesigma.calibration.observation import Progress
from onesigma.calibration.soft_pools import soften_pools
from onesigma.calibration.teacher import Lesson
from onesigma.converted import SOURCE
from onesigma.forms.places import Places
from onesigma.forms.student import (
    HEADS,
    Head,
    RowsHead,
    Spread,
    Student,
    as_features,
    without_dropout,
)
from onesigma.graph.capture import is_site, shared_copy
from onesigma.graph.join_norms import join_norms
from onesigma.graph.particles import spread
from onesigma.graph.split import crossing, has_rows, last_dropout, nodes_behind_noise, split
from onesigma.prediction import Prediction
from onesigma.rules.dropout import RATE_ARGUMENT

HIDDEN = 32
_BATCH, _RATE = 64, 4e-3
_FINISH, _MANY = 2, 256  # times as many steps for the head in the end; rows of such a step
_FEWEST = 8  # inputs of a step, where each has many answers
_LARGE = 300_000  # activations of a row: then half of a batch at once is faster, else all of it
_MEAN, _VAR, _ALEATORIC = 0.3, 0.05, 0.02
_CLEAN = 0.25  # the share of clean inputs, of what is learnt from
_SHARES = tuple(tenths / 10 for tenths in range(11))  # of what a head of particles learnt
_LATE = 4  # times as many rows behind the last dropout, where next to nothing is left to do


@dataclass(frozen=True)
class Training:
    """How long a student learns, from which seed, and who is told of the steps."""

    steps: int
    seed: int
    progress: Progress
    task: str = "classification"


@dataclass(frozen=True)
class Targets:
    """What Monte Carlo says of each input; ``noise`` is the N of the loss.

    ``floor`` is added to all variances, so that none is nearly 0. ``kinds`` and ``places`` are
    those of a lesson.
    """

    probs: Tensor
    mean: Tensor
    var: Tensor
    aleatoric: Tensor
    noise: Tensor
    floor: Tensor
    kinds: int
    places: Places

    @staticmethod
    def of(lesson: Lesson) -> Targets:
        said = (lesson.probs, lesson.logits.mean(1), lesson.var, lesson.aleatoric)
        return Targets._of(*said, lesson.noise, lesson.kinds, lesson.places)

    @staticmethod
    def said_by(network: Prediction, kinds: int) -> Targets:
        """What a fitted network says in the place of Monte Carlo; N is then the epistemic part."""
        assert network.probs is not None
        assert network.aleatoric is not None
        assert network.epistemic is not None
        each = network.epistemic.reshape(kinds, -1).mean(1)
        noise = each.repeat_interleave(len(network.probs) // kinds)
        said = (network.probs, network.mean, network.var, network.aleatoric)
        return Targets._of(*said, noise, kinds, Places())

    @staticmethod
    def _of(
        probs: Tensor,
        mean: Tensor,
        var: Tensor,
        aleatoric: Tensor,
        noise: Tensor,
        kinds: int,
        places: Places,
    ) -> Targets:
        floor, noise = 1e-3 * var.mean() + 1e-12, noise.clamp(min=1e-9)
        return Targets(probs, mean, var + floor, aleatoric, noise, floor, kinds, places)

    def rows(self, index: Tensor) -> Targets:
        names = ("probs", "mean", "var", "aleatoric", "noise")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    @property
    def often(self) -> Tensor:
        """How often each input is learnt from; clean ones, the first kind, come more often."""
        count = len(self.probs) // self.places.count
        often = torch.ones(count)
        often[: count // self.kinds] = max(1.0, _CLEAN * self.kinds)
        return often


def distil(
    source: fx.GraphModule,
    lesson: Lesson,
    training: Training,
    *,
    hidden_noise: bool = False,
    soft_pools: bool = False,
) -> Student:
    """A student whose layers are the network's; those that noise reaches learn, too.

    What no dropout reaches is computed as before. With ``hidden_noise`` there is some that the
    graph does not show, as inside of a recurrent layer: then all layers learn. With ``soft_pools``
    its max pools know of the noise (``calibration.soft_pools``).
    """
    joined = shared_copy(source)
    join_norms(joined)
    places = lesson.places
    layers = without_dropout(joined, energies=False, class_dim=places.class_dim)
    soft = soften_pools(layers, joined, lesson.inputs, training.seed) if soft_pools else set()
    noisy = {node.name for node in nodes_behind_noise(joined.graph)}
    ops = [node for node in layers.graph.nodes if node.op == "call_function"]
    behind = {node for node in ops if hidden_noise or node in soft or node.name in noisy}
    weights = _own_weights(layers, _weights_of(behind) & {*dict(layers.named_parameters())})
    learning, known = _compute_certain(layers, behind, lesson.inputs)
    # Without gradients: all other weights are the user's own.
    fixed = {name: weight.detach() for name, weight in learning.named_parameters()}
    # In units of each weight's size, so that one rate suits all.
    sizes = {name: w.square().mean().sqrt() + 1e-3 for name, w in weights.items()}
    moves = {name: torch.zeros_like(w).requires_grad_() for name, w in weights.items()}

    def moved() -> dict[str, Tensor]:
        return {name: w + sizes[name] * moves[name] for name, w in weights.items()}

    def read(rows: Tensor) -> tuple[Tensor, Tensor]:
        outputs = functional_call(learning, fixed | moved(), tuple(x[rows] for x in known))
        logits, features = as_features(outputs, class_dim=places.class_dim)
        return places.rows(logits), places.rows(features)

    student = _student(layers, lesson, training, "adapted")
    targets, at_once = Targets.of(lesson), _rows_at_once(behind)
    teach_head(student.head, read, [*moves.values()], targets, training, at_once=at_once)
    with torch.no_grad():
        for name, weight in moved().items():
            weights[name].copy_(weight)
    _finish_head(student, lesson, targets, training)
    return student


def _finish_head(student: Student, lesson: Lesson, targets: Targets, training: Training) -> None:
    """Teach the head once more, on layers that no longer move: while they did, it came behind.

    What it reads is computed once, so that this takes seconds.
    """
    known = _read_all(student, lesson)

    def read(rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(x[targets.places.index(rows)] for x in known)

    longer = replace(training, steps=_FINISH * training.steps)
    teach_head(student.head, read, [], targets, longer, batch=_MANY, at_once=_MANY)


def fit_energy(source: fx.GraphModule, lesson: Lesson, training: Training) -> Student:
    """A student whose layers are the network's as they are; only its head learns."""
    layers = without_dropout(source, energies=True, class_dim=lesson.places.class_dim)
    student = _student(layers, lesson, training, SOURCE)
    known, targets = _read_all(student, lesson), Targets.of(lesson)

    def read(rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(x[targets.places.index(rows)] for x in known)

    teach_head(student.head, read, [], targets, training)
    return student


def fit_particles(
    source: fx.GraphModule, count: int, lesson: Lesson, training: Training
) -> Student:
    """A student with so many rows for each input: their average, and what its head changes in it.

    What the head learns counts as far as it helps on kinds of input that it did not learn from: it
    is taught on each half of the kinds and tried on the other, then taught on all.
    """
    layers = spread(source, count, seed=training.seed, late=_LATE)
    student = _student(without_dropout(layers, energies=False), lesson, training, SOURCE)
    known, targets = _read_all(student, lesson), Targets.of(lesson)
    often = targets.often
    half = torch.arange(len(often)) * lesson.kinds // len(often) % 2

    def taught(often: Tensor) -> RowsHead:
        head = copy.deepcopy(student.head)
        teach_head(head, lambda rows: tuple(x[rows] for x in known), [], targets, training, often)
        assert isinstance(head, RowsHead)
        return head

    heads = [(taught(often * (half != each)), half == each) for each in range(2)]

    def distance(share: float) -> float:
        return sum(_distance(_weaker(head, share), known, targets, rows) for head, rows in heads)

    student.learnt = min(_SHARES, key=distance)
    if student.learnt:
        student.head = _weaker(taught(often), student.learnt)
    return student


@torch.no_grad()
def _weaker(head: RowsHead, share: float) -> RowsHead:
    """A copy that changes less: nothing at a share of 0."""
    weaker = copy.deepcopy(head)
    for weight in weaker.write.parameters():
        weight.mul_(share)
    return weaker


@torch.no_grad()
def _distance(head: RowsHead, known: Sequence[Tensor], targets: Targets, rows: Tensor) -> float:
    """To Monte Carlo, on these rows: the KL in units of one pass."""
    wanted, found = targets.rows(rows), head(*(x[rows] for x in known))
    divergence = F.kl_div(found["log_probs"], wanted.probs, reduction="none").sum(-1)
    return float((divergence / wanted.noise).mean())


def needs_particles(source: fx.GraphModule) -> bool:
    """Whether there is noise before the last dropout, whose spread a head can learn alone."""
    last = last_dropout(source.graph)
    sites = [n for n in source.graph.nodes if is_site(n) and n.args[RATE_ARGUMENT]]
    return any(site is not last for site in sites)


@torch.no_grad()
def _read_all(student: Student, lesson: Lesson) -> tuple[Tensor, ...]:
    chunks = zip(*(torch.split(x, _BATCH) for x in lesson.inputs), strict=True)
    parts = [map(lesson.places.rows, student.read(*chunk)) for chunk in chunks]
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))


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


def _rows_at_once(learning: set[fx.Node]) -> int:
    each = sum(node.meta["val"][0].numel() for node in learning if has_rows(node))
    return _BATCH // 2 if each > _LARGE else _BATCH


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
def _student(layers: fx.GraphModule, lesson: Lesson, training: Training, name: str) -> Student:
    dim = lesson.places.class_dim
    logits, features = as_features(layers(*(x[:2] for x in lesson.inputs)), class_dim=dim)
    width, classes, particles = features.shape[dim], logits.shape[dim], len(logits) // 2
    with seeded(training.seed, 0, logits.device):
        if particles > 1:
            rows = RowsHead(width + classes, classes, HIDDEN).to(logits)
            return Student(layers, rows, name=name, particles=particles).eval()
        head = HEADS[training.task](width, classes, HIDDEN).to(logits)
    return Student(layers, head, name=name, class_dim=dim).eval()


def teach_head(
    head: Head | RowsHead | Spread,
    read: Callable[[Tensor], tuple[Tensor, ...]],
    moves: list[Tensor],
    targets: Targets,
    training: Training,
    often: Tensor | None = None,
    *,
    batch: int = _BATCH,
    at_once: int = _BATCH,
) -> None:
    """Let the head, and what moves the weights of the layers, learn from what ``read`` returns."""
    head.requires_grad_(True)
    loss_of = _LOSSES[training.task]
    often = targets.often if often is None else often
    size = max(_FEWEST, batch // targets.places.count)
    groups: list[dict[str, Any]] = [
        {"params": list(head.parameters()), "weight_decay": 1e-4},
        {"params": moves},
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, _RATE, total_steps=training.steps, pct_start=0.2
    )
    with torch.enable_grad(), seeded(training.seed, 1, targets.probs.device):
        for _ in training.progress(range(training.steps)):
            rows = torch.multinomial(often, size, replacement=True)
            optimiser.zero_grad()
            for part in torch.split(rows, at_once):
                wanted = targets.rows(targets.places.index(part))
                loss = loss_of(head(*read(part)), wanted) * (len(part) / len(rows))
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    head.requires_grad_(False)


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


def _spread_loss(found: dict[str, Tensor], targets: Targets) -> Tensor:
    floor = 1e-3 * targets.var.mean(0)
    own, theirs = found["var"] + floor, targets.var + floor
    of_mean = (found["mean"] - targets.mean).square() / theirs
    of_var = theirs / own + (own / theirs).log() - 1
    return (of_mean + of_var).mean()


_LOSSES = {"classification": _loss, "regression": _spread_loss}
