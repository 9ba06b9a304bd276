"""Train a network: Adam on cross-entropy, the epoch with the best validation loss kept.

With a path, a training survives being killed. After each epoch all that decides the next one
(weights, best weights, Adam's moments, the random state) goes to one file, whole or not at all, and
the next call with that path goes on from there. It ends with the weights, bit for bit, of a
training that was never interrupted (same machine, same number of threads, on the CPU). A finished
training is one file with the best weights and its record; calling again only reads it.

A file that is damaged or of another training is an error that names it, never a silent restart:
only the user knows whether it may be deleted.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onesigma.errors import FileError, InputError, ModelError
from onesigma.lab.datasets.split import Split
from onesigma.storage import tensor_file

Build = Callable[[], nn.Module]
OnEpoch = Callable[[Sequence[float]], None]
Augment = Callable[[Tensor], Tensor]

_UNFINISHED, _FINISHED = "unfinished training", "trained network"


@dataclass(frozen=True)
class TrainingSettings:
    """How to train; by default as in the paper, which says nothing of epochs.

    Attributes:
        epochs: at most.
        patience: training stops so many epochs after the last improvement on validation.
        batch: examples per step.
        learning_rate: of Adam.
        weight_decay: of Adam.
        one_cycle: the learning rate is the peak of one cycle (Smith & Topin 2019) over all epochs.
    """

    epochs: int = 100
    patience: int = 20
    batch: int = 64
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    one_cycle: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch", "learning_rate"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}={getattr(self, name)}: it must be above 0.")


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
    augment: Augment | None = None,
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
        augment: alters each batch of inputs at random; its name is part of what a file is for.
        on_epoch: called after each epoch (and its checkpoint) with the validation losses so far.

    Raises:
        FileError: a file at `path` is damaged or of another training.
        ModelError: the training diverged.
    """
    settings = settings or TrainingSettings()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build()
        key = f"{fingerprint(network, examples, validation, settings, augment)} {seed}"
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                return _read_result(network, path, key)
        state = _State(network, settings, math.ceil(len(examples) / settings.batch))
        checkpoint = _Checkpoint(unfinished_path(path), key) if path is not None else None
        _run(state, examples, validation, checkpoint, augment, on_epoch)
    network.load_state_dict(state.best)
    record = TrainingRecord(
        *(seed, settings, tuple(state.losses), state.best_epoch),
        validation_accuracy=accuracy(network.eval(), validation),
        seconds=round(state.seconds, 1),
        torch_version=torch.__version__,
    )
    if path is not None:
        content = {"key": key, "record": asdict(record)}
        tensor_file.write(path, _FINISHED, network.state_dict(), content)
        unfinished_path(path).unlink(missing_ok=True)
    return Trained(network, record)


def fingerprint(
    network: nn.Module,
    examples: Split,
    validation: Split,
    settings: TrainingSettings,
    augment: Augment | None = None,
) -> str:
    """A digest of all that decides the outcome except the seed: network, data, settings."""
    shapes = {name: list(value.shape) for name, value in network.state_dict().items()}
    how = [repr(network), shapes, asdict(settings), getattr(augment, "__name__", None)]
    digest = hashlib.sha256(json.dumps(how).encode())
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


def unfinished_path(path: Path) -> Path:
    """Where the training whose result goes to `path` is kept until then."""
    return path.with_suffix(f".unfinished{path.suffix}")


@contextmanager
def epoch_bar(
    label: str, epochs: int, *, position: int = 0, show: bool = True
) -> Iterator[OnEpoch]:
    """A bar over the epochs on standard error, to be handed to ``train`` as its ``on_epoch``.

    Without tqdm there is none.
    """
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield lambda losses: None
        return
    # In a log file a line a minute is enough.
    interval = 0.1 if sys.stderr.isatty() else 60.0
    options = {"position": position, "mininterval": interval, "disable": not show}
    with tqdm(total=epochs, desc=label, unit="epoch", **options) as bar:

        def on_epoch(losses: Sequence[float]) -> None:
            figures = {"validation_loss": f"{losses[-1]:.3f}", "best": f"{min(losses):.3f}"}
            bar.set_postfix(figures, refresh=False)
            bar.update(len(losses) - bar.n)

        yield on_epoch


@dataclass
class _State:
    """A training between two epochs; torch's own random state belongs to it.

    `losses` are the validation losses after each epoch, `best` the weights where it was least.
    """

    network: nn.Module
    settings: TrainingSettings
    steps: int  # in an epoch
    best: dict[str, Tensor] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        rate, decay = self.settings.learning_rate, self.settings.weight_decay
        self.optimizer = torch.optim.Adam(self.network.parameters(), rate, weight_decay=decay)
        self.cycle: torch.optim.lr_scheduler.OneCycleLR | None = None
        if self.settings.one_cycle:
            total = self.settings.epochs * self.steps
            self.cycle = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, rate, total)

    @property
    def best_epoch(self) -> int:
        """The epoch of the least loss, counted from 1; 0 before the first."""
        return self.losses.index(min(self.losses)) + 1 if self.losses else 0


@dataclass(frozen=True)
class _Checkpoint:
    """The file of an unfinished training."""

    path: Path
    key: str

    def save(self, state: _State) -> None:
        optimizer = state.optimizer.state_dict()
        tensors = {
            **{f"network.{name}": value for name, value in state.network.state_dict().items()},
            **{f"best.{name}": value for name, value in state.best.items()},
            **{
                f"optimizer.{index}.{name}": value
                for index, moments in optimizer["state"].items()
                for name, value in moments.items()
            },
            "random": torch.get_rng_state(),
        }
        content = {"key": self.key, "losses": state.losses, "seconds": state.seconds}
        content["groups"] = optimizer["param_groups"]
        tensor_file.write(self.path, _UNFINISHED, tensors, content)

    def restore(self, state: _State) -> None:
        """Make `state`, and torch's random state, what they were when the file was written."""
        tensors, content = _read(self.path, _UNFINISHED, self.key)
        with _explain_misfit(self.path):
            state.network.load_state_dict(_under("network", tensors))
            state.best = _under("best", tensors)
            moments: dict[int, dict[str, Tensor]] = {}
            for name, value in _under("optimizer", tensors).items():
                index, _, kind = name.partition(".")
                moments.setdefault(int(index), {})[kind] = value
            groups = content["groups"]
            state.optimizer.load_state_dict({"state": moments, "param_groups": groups})
            state.losses, state.seconds = list(content["losses"]), float(content["seconds"])
            if state.cycle is not None:
                state.cycle.last_epoch = len(state.losses) * state.steps
            torch.set_rng_state(tensors["random"])


def _run(
    state: _State,
    examples: Split,
    validation: Split,
    checkpoint: _Checkpoint | None,
    augment: Augment | None,
    on_epoch: OnEpoch,
) -> None:
    """Epoch after epoch until there is no more to gain, from the checkpoint if there is one."""
    if checkpoint is not None and checkpoint.path.exists():
        checkpoint.restore(state)
    while (
        len(state.losses) < state.settings.epochs
        and len(state.losses) - state.best_epoch < state.settings.patience
    ):
        started = time.perf_counter()
        _run_epoch(state, examples, augment)
        _validate(state, validation)
        state.seconds += time.perf_counter() - started
        if checkpoint is not None:
            checkpoint.save(state)
        on_epoch(state.losses)


def _run_epoch(state: _State, examples: Split, augment: Augment | None) -> None:
    state.network.train()
    for rows in torch.split(torch.randperm(len(examples)), state.settings.batch):
        inputs = examples.inputs[rows]
        state.optimizer.zero_grad()
        outputs = state.network(inputs if augment is None else augment(inputs))
        F.cross_entropy(outputs, examples.labels[rows]).backward()  # type: ignore[no-untyped-call]
        state.optimizer.step()
        if state.cycle is not None:
            state.cycle.step()


def _validate(state: _State, validation: Split) -> None:
    loss = float(F.cross_entropy(logits(state.network, validation.inputs), validation.labels))
    if not math.isfinite(loss):
        raise ModelError(
            f"Training diverged: the validation loss is {loss} after epoch "
            f"{len(state.losses) + 1}. Lower the learning rate, or look for NaN in the inputs."
        )
    state.losses.append(loss)
    if state.best_epoch == len(state.losses):
        state.best = {name: value.clone() for name, value in state.network.state_dict().items()}


def _read_result(network: nn.Module, path: Path, key: str) -> Trained:
    tensors, content = _read(path, _FINISHED, key)
    with _explain_misfit(path):
        network.load_state_dict(tensors)
        record = dict(content["record"])
        record["settings"] = TrainingSettings(**record["settings"])
        record["losses"] = tuple(record["losses"])
        trained = Trained(network.eval(), TrainingRecord(**record))
    # Still there if the kill came between writing the one and deleting the other.
    unfinished_path(path).unlink(missing_ok=True)
    return trained


def _read(path: Path, kind: str, key: str) -> tuple[dict[str, Tensor], Any]:
    tensors, content = tensor_file.read(path, kind, _remedy(path))
    if not isinstance(content, dict) or content.get("key") != key:
        raise FileError(
            f"{path} is of another training: network, data, settings or seed differ. "
            + _remedy(path)
        )
    return tensors, content


@contextmanager
def _explain_misfit(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(f"{path} does not fit this training ({error}). {_remedy(path)}") from error


def _remedy(path: Path) -> str:
    return f"Delete {path} to train anew, or choose another place."


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
