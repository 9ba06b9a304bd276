"""Labels as the fits with labels take them."""

from __future__ import annotations

import torch
from torch import Tensor

from onesigma.errors import InputError


def checked_labels(probs: Tensor, labels: Tensor, class_dim: int) -> Tensor:
    """The labels as integers beside ``probs``; raises InputError if either is not what it says."""
    labels = torch.as_tensor(labels, device=probs.device)
    wanted = probs.movedim(class_dim, -1).shape
    if labels.shape != wanted[:-1] or labels.numel() == 0:
        raise InputError(
            f"Expected labels of shape {tuple(wanted[:-1])}, at least one, for probabilities of "
            f"shape {tuple(probs.shape)}; got {tuple(labels.shape)}."
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"Labels are the numbers of classes, integers, not {labels.dtype}.")
    if int(labels.min()) < 0 or int(labels.max()) >= wanted[-1]:
        raise InputError(
            f"Labels are within 0..{wanted[-1] - 1}, not {int(labels.min())}..{int(labels.max())}."
        )
    total = probs.sum(class_dim)
    if not bool((probs >= 0).all()) or not torch.allclose(total, torch.ones_like(total), atol=1e-3):
        raise InputError("Probabilities are positive and sum to 1: did you pass logits, or NaN?")
    return labels.long()
