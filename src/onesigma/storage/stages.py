"""Stages: what a long call has finished, in a folder; the same call goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from onesigma.converted import Converted
from onesigma.errors import InputError
from onesigma.storage import model_file, tensor_file

_KIND, _REMEDY = "stage", "Remove it to compute it again."
_CALL = "call"


class Stages:
    """Without a folder everything is computed and nothing is kept.

    ``settings`` and ``tensors`` are all that the results depend on.

    Raises:
        InputError: the folder was begun by another call.
    """

    def __init__(
        self, folder: str | Path | None, settings: str, tensors: Mapping[str, Tensor]
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is None:
            return
        key = tensor_file.digest(settings, tensors)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(_CALL)
        if not path.exists():
            tensor_file.write(path, _KIND, {}, key)
        elif tensor_file.read(path, _KIND, _REMEDY)[1] != key:
            raise InputError(
                f"{self._folder} was begun with another model, other inputs or settings: name "
                "another folder."
            )

    def tensor(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """What ``make`` returns, now or when the folder was filled."""
        if self._folder is None:
            return make()
        path = self._path(name)
        if not path.exists():
            tensor_file.write(path, _KIND, {name: make()}, None)
        return tensor_file.read(path, _KIND, _REMEDY)[0][name]

    def model(self, name: str, make: Callable[[], Converted]) -> Converted:
        """As ``tensor``; a model that was stored has lost the user's own network."""
        if self._folder is None:
            return make()
        path = self._path(name)
        if path.exists():
            return model_file.load(path)
        made = make()
        model_file.save(made, path)
        return made

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{name.replace(', ', '-').replace(' ', '-')}.safetensors"
