"""Scores of a predictive distribution against the true labels, averaged over samples."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# A probability that underflowed to 0 would make the mean infinite and every comparison void;
# the floor caps what one sample may cost at -log(1e-12) = 27.6 nats.
PROBABILITY_FLOOR = 1e-12


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
    values, classes = checked(probs, labels)
    return float(np.mean(values.argmax(axis=1) == classes))


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
