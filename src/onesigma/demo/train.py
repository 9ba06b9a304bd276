"""Train the demo's network from the recordings, in about a minute on two cores."""

import copy
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from onesigma.data import watch
from onesigma.demo.checkpoint import Checkpoint, TrainingRecord, save
from onesigma.demo.network import WatchNet

EPOCHS = 60
PATIENCE = 20
BATCH = 64
LEARNING_RATE = 1e-3


def train(
    seed: int = 0, epochs: int = EPOCHS, progress: bool = True, path: Path | None = None
) -> Checkpoint:
    """Train with Adam on cross-entropy and keep the epoch with the best validation loss.

    The same seed gives the same weights on the same machine. The caller's random state is
    left as it was.

    Args:
        seed: of the initial weights, the order of the batches and the dropout masks.
        epochs: at most; training stops 20 epochs after the last improvement.
        progress: show a progress bar on standard error.
        path: where to write the checkpoint, whole or not at all; None writes nothing.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}.")
    data = watch.load()
    started = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, best_epoch = _fit(WatchNet(), data, epochs, progress)
    seconds = round(time.perf_counter() - started, 1)
    record = _record(network, data, seed, epochs, best_epoch, seconds)
    checkpoint = Checkpoint(network, record)
    if path is not None:
        save(checkpoint, path)
    return checkpoint


def _fit(network: WatchNet, data: watch.Watch, epochs: int, progress: bool) -> tuple[WatchNet, int]:
    """The network as it was after the best epoch, in eval mode, and which epoch (from 1) it was."""
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    best_loss, best_epoch, best = float("inf"), 0, copy.deepcopy(network)
    bar = tqdm(range(1, epochs + 1), desc="training", unit="epoch", disable=not progress)
    for epoch in bar:
        _run_epoch(network, optimizer, data.train)
        loss = float(
            F.cross_entropy(_logits(network, data.validation.inputs), data.validation.labels)
        )
        bar.set_postfix(validation_loss=f"{loss:.3f}", best=f"{min(loss, best_loss):.3f}")
        if loss < best_loss:
            best_loss, best_epoch, best = loss, epoch, copy.deepcopy(network)
        elif epoch - best_epoch >= PATIENCE:
            break
    bar.close()
    return best.eval(), best_epoch


def _record(
    network: WatchNet, data: watch.Watch, seed: int, epochs: int, best_epoch: int, seconds: float
) -> TrainingRecord:
    return TrainingRecord(
        seed=seed,
        epochs=epochs,
        best_epoch=best_epoch,
        seconds=seconds,
        width=network.width,
        dropout=network.dropout,
        train_subjects=watch.TRAIN_SUBJECTS,
        validation_subjects=watch.VALIDATION_SUBJECTS,
        test_subjects=watch.TEST_SUBJECTS,
        data_sha256=watch.SHA256,
        input_mean=_rows(data.input_mean),
        input_std=_rows(data.input_std),
        accuracy={
            "train": _accuracy(network, data.train),
            "validation": _accuracy(network, data.validation),
            "test": _accuracy(network, data.test),
        },
    )


def _run_epoch(network: WatchNet, optimizer: torch.optim.Optimizer, split: watch.Split) -> None:
    network.train()
    for batch in torch.split(torch.randperm(len(split)), BATCH):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(split.inputs[batch]), split.labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def _logits(network: WatchNet, inputs: Tensor) -> Tensor:
    network.eval()
    return torch.cat([network(chunk) for chunk in torch.split(inputs, 256)])


def _accuracy(network: WatchNet, split: watch.Split) -> float:
    right = _logits(network, split.inputs).argmax(dim=1) == split.labels
    return round(float(right.double().mean()), 4)


def _rows(statistic: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(value) for value in row) for row in statistic.squeeze(-1))
