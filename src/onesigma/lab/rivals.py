"""Rivals: scores of foreign input that read a plain trained network, without dropout.

A rival is fitted once, on what the last linear layer reads and answers for the training set, and is
then a function of activations: higher means more foreign. Below, f is the feature of length d that
the last layer reads, z = W f + b its logits over K classes, μ_c the mean of the training features
of class c, n_c their number and N = Σ n_c.

- `max_probability`, Hendrycks & Gimpel 2017, arXiv:1610.02136: 1 − maxₖ softmax(z)ₖ.
- `energy`, Liu et al. 2020, arXiv:2010.03759: −ln Σₖ exp zₖ, at temperature 1.
- `k_nearest`, Sun et al. 2022, arXiv:2204.06507: ‖u − u₍ₖ₎‖, where u = f / ‖f‖ and u₍ₖ₎ is the k-th
  nearest of the training features, also of unit length. k = 50 is the paper's for CIFAR-10.
- `mahalanobis`, Lee et al. 2018, arXiv:1807.03888: min_c (f − μ_c)ᵀ Σ⁺ (f − μ_c) with the shared
  Σ = 1/N Σ_c Σ_{i in c} (f_i − μ_c)(f_i − μ_c)ᵀ. Σ⁺ is the pseudo-inverse, as in the authors' code:
  directions in which the training features do not vary within classes do not count. Without the
  paper's noise on the input and its weights over layers, which are tuned on foreign data.
- `vim`, Wang et al. 2022, arXiv:2203.10807: α ‖R(f − o)‖ − ln Σₖ exp zₖ. The origin is o = −W⁺ b, R
  projects on the eigenvectors of (F − o)ᵀ(F − o) after the first D, F has the training features as
  rows, and α = Σᵢ maxₖ zᵢₖ / Σᵢ ‖R(fᵢ − o)‖ makes the residual as large as the largest logit.
  D = 1000 if d ≥ 2048, 512 if d ≥ 768, else d / 2. Where the training features span no more than D
  directions nothing would remain and α be infinite: D is then half of what they span.
- `ddu`, Mukhoti et al. 2023, arXiv:2102.11582: −ln Σ_c π_c N(f; μ_c, Σ_c) with π_c = n_c / N and a
  full covariance per class (divided by n_c − 1). Where a class's variance in any direction is below
  1e-8 of the mean variance, that much is added to all classes, so that their densities remain
  comparable. The paper trains with spectral normalisation; this takes the network as it is.
- `last_layer_laplace`, Daxberger et al. 2021, arXiv:2106.14806, after MacKay 1992: weights and bias
  θ ~ N(θ*, (H + τ I)⁻¹) around the trained θ*, φ = (f, 1), pᵢ = softmax(zᵢ) and

      H = Σᵢ (diag pᵢ − pᵢ pᵢᵀ) ⊗ φᵢ φᵢᵀ
      probabilities = softmax(κ z),  κₖ = (1 + π/8 vₖ)^-1/2,  vₖ the variance of zₖ under θ
      ln p(data | τ) = ln p(data | θ*) − τ/2 ‖θ*‖² + P/2 ln τ − 1/2 ln det(H + τ I)

  vₖ leaves out how the logits vary together, as Daxberger's code does, although what all of them
  share does not change a softmax. On the small problem of the tests the probabilities come out
  softer than the mean over sampled parameters, by up to 0.09.
  H is the generalised Gauss-Newton matrix; for one linear layer it is the Hessian itself. Above
  d K = 2000 it is Kronecker-factored, [1/N Σᵢ diag pᵢ − pᵢ pᵢᵀ] ⊗ [Σᵢ φᵢ φᵢᵀ], with τ I added to
  the product exactly. τ has the largest ln p(data | τ) of a grid, with P parameters in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onesigma.lab import spotting
from onesigma.metrics.scoring import FloatArray, IntArray

CHUNK = 256
# The last layer's weights up to which the Hessian of all of them is built and decomposed.
LARGEST_FULL = 2000
PRIOR_PRECISIONS = np.logspace(-4, 4, 17)


@dataclass(frozen=True)
class Activations:
    """What the last linear layer reads, (n, d), and the logits that it answers, (n, K)."""

    features: FloatArray
    logits: FloatArray


@dataclass(frozen=True)
class Training:
    """All that a rival may be fitted on. The bias is None where the layer has none."""

    activations: Activations
    labels: IntArray
    weight: FloatArray
    bias: FloatArray | None


Score = Callable[[Activations], FloatArray]
# The same, but with the probabilities (n, K) as answer.
Predict = Callable[[Activations], FloatArray]


def read_activations(network: nn.Module, x: Tensor) -> Activations:
    """Run a plain network as in use, and note what its last linear layer reads."""
    return _read(network, x)[0]


def read_training(network: nn.Module, x: Tensor, labels: npt.ArrayLike) -> Training:
    activations, layer = _read(network, x)
    bias = None if layer.bias is None else _array(layer.bias)
    return Training(activations, np.asarray(labels, dtype=np.int64), _array(layer.weight), bias)


def _read(network: nn.Module, x: Tensor) -> tuple[Activations, nn.Linear]:
    # The last to run, which need not be the last by name. A copy, for ops that write in place.
    last: list[tuple[nn.Linear, Tensor]] = []

    def note(layer: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        last[:] = [(layer, inputs[0].clone())]

    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_pre_hook(note) for layer in linear]
    features, logits = [], []
    try:
        with torch.no_grad(), _evaluating(network):
            for rows in torch.split(x, CHUNK):
                answer = network(rows)
                if not last:
                    raise ValueError(
                        "The network runs no nn.Linear, so it has no last one to read."
                    )
                features.append(_checked_features(*last[0], answer))
                logits.append(answer.flatten(1))
    finally:
        for hook in hooks:
            hook.remove()
    return Activations(_array(torch.cat(features)), _array(torch.cat(logits))), last[0][0]


def _checked_features(layer: nn.Linear, inputs: Tensor, answer: object) -> Tensor:
    features = inputs.flatten(1)
    if isinstance(answer, Tensor) and features.shape[1] == layer.in_features:
        expected = F.linear(features, layer.weight, layer.bias)
        # Rounding depends on the shape of the input, so not bit for bit.
        room = 1e-4 * float(expected.abs().max())
        if answer.flatten(1).shape == expected.shape and (
            torch.allclose(answer.flatten(1), expected, rtol=0, atol=room)
        ):
            return features
    raise ValueError(
        f"The network's output is not that of its last nn.Linear, {layer}, one row per input: "
        "rivals need plain logits. Take off what follows that layer, for example a softmax."
    )


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _array(values: Tensor) -> FloatArray:
    return np.asarray(values.detach().cpu().double().numpy())


def max_probability(activations: Activations) -> FloatArray:
    # The rest's share instead of 1 − p, which is 0 for all logits more than 37 ahead.
    ahead = np.exp(activations.logits - activations.logits.max(axis=1, keepdims=True))
    np.put_along_axis(ahead, activations.logits.argmax(axis=1)[:, None], 0, axis=1)
    rest = ahead.sum(axis=1)
    return np.asarray(rest / (1 + rest))


def energy(activations: Activations) -> FloatArray:
    return spotting.energy(activations.logits)


def k_nearest(train: Activations, labels: npt.ArrayLike, k: int = 50) -> Score:
    """Distance to the k-th nearest training feature, all of unit length. Asks for no labels."""
    bank = _unit(train.features)
    if not 1 <= k <= len(bank):
        raise ValueError(f"k must be within 1..{len(bank)}, the training features; got {k}.")
    half = 0.5 * _squared_length(bank)

    def distance(rows: FloatArray) -> FloatArray:
        # (‖a − b‖² − ‖a‖²) / 2 finds the neighbour; its distance is then taken without cancelling.
        order = np.argpartition(half - rows @ bank.T, k - 1, axis=1)
        return np.asarray(np.linalg.norm(rows - bank[order[:, k - 1]], axis=1))

    return lambda activations: _in_chunks(distance, _unit(activations.features))


def _unit(features: FloatArray) -> FloatArray:
    # A feature of zeros, where no ReLU is on, stays one.
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, 1e-10))


def _in_chunks(function: Callable[[FloatArray], FloatArray], rows: FloatArray) -> FloatArray:
    starts = range(0, len(rows), CHUNK)
    return np.concatenate([np.zeros(0), *(function(rows[i : i + CHUNK]) for i in starts)])


def mahalanobis(train: Activations, labels: npt.ArrayLike) -> Score:
    """Squared distance to the nearest class mean, in units of the shared covariance."""
    groups = _by_class(train, labels)
    centred = np.concatenate([rows - rows.mean(axis=0) for rows in groups])
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = values > _rounding(train)
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    means = [rows.mean(axis=0) @ whiten for rows in groups]

    def score(activations: Activations) -> FloatArray:
        white = activations.features @ whiten
        return np.asarray(np.min([_squared_length(white - mean) for mean in means], axis=0))

    return score


def _by_class(train: Activations, labels: npt.ArrayLike) -> list[FloatArray]:
    """The features of each class that occurs."""
    classes = np.asarray(labels)
    if classes.shape != train.features.shape[:1]:
        raise ValueError(f"{len(train.features)} features, but labels {classes.shape}.")
    return [train.features[classes == one] for one in np.unique(classes)]


def _rounding(train: Activations) -> float:
    """The most that float32, in which networks run, adds to an eigenvalue of the covariance."""
    return float(np.finfo(np.float32).eps ** 2 * _squared_length(train.features).mean())


def _squared_length(rows: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("nd,nd->n", rows, rows))


def vim(train: Activations, weight: FloatArray, bias: FloatArray | None) -> Score:
    """The residual off the principal space as one more logit, against the others."""
    width = weight.shape[1]
    origin = np.zeros(width) if bias is None else -np.linalg.pinv(weight) @ bias
    moved = train.features - origin
    values, vectors = np.linalg.eigh(moved.T @ moved / len(moved))
    # Ascending order: the principal space is at the end.
    rank = int(np.sum(values > _rounding(train)))
    residual = vectors[:, : width - _principal_dimension(width, rank)]

    def lengths(features: FloatArray) -> FloatArray:
        return np.asarray(np.linalg.norm((features - origin) @ residual, axis=1))

    alpha = train.logits.max(axis=1).sum() / lengths(train.features).sum()
    return lambda activations: alpha * lengths(activations.features) + energy(activations)


def _principal_dimension(width: int, rank: int) -> int:
    dimension = 1000 if width >= 2048 else 512 if width >= 768 else width // 2
    return dimension if dimension < rank else rank // 2


def ddu(train: Activations, labels: npt.ArrayLike, jitter: float = 1e-8) -> Score:
    """Negative log density of a mixture with one Gaussian per class."""
    groups = _by_class(train, labels)
    spectra = [np.linalg.eigh(_covariance(rows)) for rows in groups]
    variances = np.stack([values for values, _ in spectra])
    floor = jitter * variances.mean()
    variances = variances + (floor if variances.min() < floor else 0)
    parts = [
        (np.log(len(rows) / len(train.features)), rows.mean(axis=0), vectors, own)
        for rows, (_, vectors), own in zip(groups, spectra, variances, strict=True)
    ]

    def score(activations: Activations) -> FloatArray:
        logs = []
        for log_share, mean, vectors, own in parts:
            white = (activations.features - mean) @ (vectors / np.sqrt(own))
            logs.append(log_share - 0.5 * (np.log(2 * np.pi * own).sum() + _squared_length(white)))
        return np.asarray(-np.logaddexp.reduce(logs, axis=0))

    return score


def _covariance(rows: FloatArray) -> FloatArray:
    centred = rows - rows.mean(axis=0)
    return np.asarray(centred.T @ centred / max(len(rows) - 1, 1))


@dataclass(frozen=True)
class Curvature:
    """The eigenvalues of H, and for a prior precision the variances of logits (n, K) given φ."""

    eigenvalues: FloatArray
    variances: Callable[[float], Callable[[FloatArray], FloatArray]]


def last_layer_laplace(
    train: Activations,
    labels: npt.ArrayLike,
    weight: FloatArray,
    bias: FloatArray | None,
    prior_precision: float | None = None,
) -> Predict:
    """Probabilities under a Gaussian over the last layer; None takes the most likely precision."""
    biased = bias is not None
    inputs, probs = _inputs(train, biased), _softmax(train.logits)
    curvature = (full_curvature if weight.size <= LARGEST_FULL else kronecker_curvature)(
        inputs, probs
    )
    if prior_precision is None:
        evidence = [
            log_evidence(train, labels, weight, bias, curvature, precision)
            for precision in PRIOR_PRECISIONS
        ]
        prior_precision = float(PRIOR_PRECISIONS[np.argmax(evidence)])
    variances = curvature.variances(prior_precision)

    def predict(activations: Activations) -> FloatArray:
        scale = 1 / np.sqrt(1 + np.pi / 8 * variances(_inputs(activations, biased)))
        return _softmax(scale * activations.logits)

    return predict


def entropy_score(predict: Predict) -> Score:
    return lambda activations: spotting.entropy(predict(activations))


def log_evidence(
    train: Activations,
    labels: npt.ArrayLike,
    weight: FloatArray,
    bias: FloatArray | None,
    curvature: Curvature,
    precision: float,
) -> float:
    """Laplace's approximation of ln p(data | prior precision)."""
    own = np.take_along_axis(train.logits, np.asarray(labels)[:, None], axis=1)[:, 0]
    likelihood = np.sum(own + energy(train))
    squares = np.sum(weight**2) + (0 if bias is None else np.sum(bias**2))
    shrink = np.log(curvature.eigenvalues / precision + 1).sum()
    return float(likelihood - 0.5 * (precision * squares + shrink))


def full_curvature(inputs: FloatArray, probs: FloatArray) -> Curvature:
    values, vectors = np.linalg.eigh(hessian(inputs, probs))
    values = np.maximum(values, 0)
    classes, width = probs.shape[1], inputs.shape[1]

    def variances(precision: float) -> Callable[[FloatArray], FloatArray]:
        covariance = (vectors / (values + precision)) @ vectors.T
        blocks = np.einsum("kikj->kij", covariance.reshape(classes, width, classes, width))
        return lambda rows: np.stack([((rows @ b) * rows).sum(axis=1) for b in blocks], axis=1)

    return Curvature(values, variances)


def hessian(inputs: FloatArray, probs: FloatArray) -> FloatArray:
    """H of the negative log-likelihood; one class after the other, as in the layer's weight."""
    width, classes = inputs.shape[1], probs.shape[1]
    blocks = np.empty((classes, width, classes, width))
    for k, j in combinations_with_replacement(range(classes), 2):
        share = probs[:, k] * ((k == j) - probs[:, j])
        blocks[k, :, j] = blocks[j, :, k] = (inputs * share[:, None]).T @ inputs
    return blocks.reshape(classes * width, classes * width)


def kronecker_curvature(inputs: FloatArray, probs: FloatArray) -> Curvature:
    mean_output = np.diag(probs.mean(axis=0)) - probs.T @ probs / len(probs)
    outer, turn_out = np.linalg.eigh(mean_output)
    inner, turn_in = np.linalg.eigh(inputs.T @ inputs)
    values = np.outer(np.maximum(inner, 0), np.maximum(outer, 0))

    def variances(precision: float) -> Callable[[FloatArray], FloatArray]:
        mixed = 1 / (values + precision) @ (turn_out**2).T
        return lambda rows: np.asarray((rows @ turn_in) ** 2 @ mixed)

    return Curvature(values.ravel(), variances)


def _inputs(activations: Activations, biased: bool) -> FloatArray:
    features = activations.features
    return np.hstack([features, np.ones((len(features), 1))]) if biased else features


def _softmax(logits: FloatArray) -> FloatArray:
    return np.asarray(np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None]))


def _laplace_entropy(seen: Training) -> Score:
    predict = last_layer_laplace(seen.activations, seen.labels, seen.weight, seen.bias)
    return entropy_score(predict)


RIVALS: dict[str, Callable[[Training], Score]] = {
    "max probability": lambda seen: max_probability,
    "energy": lambda seen: energy,
    "k nearest": lambda seen: k_nearest(seen.activations, seen.labels),
    "Mahalanobis": lambda seen: mahalanobis(seen.activations, seen.labels),
    "ViM": lambda seen: vim(seen.activations, seen.weight, seen.bias),
    "DDU": lambda seen: ddu(seen.activations, seen.labels),
    "Laplace": _laplace_entropy,
}


def fit_rivals(network: nn.Module, x: Tensor, labels: npt.ArrayLike) -> dict[str, Score]:
    """All of `RIVALS`, fitted on one reading of the training set."""
    seen = read_training(network, x, labels)
    return {name: fit(seen) for name, fit in RIVALS.items()}
