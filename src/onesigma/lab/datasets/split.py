"""Training, validation and test inputs of a dataset, standardised."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Inputs (n, …, time) of some people, their labels and subjects (n,) int64."""

    inputs: Tensor
    labels: Tensor
    subjects: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor) -> Split:
        """Some rows: a mask, or their numbers."""
        return Split(self.inputs[rows], self.labels[rows], self.subjects[rows])

    def some(self, count: int, generator: torch.Generator) -> Tensor:
        """So many of the inputs, drawn by chance."""
        return self.inputs[torch.randperm(len(self), generator=generator)[:count]]


@dataclass(frozen=True)
class Splits:
    """The three splits in units of the training inputs: (raw − input_mean) / input_std.

    `name` says whose data it is, as results must print it; a stand-in names itself one.
    """

    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]
    input_mean: Tensor
    input_std: Tensor
    name: str = ""

    def standardise(self, raw: Tensor) -> Tensor:
        """Other inputs of the same kind, in the same units."""
        return ((raw - self.input_mean) / self.input_std).float()


def make_splits(
    train: Split, validation: Split, test: Split, class_names: tuple[str, ...], name: str
) -> Splits:
    """Standardise raw splits with one mean and one std for all instants of a training input.

    Time is the last axis. What never varies keeps its own scale.
    """
    mean = train.inputs.mean(dim=(0, -1), keepdim=True)[0]
    std = train.inputs.std(dim=(0, -1), correction=0, keepdim=True)[0]
    std = torch.where(std > 0, std, 1.0)
    raw = Splits(train, validation, test, class_names, mean, std, name)
    train, validation, test = (
        replace(split, inputs=raw.standardise(split.inputs)) for split in (train, validation, test)
    )
    return Splits(train, validation, test, class_names, mean.float(), std.float(), name)
