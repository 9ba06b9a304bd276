"""The demo's network: its weights on disk, in one safetensors file with a record, and its training.

Training takes about a minute on two cores.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from onesigma.errors import FileError
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.split import Splits
from onesigma.lab.networks import WatchNet
from onesigma.lab.training import train as training
from onesigma.storage.atomic import replacing

SHIPPED = Path(__file__).with_name("watch.safetensors")
EPOCHS = 60
PATIENCE = 20
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class ShippedRecord:
    """How the weights came to be, and the standardisation of the inputs they expect.

    `input_mean` and `input_std` are per sensor and axis (2 × 3); `accuracy` is per split, of the
    plain network without dropout.
    """

    seed: int
    epochs: int
    best_epoch: int
    seconds: float
    width: int
    dropout: float
    train_subjects: tuple[int, ...]
    validation_subjects: tuple[int, ...]
    test_subjects: tuple[int, ...]
    data_sha256: str
    input_mean: tuple[tuple[float, ...], ...]
    input_std: tuple[tuple[float, ...], ...]
    accuracy: dict[str, float]


@dataclass(frozen=True)
class Checkpoint:
    """A trained network in eval mode, and the record of its training."""

    network: WatchNet
    record: ShippedRecord


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write `path` whole or not at all: a crash leaves the old file, never half a new one."""
    metadata = {"record": json.dumps(asdict(checkpoint.record), sort_keys=True)}
    with replacing(path) as temporary:
        save_file(checkpoint.network.state_dict(), temporary, metadata=metadata)


def load(path: Path = SHIPPED) -> Checkpoint:
    """Read a checkpoint; the default is the one shipped with the package.

    Raises:
        FileError: the file is missing, damaged, or not of this network.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        fields = json.loads(metadata["record"])
        record = ShippedRecord(**{name: _freeze(value) for name, value in fields.items()})
        network = WatchNet(record.width, record.dropout)
        network.load_state_dict(state)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(
            f"{path.name} is not a checkpoint of the demo network ({error}). "
            "Make one with: onesigma demo --train"
        ) from error
    return Checkpoint(network.eval(), record)


def train(
    seed: int = 0, epochs: int = EPOCHS, progress: bool = True, path: Path | None = None
) -> Checkpoint:
    """Train with Adam on cross-entropy and keep the epoch with the best validation loss.

    The same seed gives the same weights on the same machine. The caller's random state is left as
    it was.

    Args:
        seed: of the initial weights, the order of the batches and the dropout masks.
        epochs: at most; training stops 20 epochs after the last improvement.
        progress: show a progress bar on standard error.
        path: where to write the checkpoint, whole or not at all; None writes nothing.
    """
    settings = training.TrainingSettings(epochs, PATIENCE, learning_rate=LEARNING_RATE)
    data = watch.load()
    with training.epoch_bar("training", epochs, show=progress) as on_epoch:
        trained = training.train(
            WatchNet, data.train, data.validation, settings, seed=seed, on_epoch=on_epoch
        )
    network = trained.network
    assert isinstance(network, WatchNet)
    checkpoint = Checkpoint(network, _record(network, trained.record, data))
    if path is not None:
        save(checkpoint, path)
    return checkpoint


def _record(network: WatchNet, trained: training.TrainingRecord, data: Splits) -> ShippedRecord:
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    return ShippedRecord(
        seed=trained.seed,
        epochs=trained.settings.epochs,
        best_epoch=trained.best_epoch,
        seconds=trained.seconds,
        width=network.width,
        dropout=network.dropout,
        train_subjects=watch.TRAIN_SUBJECTS,
        validation_subjects=watch.VALIDATION_SUBJECTS,
        test_subjects=watch.TEST_SUBJECTS,
        data_sha256=watch.SHA256,
        input_mean=_rows(data.input_mean),
        input_std=_rows(data.input_std),
        accuracy={name: round(training.accuracy(network, s), 4) for name, s in splits.items()},
    )


def _rows(statistic: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(value) for value in row) for row in statistic.squeeze(-1))


def _freeze(value: Any) -> Any:
    """JSON has no tuples: lists become tuples again, so that a record equals what was saved."""
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value
