"""A pool of trainings of one network: finished ones are reused, unfinished ones go on.

    member i   the training with seed i, in `folder`/<name>-<digest>/member-<i>.safetensors
The digest stands for network, data and settings, so a pool is never mixed from two of them.

Who is drawn. Trial t takes the members t·k, …, t·k + k − 1, counted around the pool, for an
ensemble of k; a backbone (and what is made from it: MC dropout, ours) is an ensemble of one. So
different trials share as few members as the size of the pool allows, and each member is used as
often as any other. For a pool of 12 and three trials:

    k = 1    0 │ 1 │ 2                          nothing shared
    k = 3    0–2 │ 3–5 │ 6–8                    nothing shared
    k = 5    0–4 │ 5–9 │ 10, 11, 0–2            the first and the last share 3 of 5
    k = 10   0–9 │ 10, 11, 0–7 │ 8–11, 0–5      any two share 8 of 10
The spread of the large ensembles over trials is therefore smaller than it would be for ensembles
trained apart: it does not measure how much a new ensemble of ten would differ.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from onesigma.errors import InputError, OnesigmaError
from onesigma.lab.datasets.split import Split
from onesigma.lab.training.train import (
    Build,
    Trained,
    TrainingSettings,
    epoch_bar,
    fingerprint,
    train,
)

MEMBERS = 12

_Arrays = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True)
class Pool:
    """Trained members, member i with seed i."""

    members: tuple[Trained, ...]

    def draw(self, size: int, trial: int) -> list[nn.Module]:
        """The networks of one ensemble; of ``size`` 1, a backbone."""
        return [
            self.members[index].network for index in choose_members(len(self.members), size, trial)
        ]


def choose_members(members: int, size: int, trial: int) -> list[int]:
    """Which members make up the ensemble of ``size`` in a trial; see the top of this file."""
    if not 1 <= size <= members:
        raise InputError(f"A pool of {members} holds no ensemble of {size}.")
    return [(trial * size + i) % members for i in range(size)]


def train_pool(
    build: Build,
    examples: Split,
    validation: Split,
    settings: TrainingSettings,
    folder: Path,
    *,
    name: str = "network",
    members: int = MEMBERS,
    processes: int = 1,
    progress: bool = True,
) -> Pool:
    """Train the members that are missing and read the others.

    Killed at any time, the next call goes on where this one stood.

    Args:
        build: makes the network; a function of a module, or a partial of one, if processes > 1.
        examples: what to train on.
        validation: what tells when to stop; the same for all members.
        settings: see ``TrainingSettings``.
        folder: of all pools; this one gets a folder in it.
        name: of this pool, for its folder and the progress bars.
        members: how many.
        processes: how many members to train at a time, each on one thread if more than one.
        progress: show a bar per training on standard error.
    """
    with torch.random.fork_rng(devices=[]):
        key = fingerprint(build(), examples, validation, settings)
    job = _Job(build, settings, folder / f"{name}-{key}", name, progress)
    missing = [seed for seed in range(members) if not job.path(seed).exists()]
    if processes > 1 and len(missing) > 1:
        _train_together(job, examples, validation, missing, processes)
    return Pool(tuple(job.train(seed, examples, validation) for seed in range(members)))


@dataclass(frozen=True)
class _Job:
    """A training without its seed and its data, as a worker gets it."""

    build: Build
    settings: TrainingSettings
    folder: Path
    name: str
    progress: bool

    def path(self, seed: int) -> Path:
        return self.folder / f"member-{seed:02d}.safetensors"

    def train(self, seed: int, examples: Split, validation: Split, position: int = 0) -> Trained:
        path, parent = self.path(seed), parent_process()
        show = self.progress and not path.exists()
        epochs, label = self.settings.epochs, f"{self.name} {seed}"
        with epoch_bar(label, epochs, position=position, show=show) as advance:

            def on_epoch(losses: Sequence[float]) -> None:
                advance(losses)
                if parent is not None and not parent.is_alive():
                    sys.exit("The process that wanted this training was killed.")

            return train(
                *(self.build, examples, validation, self.settings),
                seed=seed,
                path=path,
                on_epoch=on_epoch,
            )


def _train_together(
    job: _Job, examples: Split, validation: Split, seeds: list[int], processes: int
) -> None:
    """Train the seeds in several processes. If one fails, the caller meets the same error."""
    # As arrays: torch would send tensors through shared memory, of which containers have little.
    arrays = [
        (split.inputs.numpy(), split.labels.numpy(), split.subjects.numpy())
        for split in (examples, validation)
    ]
    context = get_context("spawn")
    workers = [
        context.Process(target=_work, args=(job, arrays, seeds[k::processes], k), daemon=True)
        for k in range(min(processes, len(seeds)))
    ]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
                worker.join()


def _work(job: _Job, arrays: list[_Arrays], seeds: list[int], position: int) -> None:
    # An exception, not an instant end, so that a file that is being written is cleaned up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    torch.set_num_threads(1)
    examples, validation = (Split(*map(torch.from_numpy, each)) for each in arrays)
    try:
        for seed in seeds:
            job.train(seed, examples, validation, position)
    except (OnesigmaError, KeyboardInterrupt):
        sys.exit(1)  # the caller meets the same error, and explains it
