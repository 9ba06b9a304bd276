"""Scores of a predictive distribution against the true labels, averaged over samples."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# A probability that underflowed to 0 would make the mean infinite and every comparison void;
# the floor caps what one sample may cost at -log(1e-12) = 27.6 nats.
PROBABILITY_FLOOR = 1e-12
# The same for a variance: below a standard deviation of 0.001, a Gaussian's density means nothing.
VARIANCE_FLOOR = 1e-6


def checked(probs: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[FloatArray, IntArray]:
    """The two as float64 (n, classes) and int64 (n,), or a ValueError that names what is wrong."""
    values = np.asarray(probs, dtype=np.float64)
    classes = np.asarray(labels)
    if values.ndim != 2 or classes.shape != values.shape[:1]:
        raise ValueError(
            f"Expected probs (n, classes) and labels (n,), got {values.shape} and {classes.shape}."
        )
    if values.shape[0] == 0:
        raise ValueError("A metric of no samples is undefined: probs and labels are empty.")
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1 + 1e-6:
        raise ValueError("probs must be finite and within 0..1; did you pass logits?")
    if not np.issubdtype(classes.dtype, np.integer):
        raise ValueError(f"labels must be integers, got {classes.dtype}.")
    if classes.min() < 0 or classes.max() >= values.shape[1]:
        raise ValueError(
            f"labels must be within 0..{values.shape[1] - 1}, got {classes.min()}..{classes.max()}."
        )
    return values, classes.astype(np.int64)


def accuracy(probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of samples whose most probable class is the label; ties go to the lower class."""
    return float(np.mean(~is_wrong(probs, labels)))


def is_wrong(probs: npt.ArrayLike, labels: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Per sample, whether the most probable class is another than the label."""
    values, classes = checked(probs, labels)
    return np.asarray(values.argmax(axis=1) != classes)


def f1_macro(probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """F1 of each class, averaged over the classes that are a label or an answer anywhere."""
    scores, support, answered = _f1(probs, labels)
    return float(scores[support + answered > 0].mean())


def f1_weighted(probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """F1 of each class, averaged with the number of its labels as weight."""
    scores, support, _ = _f1(probs, labels)
    return float(np.average(scores, weights=support))


def _f1(probs: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[FloatArray, IntArray, IntArray]:
    """Per class F1 = 2 · hits / (labels + answers), 0 where there are neither; labels; answers."""
    values, classes = checked(probs, labels)
    answers = values.argmax(axis=1)
    support, answered, hits = (
        np.bincount(which, minlength=values.shape[1])
        for which in (classes, answers, classes[answers == classes])
    )
    return 2 * hits / np.maximum(support + answered, 1), support, answered


def nll(probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Negative log-likelihood in nats, mean of −log p(label); p is floored at 1e-12."""
    values, classes = checked(probs, labels)
    chosen = values[np.arange(len(classes)), classes]
    return float(np.mean(-np.log(np.maximum(chosen, PROBABILITY_FLOOR))))


def brier(probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Brier score in its original form, mean of Σₖ (pₖ − 1[k = label])²; 0 is best, 2 worst.

    Brier 1950. Twice the one-probability form that is common for two classes.
    """
    values, classes = checked(probs, labels)
    target = np.zeros_like(values)
    target[np.arange(len(classes)), classes] = 1.0
    return float(np.mean(np.sum((values - target) ** 2, axis=1)))


def gaussian_nll(
    mean: npt.ArrayLike, var: npt.ArrayLike, observed: npt.ArrayLike, floor: float = VARIANCE_FLOOR
) -> float:
    """The paper's NLL (its equation 15), per observation and in nats.

        NLL = ½ ln 2π + ½ ln σ² + (x − μ)² / 2σ²
    averaged over the elements; with one μ and σ² for all n it is the paper's sum divided by n. The
    paper does not say what x, μ and σ² are for classes: the natural reading is one-hot labels
    against mean and variance of the probabilities, all (n, classes). Unbounded below, and ruled by
    `floor` wherever a method is almost certain: compare with care, and prefer `nll`.

    Args:
        mean: μ; the three broadcast.
        var: σ², raised to `floor` where it is smaller.
        observed: x.
        floor: the smallest variance that is believed.
    """
    centre, spread, values = (np.asarray(a, dtype=np.float64) for a in (mean, var, observed))
    if not all(np.isfinite(a).all() for a in (centre, spread, values)) or (spread < 0).any():
        raise ValueError("mean, var and observed must be finite, and var not negative.")
    if not floor > 0:
        raise ValueError(f"floor must be above 0, got {floor}.")
    believed = np.maximum(spread, floor)
    terms = 0.5 * np.log(2 * np.pi * believed) + (values - centre) ** 2 / (2 * believed)
    if terms.size == 0:
        raise ValueError("A metric of no samples is undefined: mean, var and observed are empty.")
    return float(terms.mean())
