"""Trainings on disk: an unfinished one with all that decides how it goes on, a finished one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onesigma.errors import FileError
from onesigma.storage import tensor_file

UNFINISHED, FINISHED = "unfinished training", "trained network"


@dataclass
class State:
    """A training between two epochs; torch's own random state belongs to it.

    `losses` are the validation losses after each epoch, `best` the weights where it was least.
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    best: dict[str, Tensor] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def best_epoch(self) -> int:
        """The epoch of the least loss, counted from 1; 0 before the first."""
        return self.losses.index(min(self.losses)) + 1 if self.losses else 0


def save_state(state: State, path: Path, key: str) -> None:
    tensors = {
        **_prefixed("network", state.network.state_dict()),
        **_prefixed("best", state.best),
        **{
            f"optimizer.{index}.{name}": value
            for index, moments in state.optimizer.state_dict()["state"].items()
            for name, value in moments.items()
        },
        "random": torch.get_rng_state(),
    }
    content = {"key": key, "losses": state.losses, "seconds": state.seconds}
    tensor_file.write(path, UNFINISHED, tensors, content)


def restore_state(state: State, path: Path, key: str) -> None:
    """Make `state`, and torch's random state, what they were when `path` was written."""
    tensors, content = _read(path, UNFINISHED, key)
    try:
        state.network.load_state_dict(_under("network", tensors))
        state.best = _under("best", tensors)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _under("optimizer", tensors).items():
            index, _, kind = name.partition(".")
            moments.setdefault(int(index), {})[kind] = value
        groups = state.optimizer.state_dict()["param_groups"]
        state.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        state.losses, state.seconds = list(content["losses"]), float(content["seconds"])
        torch.set_rng_state(tensors["random"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(f"{path} does not fit this training ({error}). {_remedy(path)}") from error


def save_result(network: nn.Module, record: dict[str, Any], path: Path, key: str) -> None:
    content = {"key": key, "record": record}
    tensor_file.write(path, FINISHED, network.state_dict(), content)


def load_result(network: nn.Module, path: Path, key: str) -> dict[str, Any]:
    """Put the weights of a finished training in `network`; returns its record."""
    tensors, content = _read(path, FINISHED, key)
    try:
        network.load_state_dict(tensors)
        return dict(content["record"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(f"{path} does not fit this training ({error}). {_remedy(path)}") from error


def _read(path: Path, kind: str, key: str) -> tuple[dict[str, Tensor], Any]:
    tensors, content = tensor_file.read(path, kind, _remedy(path))
    if not isinstance(content, dict) or content.get("key") != key:
        raise FileError(
            f"{path} is of another training: network, data, settings or seed differ. "
            + _remedy(path)
        )
    return tensors, content


def _remedy(path: Path) -> str:
    return f"Delete {path} to train anew, or choose another place."


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
