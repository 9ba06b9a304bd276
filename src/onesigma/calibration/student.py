"""The student: an energy head that learns what Monte Carlo of the original says.

    loss = KL(p_MC ‖ p) / N  +  λ₁ |m − m_MC|² / v_MC  +  λ₂ (log² (v / v_MC) + |C/v − C_MC/v_MC|²)

m, C mean and covariance of the logits, v = trace C. N is how far one pass is from Monte Carlo on
inputs of that kind: 1/30 is what 30 passes reach, so that inputs the network is sure of count as
much as others. The spread is compared by its logarithm: a ratio to the student's own would teach
too large a one, and a ratio to the few passes' too small. The first term is linear in p_MC, so its
noise teaches nothing wrong, and many inputs with few passes teach more than the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from onesigma.baselines.mc_dropout import seeded
from onesigma.calibration.teacher import Lesson, Progress
from onesigma.forms.energy import EnergyHead, EnergyNetwork, energies, tapped_graph

HIDDEN = 64
_DRAWS = 64
_STEPS, _BATCH, _RATE = 1200, 512, 4e-3
_MEAN, _SPREAD = 0.3, 0.05
_CLEAN = 0.3
_ROWS = 32


@dataclass(frozen=True)
class _Targets:
    """Of each input: probabilities, mean and covariance of the logits, distance of one pass."""

    probs: Tensor
    mean: Tensor
    covariance: Tensor
    noise: Tensor

    def rows(self, index: Tensor) -> _Targets:
        parts = (self.probs, self.mean, self.covariance, self.noise)
        return _Targets(*(part[index] for part in parts))


def fit_energy(
    source: fx.GraphModule, lesson: Lesson, *, seed: int, progress: Progress
) -> EnergyNetwork:
    """The plain network with a head that was taught by ``lesson``."""
    plain = tapped_graph(source)
    read, logits = _read(plain, lesson.inputs)
    scale = read.square().mean(0).sqrt()
    scale = scale.clamp(min=0.1 * float(scale.square().mean().sqrt()) + 1e-12)
    with seeded(seed, 0, logits.device):
        energy_head = EnergyHead(read.shape[1], logits.shape[1], HIDDEN, _DRAWS).to(logits)
        nn.init.normal_(energy_head.write.weight, std=0.3 / HIDDEN**0.5)
        with torch.no_grad():  # the mean starts as that of the plain network
            energy_head.write.weight[: logits.shape[1]] = 0
        _train(energy_head, read / scale, logits, _targets(lesson), lesson.kinds, progress)
    with torch.no_grad():
        energy_head.read.weight /= scale
    return EnergyNetwork(plain, energy_head.requires_grad_(False)).eval()


@torch.no_grad()
def _read(plain: fx.GraphModule, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """What the head is to read of these inputs, and their logits; few rows at once."""
    read, answers = [], []
    for start in range(0, len(inputs[0]), _ROWS):
        logits, *tapped = plain(*(x[start : start + _ROWS] for x in inputs))
        read.append(energies(tapped, logits))
        answers.append(logits)
    return torch.cat(read), torch.cat(answers)


def _targets(lesson: Lesson) -> _Targets:
    logits = lesson.logits
    mean = logits.mean(1)
    away = logits - mean.unsqueeze(1)
    covariance = away.transpose(1, 2) @ away / (logits.shape[1] - 1)
    return _Targets(lesson.probs, mean, covariance, lesson.noise.clamp(min=1e-9))


def _train(
    energy_head: EnergyHead,
    read: Tensor,
    logits: Tensor,
    targets: _Targets,
    kinds: int,
    progress: Progress,
) -> None:
    optimiser = torch.optim.AdamW(energy_head.parameters(), lr=_RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, _RATE, total_steps=_STEPS, pct_start=0.2
    )
    floor = 0.01 * float(_total(targets.covariance).mean()) + 1e-12
    # Clean inputs, the first kind, are as many as a few of the others together.
    often = torch.ones(len(read))
    often[: len(read) // kinds] = max(1.0, _CLEAN * kinds)
    with torch.enable_grad():
        for _ in progress(range(_STEPS)):
            rows = torch.multinomial(often, min(_BATCH, len(read)), replacement=True)
            parts = energy_head(read[rows])
            loss = _loss(energy_head, parts, logits[rows], targets.rows(rows), floor)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()


def _loss(
    energy_head: EnergyHead, parts: Tensor, logits: Tensor, targets: _Targets, floor: float
) -> Tensor:
    log_probs = torch.log_softmax(energy_head.samples(parts, logits), -1)
    count = log_probs.shape[1]
    divergence = F.kl_div(
        log_probs.logsumexp(1) - torch.tensor(float(count)).log(), targets.probs, reduction="none"
    ).sum(-1)
    mean, root = logits + parts[:, 0], parts[:, 1:]
    covariance = root.transpose(1, 2) @ root
    own, theirs = (_total(each) + floor for each in (covariance, targets.covariance))
    of_mean = (mean - targets.mean).square().sum(1) / theirs
    shape = covariance / own[:, None, None] - targets.covariance / theirs[:, None, None]
    of_spread = (own / theirs).log().square() + shape.square().sum((1, 2))
    return (divergence / targets.noise + _MEAN * of_mean + _SPREAD * of_spread).mean()


def _total(covariance: Tensor) -> Tensor:
    """The variance of all logits together."""
    return covariance.diagonal(dim1=1, dim2=2).sum(1)
