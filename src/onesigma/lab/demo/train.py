"""Train the demo's network from the recordings, in about a minute on two cores."""

from pathlib import Path

from torch import Tensor

from onesigma.lab.datasets import watch
from onesigma.lab.demo.checkpoint import Checkpoint, TrainingRecord, save
from onesigma.lab.demo.network import WatchNet
from onesigma.lab.training import train as training
from onesigma.lab.training.progress import epoch_bar

EPOCHS = 60
PATIENCE = 20
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
    settings = training.TrainingSettings(epochs, PATIENCE, learning_rate=LEARNING_RATE)
    data = watch.load()
    with epoch_bar("training", epochs, show=progress) as on_epoch:
        trained = training.train(
            WatchNet, data.train, data.validation, settings, seed=seed, on_epoch=on_epoch
        )
    network = trained.network
    assert isinstance(network, WatchNet)
    checkpoint = Checkpoint(network, _record(network, trained.record, data))
    if path is not None:
        save(checkpoint, path)
    return checkpoint


def _record(
    network: WatchNet, trained: training.TrainingRecord, data: watch.Watch
) -> TrainingRecord:
    return TrainingRecord(
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
        accuracy={
            name: round(training.accuracy(network, split), 4)
            for name, split in (
                ("train", data.train),
                ("validation", data.validation),
                ("test", data.test),
            )
        },
    )


def _rows(statistic: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(value) for value in row) for row in statistic.squeeze(-1))
