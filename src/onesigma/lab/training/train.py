"""Train a network: Adam on cross-entropy, the epoch with the best validation loss kept.

With a path, a training survives being killed. After each epoch all that decides the next one
(weights, best weights, Adam's moments, the random state) goes to one file, whole or not at all, and
the next call with that path goes on from there: it ends with the weights, bit for bit, of a
training that was never interrupted (same machine, same number of threads, on the CPU). A finished
training is one file with the best weights and its record; calling again only reads it.

A file that is damaged or of another training is an error that names it, never a silent restart:
only the user knows whether it may be deleted.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onesigma.errors import InputError, ModelError
from onesigma.lab.datasets.watch import Split
from onesigma.lab.training.checkpoint import (
    State,
    load_result,
    restore_state,
    save_result,
    save_state,
)
from onesigma.storage.atomic import remove_leftovers

Build = Callable[[], nn.Module]
OnEpoch = Callable[[Sequence[float]], None]


@dataclass(frozen=True)
class TrainingSettings:
    """How to train; by default as the paper does, who says nothing of epochs.

    Attributes:
        epochs: at most.
        patience: training stops so many epochs after the last improvement on validation.
        batch: examples per step.
        learning_rate: of Adam.
    """

    epochs: int = 100
    patience: int = 20
    batch: int = 64
    learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise InputError(f"{name}={value}: it must be above 0.")


@dataclass(frozen=True)
class TrainingRecord:
    """How a network came to be: `losses` are the validation losses after each epoch, from 1."""

    seed: int
    settings: TrainingSettings
    losses: tuple[float, ...]
    best_epoch: int
    validation_accuracy: float
    seconds: float
    torch_version: str

    @property
    def validation_loss(self) -> float:
        return self.losses[self.best_epoch - 1]


@dataclass(frozen=True)
class Trained:
    """A network as it was after its best epoch, in eval mode, and the record of its training."""

    network: nn.Module
    record: TrainingRecord


def train(
    build: Build,
    examples: Split,
    validation: Split,
    settings: TrainingSettings | None = None,
    *,
    seed: int = 0,
    path: Path | None = None,
    on_epoch: OnEpoch = lambda losses: None,
) -> Trained:
    """Train what `build` makes, or go on, or read the finished result.

    The caller's random state is left as it was.

    Args:
        build: makes the network, its first weights from torch's random state.
        examples: what to train on.
        validation: what tells when to stop, and which epoch was best.
        settings: see ``TrainingSettings``; None for the defaults.
        seed: of the first weights, the order of the batches and the dropout masks.
        path: where the result goes, and until then, beside it, the unfinished training.
        on_epoch: called after each epoch (and its checkpoint) with the validation losses so far.

    Raises:
        FileError: a file at `path` is damaged or of another training.
        ModelError: the training diverged.
    """
    settings = settings or TrainingSettings()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build()
        key = f"{fingerprint(network, examples, validation, settings)} {seed}"
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(path)
            remove_leftovers(unfinished(path))
            if path.exists():
                return _finished(network, path, key)
        optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
        state = State(network, optimizer)
        checkpoint = unfinished(path) if path is not None else None
        _run(state, examples, validation, settings, checkpoint, key, on_epoch)
    network.load_state_dict(state.best)
    record = TrainingRecord(
        seed=seed,
        settings=settings,
        losses=tuple(state.losses),
        best_epoch=state.best_epoch,
        validation_accuracy=accuracy(network.eval(), validation),
        seconds=round(state.seconds, 1),
        torch_version=torch.__version__,
    )
    if path is not None:
        save_result(network, asdict(record), path, key)
        unfinished(path).unlink(missing_ok=True)
    return Trained(network, record)


def fingerprint(
    network: nn.Module, examples: Split, validation: Split, settings: TrainingSettings
) -> str:
    """A digest of what decides the outcome but the seed: network as printed, data, settings."""
    shapes = {name: list(value.shape) for name, value in network.state_dict().items()}
    digest = hashlib.sha256(json.dumps([repr(network), shapes, asdict(settings)]).encode())
    for split in (examples, validation):
        for tensor in (split.inputs, split.labels):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


@torch.no_grad()
def logits(network: nn.Module, inputs: Tensor) -> Tensor:
    """The plain network's answer, in eval mode and in pieces that fit in memory."""
    network.eval()
    return torch.cat([network(chunk) for chunk in torch.split(inputs, 256)])


def accuracy(network: nn.Module, split: Split) -> float:
    right = logits(network, split.inputs).argmax(dim=1) == split.labels
    return float(right.double().mean())


def _run(
    state: State,
    examples: Split,
    validation: Split,
    settings: TrainingSettings,
    checkpoint: Path | None,
    key: str,
    on_epoch: OnEpoch,
) -> None:
    """Epoch after epoch until there is no more to gain, from the checkpoint if there is one."""
    if checkpoint is not None and checkpoint.exists():
        restore_state(state, checkpoint, key)
    while (
        len(state.losses) < settings.epochs
        and len(state.losses) - state.best_epoch < settings.patience
    ):
        started = time.perf_counter()
        _run_epoch(state, examples, settings.batch)
        _validate(state, validation)
        state.seconds += time.perf_counter() - started
        if checkpoint is not None:
            save_state(state, checkpoint, key)
        on_epoch(state.losses)


def _run_epoch(state: State, examples: Split, batch: int) -> None:
    state.network.train()
    for rows in torch.split(torch.randperm(len(examples)), batch):
        state.optimizer.zero_grad()
        loss = F.cross_entropy(state.network(examples.inputs[rows]), examples.labels[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        state.optimizer.step()


def _validate(state: State, validation: Split) -> None:
    loss = float(F.cross_entropy(logits(state.network, validation.inputs), validation.labels))
    if not math.isfinite(loss):
        raise ModelError(
            f"Training diverged: the validation loss is {loss} after epoch "
            f"{len(state.losses) + 1}. Lower the learning rate, or look for NaN in the inputs."
        )
    state.losses.append(loss)
    if state.best_epoch == len(state.losses):
        state.best = {name: value.clone() for name, value in state.network.state_dict().items()}


def _finished(network: nn.Module, path: Path, key: str) -> Trained:
    content = load_result(network, path, key)
    # Still there if the kill came between writing the one and deleting the other.
    unfinished(path).unlink(missing_ok=True)
    content["settings"] = TrainingSettings(**content["settings"])
    content["losses"] = tuple(content["losses"])
    return Trained(network.eval(), TrainingRecord(**content))


def unfinished(path: Path) -> Path:
    """Where the training whose result goes to `path` is kept until then."""
    return path.with_suffix(f".unfinished{path.suffix}")
