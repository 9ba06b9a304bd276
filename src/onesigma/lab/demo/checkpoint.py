"""The demo's weights on disk: one safetensors file, with what made them in its metadata."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from onesigma.errors import FileError
from onesigma.lab.demo.network import WatchNet
from onesigma.storage.atomic import replacing

SHIPPED = Path(__file__).with_name("watch.safetensors")


@dataclass(frozen=True)
class TrainingRecord:
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
    record: TrainingRecord


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
        record = _record(json.loads(metadata["record"]))
        network = WatchNet(record.width, record.dropout)
        network.load_state_dict(state)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(
            f"{path.name} is not a checkpoint of the demo network ({error}). "
            "Make one with: onesigma demo --train"
        ) from error
    return Checkpoint(network.eval(), record)


def _record(fields: dict[str, Any]) -> TrainingRecord:
    """JSON has no tuples: lists become tuples again, so a record equals itself after a round."""
    return TrainingRecord(**{name: _frozen(value) for name, value in fields.items()})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
