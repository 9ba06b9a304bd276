"""From the logits' distribution to class probabilities and the kinds of uncertainty.

    y_s = m + √v ⊙ z_s,   p = (1/S) Σ softmax(y_s)
    entropy    H(p)              predictive entropy, all the uncertainty
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
from onesigma.values.gaussian import Uncertain

MAX_DRAWS = 2**20  # more gain nothing, and cost memory


class Classification(NamedTuple):
    """What the head returns: class probabilities and the three entropies, in nats."""

    probs: Tensor
    entropy: Tensor
    aleatoric: Tensor
    epistemic: Tensor


def fixed_draws(count: int, classes: int, sampling: str = "quasi", seed: int = 0) -> Tensor:
    """``count`` points of a standard normal in ``classes`` dimensions.

    "quasi": scrambled Sobol points through the inverse normal cdf, mirrored (so every odd moment
    is exactly right) and standardised. "random": plain independent draws, as in the paper; they
    too are drawn once, from ``seed``.
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
    return _standardise(torch.cat([half, -half])[:count])


def _standardise(points: Tensor) -> Tensor:
    """Give the points unit variance and, where they are enough, no correlation between classes.

    Of 64 points for 7 classes this halves the head's error (docs/fidelity.md).
    """
    second = points.transpose(0, 1) @ points / len(points)
    if len(points) < 4 * points.shape[1]:
        return points / second.diagonal().sqrt()
    root = torch.linalg.cholesky(second)
    white: Tensor = torch.linalg.solve_triangular(root, points.transpose(0, 1), upper=False)
    return white.transpose(0, 1).contiguous()


def classify(logits: Uncertain, draws: Tensor, class_dim: int) -> Classification:
    """Average the softmax over the distribution of the logits."""
    return average(torch.log_softmax(logits.sample(draws, class_dim), -1), class_dim)


def average(log_probs: Tensor, class_dim: int) -> Classification:
    """From log-probabilities of shape (…, draws, classes) to their summary over the draws."""
    each = log_probs.exp()
    aleatoric = (each * log_probs).sum((-2, -1)) * (-1 / log_probs.shape[-2])
    return with_entropies(each.mean(-2), aleatoric, class_dim)


def with_entropies(probs: Tensor, aleatoric: Tensor, class_dim: int) -> Classification:
    """Add the predictive entropy; what it exceeds the expected entropy by is epistemic."""
    tiny = torch.finfo(probs.dtype).tiny
    entropy = -(probs * probs.clamp(min=tiny).log()).sum(-1)
    epistemic = (entropy - aleatoric).clamp(min=0)  # Jensen: below 0 only by rounding
    return Classification(probs.movedim(-1, class_dim), entropy, aleatoric, epistemic)


def join_particles(fields: dict[str, Tensor], count: int, class_dim: int) -> dict[str, Tensor]:
    """From what is said of each particle, one row after the other, to what is said of each input.

    The averages; the variance is that within particles and that between them. Balanced masks are
    drawn together, so that 1/k makes that between them unbiased, not 1/(k − 1).
    """
    each = {name: x.reshape(-1, count, *x.shape[1:]) for name, x in fields.items()}
    joined = {name: value.mean(1) for name, value in each.items()}
    apart = each["mean"] - joined["mean"].unsqueeze(1)
    joined["var"] = joined["var"] + (apart * apart).mean(1)
    if "probs" in joined:
        probs = joined["probs"].movedim(class_dim, -1)
        joined |= with_entropies(probs, joined["aleatoric"], class_dim)._asdict()
    return joined


def classify_certain(logits: Tensor, class_dim: int) -> Classification:
    """Certain logits: the plain softmax. Its epistemic part is 0, not a rounding error."""
    probs, entropy = softmax_and_entropy(logits, class_dim)
    return Classification(probs.movedim(-1, class_dim), entropy, entropy, torch.zeros_like(entropy))


def softmax_and_entropy(logits: Tensor, class_dim: int) -> tuple[Tensor, Tensor]:
    """The softmax, its classes last, and its entropy in nats."""
    log_probs = torch.log_softmax(logits.movedim(class_dim, -1), -1)
    probs = log_probs.exp()
    return probs, -(probs * log_probs).sum(-1)
