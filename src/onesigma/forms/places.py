"""Where a network's answers are: one for each input, or one at each position of a map.

A map of logits, as of segmentation or of each step of a series, is many answers. They are learnt
and judged one by one, so that each is a row: (inputs, …, classes, …) becomes (rows, classes).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MOST = 256  # positions of an input to learn from


@dataclass(frozen=True)
class Places:
    """``chosen`` are the positions of a map that are looked at; None if there is no map."""

    class_dim: int = 1
    chosen: Tensor | None = None

    @staticmethod
    def of(shape: torch.Size, class_dim: int, generator: torch.Generator) -> Places:
        """Some positions of an answer of that shape, the same for all inputs."""
        count = shape[1:].numel() // shape[class_dim]
        if len(shape) == 2:
            return Places(class_dim)
        order = torch.randperm(count, generator=generator)[:_MOST]
        return Places(class_dim, order.sort().values)

    @property
    def count(self) -> int:
        """Rows for each input."""
        return 1 if self.chosen is None else len(self.chosen)

    def rows(self, answers: Tensor) -> Tensor:
        """(inputs, …) as (inputs · count, classes)."""
        if self.chosen is None:
            return answers
        return _positions_first(answers, self.class_dim)[:, self.chosen].flatten(0, 1)

    def rows_of_passes(self, answers: Tensor) -> Tensor:
        """(inputs, passes, …) as (inputs · count, passes, classes)."""
        if self.chosen is None:
            return answers
        inputs, passes = answers.shape[:2]
        each = self.rows(answers.flatten(0, 1))
        rows = each.reshape(inputs, passes, self.count, each.shape[1])
        return rows.transpose(1, 2).flatten(0, 1)

    def index(self, inputs: Tensor) -> Tensor:
        """The rows of so many inputs, given by their numbers."""
        return (inputs.unsqueeze(1) * self.count + torch.arange(self.count)).flatten()


def all_rows(answers: Tensor, class_dim: int) -> Tensor:
    """Every position as a row."""
    return answers if answers.dim() == 2 else _positions_first(answers, class_dim).flatten(0, 1)


def as_map(rows: Tensor, like: Tensor, class_dim: int) -> Tensor:
    """All rows in the places of ``like``, with or without classes."""
    if like.dim() == 2:
        return rows
    shape = like.movedim(class_dim, -1).shape
    if rows.dim() == 1:
        return rows.reshape(shape[:-1])
    return rows.reshape(shape).movedim(-1, class_dim)


def _positions_first(answers: Tensor, class_dim: int) -> Tensor:
    return answers.movedim(class_dim, -1).flatten(1, -2)
