"""From the logits' distribution to class probabilities and the kinds of doubt.

    y_s = m + √v ⊙ z_s,   p = (1/S) Σ softmax(y_s)
    entropy    H(p)              predictive entropy, all the doubt
    aleatoric  (1/S) Σ H(p_s)    expected entropy
    epistemic  H(p) − aleatoric  mutual information
(equation 16 of the paper). The draws z are FIXED points stored in the model: same input, same
answer, on every runtime, and no random-number op in an exported graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from onesigma.errors import InputError

MAX_DRAWS = 2**20  # beyond it there is nothing to gain, but memory to lose


class Doubt(NamedTuple):
    """What the head returns: class probabilities and the three entropies, in nats."""

    probs: Tensor
    entropy: Tensor
    aleatoric: Tensor
    epistemic: Tensor


def fixed_draws(count: int, classes: int, sampling: str = "quasi", seed: int = 0) -> Tensor:
    """``count`` points of a standard normal in ``classes`` dimensions.

    "quasi": scrambled Sobol points through the inverse normal cdf, mirrored (so every odd moment
    is exactly right) and standardised. "random": plain independent draws, the paper's
    way; they too are drawn once, from ``seed``.
    """
    if not 2 <= count <= MAX_DRAWS:
        raise InputError(
            f"draws={count}: the head needs at least 2 draws, at most {MAX_DRAWS}; default 64."
        )
    generator = torch.Generator().manual_seed(seed)
    if sampling == "random":
        return torch.randn(count, classes, generator=generator, dtype=torch.float64)
    if sampling != "quasi":
        raise InputError(f"sampling={sampling!r}: choose 'quasi' or 'random'.")
    if classes > torch.quasirandom.SobolEngine.MAXDIM:
        raise InputError(f"sampling='quasi' has no points for {classes} classes: choose 'random'.")
    engine = torch.quasirandom.SobolEngine(classes, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    uniform = engine.draw((count + 1) // 2, dtype=torch.float64).clamp(1e-9, 1 - 1e-9)
    half = torch.special.ndtri(uniform)
    return _standardised(torch.cat([half, -half])[:count])


def _standardised(points: Tensor) -> Tensor:
    """Give the points unit variance and, where they are enough, no correlation between classes.

    Of 64 points for 7 classes this halves the head's error (docs/fidelity.md).
    """
    second = points.transpose(0, 1) @ points / len(points)
    if len(points) < 4 * points.shape[1]:
        return points / second.diagonal().sqrt()
    root = torch.linalg.cholesky(second)
    white: Tensor = torch.linalg.solve_triangular(root, points.transpose(0, 1), upper=False)
    return white.transpose(0, 1).contiguous()


def shifted(mean: Tensor, shift: list[list[float]] | None, class_dim: int) -> Tensor:
    """The mean under dropout, as far as it follows from the original logits: m + A m + b.

    ``shift`` has a row (A_k, b_k) for each class k. A matched mean needs none.
    """
    if shift is None:
        return mean
    rows = torch.tensor(shift, dtype=mean.dtype, device=mean.device)
    last = mean.movedim(class_dim, -1)
    moved = last + torch.nn.functional.linear(last, rows[:, :-1], rows[:, -1])
    return moved.movedim(-1, class_dim)


def classify(mean: Tensor, var: Tensor, draws: Tensor, class_dim: int) -> Doubt:
    """Marginalise the softmax over independent normal logits."""
    mean, std = mean.movedim(class_dim, -1), var.movedim(class_dim, -1).sqrt()
    samples = mean.unsqueeze(-2) + std.unsqueeze(-2) * draws
    return average(torch.log_softmax(samples, -1), class_dim)


def classify_correlated(mean: Tensor, covariance: Tensor, draws: Tensor) -> Doubt:
    """The same for logits (n, K) with a full covariance (n, K, K): y_s = m + L z_s, L Lᵀ = Σ."""
    samples = mean.unsqueeze(-2) + draws @ cholesky(covariance).transpose(-1, -2)
    return average(torch.log_softmax(samples, -1), 1)


def cholesky(covariance: Tensor) -> Tensor:
    """The lower triangular root, column by column, in ops that every exporter knows.

        L_jj = √(Σ_jj − Σ_k<j L_jk²),   L_ij = (Σ_ij − Σ_k<j L_ik L_jk) / L_jj
    A pivot that rounding has taken to (or below) zero belongs to a logit that the ones before
    already determine: its column is zero.
    """
    done = covariance[..., :0]  # the columns of L so far
    for j in range(covariance.shape[-1]):
        column = covariance[..., j:, j : j + 1]
        pivot_floor = 1e-6 * column[..., :1, :]
        if j > 0:
            column = column - done[..., j:, :] @ done[..., j : j + 1, :].transpose(-1, -2)
        pivot = column[..., :1, :]
        sound = pivot > pivot_floor
        column = torch.where(sound, column / torch.where(sound, pivot, 1.0).sqrt(), 0.0)
        above = torch.zeros_like(covariance[..., :j, :1])
        done = torch.cat([done, torch.cat([above, column], -2)], -1)
    return done


def average(log_probs: Tensor, class_dim: int) -> Doubt:
    """From log-probabilities of shape (…, draws, classes) to their summary over the draws."""
    each = log_probs.exp()
    probs = each.mean(-2)
    aleatoric = -(each * log_probs).sum(-1).mean(-1)
    return doubt(probs, aleatoric, class_dim)


def doubt(probs: Tensor, aleatoric: Tensor, class_dim: int) -> Doubt:
    """Add the predictive entropy; what it exceeds the expected entropy by is epistemic."""
    tiny = torch.finfo(probs.dtype).tiny
    entropy = -(probs * probs.clamp(min=tiny).log()).sum(-1)
    epistemic = (entropy - aleatoric).clamp(min=0)  # Jensen: below 0 only by rounding
    return Doubt(probs.movedim(-1, class_dim), entropy, aleatoric, epistemic)


def certain(logits: Tensor, class_dim: int) -> Doubt:
    """Logits without doubt: the plain softmax. Its epistemic part is 0, not a rounding error."""
    log_probs = torch.log_softmax(logits.movedim(class_dim, -1), -1)
    probs = log_probs.exp()
    entropy = -(probs * log_probs).sum(-1)
    return Doubt(probs.movedim(-1, class_dim), entropy, entropy, torch.zeros_like(entropy))
