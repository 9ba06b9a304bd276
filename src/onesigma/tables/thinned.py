"""A part of a long stream, from all over it, without knowing how long it is."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def thinned(batches: Iterable[Tensor], most: int) -> tuple[Tensor, int]:
    """Every k-th sample, at most ``most`` and at least half of that if there are so many; and k.

    Recordings lie in the order they were made, so the first ones would not do. Whenever too many
    were kept, every second goes: memory holds no more than they and a batch.
    """
    kept: list[Tensor] = []
    step, seen = 1, 0
    for batch in batches:
        kept.append(batch[-seen % step :: step].clone())
        seen += len(batch)
        while sum(map(len, kept)) > most:
            kept, step = [torch.cat(kept)[::2].clone()], 2 * step
    return torch.cat(kept), step
